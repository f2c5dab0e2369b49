"""What all processes said, as the loggers have it."""

from __future__ import annotations

from greencrawl.broker.logs.records import LogsQuery, LogsReply
from greencrawl.broker.service.faces import logs
from greencrawl.broker.service.service import Service


def list_logs(service: Service, query: LogsQuery) -> LogsReply:
    """Lines that processes logged, from all loggers by time, each once.

    Ask again with `next` as `after` until that is "", though it may come with few lines or none.
    `silent` names loggers that did not answer: what they have is missing.
    """
    return logs.found(service, query)
