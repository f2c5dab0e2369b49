"""The state of crawls, nodes and single URLs, for people and for programs."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from greencrawl.schema.records.crawl import CrawlState
from greencrawl.schema.records.host import HostState, NodeAway, NodeFull
from greencrawl.schema.records.lease import HookRefusal
from greencrawl.schema.records.recrawl import Period, Round
from greencrawl.schema.records.stored import Attempt, HookCount, Version


class Totals(Struct, frozen=True, kw_only=True):
    """Counters of one crawl over all partitions, from one undisturbed scan.

    ``failures`` counts outcomes by kind. It includes pages that are stored without their content,
    by the reason (``noindex`` …). ``later`` counts retries not yet due; ``overflow`` counts tasks
    that wait in SQL, beyond the memory budget; ``hosts`` counts hosts with waiting tasks.
    ``parked`` also counts URLs that were released since. ``rewritten`` are links that the crawl's
    ``normalise`` has changed; ``unchanged`` counts pages that were asked for again and had not
    changed. ``requeued`` counts known URLs that were queued again: whenever such a URL is settled,
    it counts once more. ``put_off`` counts sessions that ended through no fault of their hosts, by
    reason (:class:`greencrawl.schema.records.PutOff`).
    """

    admitted: int = 0
    waiting: int = 0
    leased: int = 0
    later: int = 0
    overflow: int = 0
    finished: int = 0
    stored: int = 0
    dead: int = 0
    retries: int = 0
    bytes: int = 0
    hosts: int = 0
    parked: int = 0
    rewritten: int = 0
    unchanged: int = 0
    requeued: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    put_off: dict[str, int] = field(default_factory=dict)

    @property
    def open(self) -> int:
        """Return the number of tasks still to do."""
        return self.waiting + self.leased + self.later + self.overflow


class CrawlStats(Totals, frozen=True, kw_only=True):
    """Counters of one crawl, and its state.

    The URLs that are still to be fetched are ``waiting + leased + later + overflow``. ``stored``
    counts pages in the store, ``dead`` and ``parked`` count URLs that are dead or parked now;
    ``fetched`` is how often a page was stored. In a crawl with more than a million pages, pages
    that are fetched again count each time. ``bytes`` counts the bytes of bodies as they were
    transferred, for each fetch. ``failures`` counts each try. ``final_states`` counts final states,
    except parked, by the kind of failure. It is null while the crawl goes on, if there are more
    than 20,000 final states, or if no URL was queued again. ``wakes_ms`` is when the next period
    begins, if the crawl rests. ``period`` is the latest period of a crawl that begins again, and
    ``rounds`` are the rounds under way. ``hooks`` counts failures of its hook. ``refused`` are
    workers that cannot import this hook. ``stuck`` says that no known worker takes the crawl.
    """

    crawl: str
    state: CrawlState
    reason: str = ""
    fetched: int = 0
    final_states: dict[str, int] | None = None
    wakes_ms: int = 0
    period: Period | None = None
    rounds: tuple[Round, ...] = ()
    hooks: tuple[HookCount, ...] = ()
    refused: tuple[HookRefusal, ...] = ()
    stuck: bool = False


class Counted(Struct, frozen=True, kw_only=True):
    """A crawl's counters at the start of a ``minute`` (since 1970), as the store keeps them.

    ``pages``, ``bytes``, ``errors`` and ``unchanged`` are sums since the crawl was made, and count
    each fetch; the others are the values at that minute.
    """

    crawl: int
    minute: int
    pages: int = 0
    bytes: int = 0
    errors: int = 0
    unchanged: int = 0
    waiting: int = 0
    leased: int = 0
    later: int = 0
    overflow: int = 0
    dead: int = 0
    parked: int = 0
    hosts: int = 0


class Sample(Struct, frozen=True, kw_only=True):
    """A point of a plot. ``at_ms`` is a moment (Unix time), ``seconds`` after the point before.

    ``pages``, ``bytes``, ``errors`` and ``unchanged`` count within these seconds; the others are
    the values at the moment.
    """

    at_ms: int
    seconds: int
    pages: int = 0
    bytes: int = 0
    errors: int = 0
    unchanged: int = 0
    waiting: int = 0
    leased: int = 0
    later: int = 0
    overflow: int = 0
    dead: int = 0
    parked: int = 0
    hosts: int = 0


AlertKind = Literal[
    "node_lost", "links_owed", "store_not_writable", "crawl_stuck", "disk_full", "hook_failing"
]


class Alert(Struct, frozen=True, kw_only=True):
    """Something that a person should know; one alert is open at a time for a kind and subject.

    ``subject`` is the node, crawl or machine that it is about, ``text`` a sentence for people.
    Moments are Unix milliseconds: ``since_ms`` when it was first seen, ``began_ms`` when it had
    lasted long enough to be told (0: not yet), ``over_ms`` when it was over (0 while it lasts).
    There are two messages: that it began, and that it is over. ``told`` counts how many of the two
    messages were delivered.
    """

    kind: AlertKind
    subject: str
    text: str
    since_ms: int
    began_ms: int = 0
    over_ms: int = 0
    told: int = 0


class Stats(Struct, frozen=True):
    """The whole system's statistics; ``slowest`` are hosts of recent sessions, slowest first.

    ``rest_hosts`` counts hosts with an open session when a worker's process died. They rest until
    no request of that process can be under way any more, and then for their delays: at most for
    ``rest_seconds``. ``away`` are Redis nodes that do not answer: what they hold is not counted.
    ``full`` are Redis nodes near their memory limit.

    ``workers`` counts the processes of workers that reported within a minute; None if that is not
    known. ``claimed_twice`` are names that two worker processes have: the earlier one waits for the
    later one to leave. ``alerts`` are the open alerts.
    """

    crawls: tuple[CrawlStats, ...]
    slowest: tuple[HostState, ...] = ()
    rest_hosts: int = 0
    rest_seconds: float = 0.0
    away: tuple[NodeAway, ...] = ()
    workers: int | None = None
    claimed_twice: tuple[str, ...] = ()
    alerts: tuple[Alert, ...] = ()
    full: tuple[NodeFull, ...] = ()


class UrlState(Struct, frozen=True, kw_only=True):
    """Answer to "where is this URL, and why is it not fetched yet?", for one crawl."""

    crawl: str
    url: str
    host: str = ""
    state: Literal[
        "fetched",
        "dead",
        "gone",
        "excluded",
        "parked",
        "waiting",
        "leased",
        "later",
        "overflow",
        "away",
        "seen",
        "unseen",
        "invalid",
    ] = "unseen"
    why: str = ""
    """One sentence for a person, naming the rule, line, wait or worker."""
    page: str = ""
    """The id of its stored page, for ``/v1/pages/{id}``."""
    attempts: tuple[Attempt, ...] = ()
    versions: tuple[Version, ...] = ()
    """Its fetches, the latest first, if there was more than one."""
