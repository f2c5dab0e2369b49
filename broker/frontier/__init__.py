"""The queue itself: the URLs that wait to be fetched, in Redis. See docs/architecture.md."""

from greencrawl.broker.frontier.addresses import SHARE_SECONDS, Share, ShareRequest
from greencrawl.broker.frontier.admission import Admitted
from greencrawl.broker.frontier.frontier import Frontier
from greencrawl.broker.frontier.scripts.partition import Mode

__all__ = ["SHARE_SECONDS", "Admitted", "Frontier", "Mode", "Share", "ShareRequest"]
