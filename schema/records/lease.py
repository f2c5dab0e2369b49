"""Records that workers and the frontier exchange: sessions, tasks, and outcomes."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Literal

from msgspec import Meta, Struct

from greencrawl.schema.records.fields import KIND, Count, Seconds, SessionId, Token, WorkerId
from greencrawl.schema.records.host import HostReport


class TaskKind(IntEnum):
    """What a task is for."""

    PAGE = 0
    ROBOTS = 1
    """To look up this URL for another host that redirects its robots.txt here."""
    ERRAND = 2
    """To send login requests that wait for a session of this host.

    Such a login involves several hosts (``greencrawl.worker.auth.errands``).
    """
    SITEMAP = 3
    """To read a list of URLs, which get depths of their own (``greencrawl.worker.sitemaps``)."""
    REQUISITE = 4
    """To keep what a page needs to be shown: an image, a style, a script, a font."""
    SITEMAP_GUESS = 5
    """To read a sitemap at the usual place, which nobody has named.

    The URL is asked for once. If there is no sitemap, no row is stored.
    """
    CANONICAL = 6
    """To read the canonical URL that another page names. Its page is never a seed, at any depth."""
    REFETCH = 7
    """To read a page again if it has changed since it was stored."""
    REREAD = 8
    """To read a stored page again for links that the crawl's rules now allow.

    No request is sent to its host.
    """

    @property
    def is_page(self) -> bool:
        """Return whether the task asks for a page, as a link or as a seed."""
        return self in (TaskKind.PAGE, TaskKind.CANONICAL, TaskKind.REFETCH)

    @property
    def is_sitemap(self) -> bool:
        """Return whether the task asks for a list of URLs."""
        return self in (TaskKind.SITEMAP, TaskKind.SITEMAP_GUESS)

    @property
    def has_row(self) -> bool:
        """Return whether the task's outcome is a row of the store."""
        return self not in (TaskKind.ROBOTS, TaskKind.ERRAND)


INDEX_STEP = 16
"""The step of ``redirects`` in a sitemap for each index above the sitemap.

For a requisite of a style sheet, there is a step for each style sheet above. The remainder counts
redirects.
"""

_KIND_BITS = 6


def pack_redirects(item: Admission | Task) -> int:
    """Pack a task's kind and its redirects (63 at most) into one number, for the queue and SQL."""
    return item.kind << _KIND_BITS | item.redirects


def unpack_redirects(number: int) -> tuple[int, TaskKind]:
    """Return (redirects, kind) of a number that :func:`pack_redirects` made."""
    return number & (1 << _KIND_BITS) - 1, TaskKind(number >> _KIND_BITS)


def pack_level(level: int, kind: TaskKind) -> int:
    """Pack a task's kind and its level into one number, as SQL keeps them in a final state."""
    return kind << _KIND_BITS | level


def unpack_level(number: int) -> tuple[int, TaskKind]:
    """Return (level, kind) of a number that :func:`pack_level` made."""
    return number & (1 << _KIND_BITS) - 1, TaskKind(number >> _KIND_BITS)


SUSPECT_DELIVERIES = 3
"""A task that was leased this often without an outcome is a suspect: its page is read alone."""


class Admission(Struct, frozen=True, array_like=True, gc=False):
    """A URL on its way into the frontier; a page's log of links has these fields in this order."""

    url: str
    depth: int = 0
    level: int = 0
    redirects: int = 0
    kind: TaskKind = TaskKind.PAGE


class Task(Struct, frozen=True, gc=False):
    """A leased URL. ``number`` names it within its session, where it is never used twice."""

    number: int
    url: str
    depth: int = 0
    level: int = 0
    redirects: int = 0
    errors: int = 0
    deliveries: int = 1
    kind: TaskKind = TaskKind.PAGE

    @property
    def is_seed(self) -> bool:
        """Return whether a person gave the URL, or the URL that redirects to it."""
        return self.depth == 0 and self.kind in (TaskKind.PAGE, TaskKind.REFETCH)

    @property
    def suspect(self) -> bool:
        """Return whether the task's page may have killed or hung the processes that read it."""
        return self.deliveries > SUSPECT_DELIVERIES


class Session(Struct, frozen=True, kw_only=True):
    """A lease on one host. ``delay`` in seconds is in force when it opens.

    ``floor`` is the least delay within the session in seconds: the largest delay of robots.txt, of
    an operator, and of the crawls that have tasks there. ``failures`` counts the sessions in a row
    in which the host as a whole failed. ``ttl`` seconds run from when the worker *sent* its request
    plus ``waited`` of the reply. ``robots_known`` is false when nobody has read this host's robots
    within a day. ``traps`` is what the crawl knows of the host's shapes: what the last report of a
    session said, or b"" if that is not known (any more).
    """

    session: SessionId
    token: Token
    crawl: int
    revision: int
    host: str
    ttl: float
    delay: float
    floor: float
    robots_known: bool
    failures: int = 0
    traps: bytes = b""
    tasks: tuple[Task, ...]


class Refusal(Struct, frozen=True, forbid_unknown_fields=True):
    """A crawl that a worker takes no session of, since it cannot import its ``hook`` or a kernel.

    ``hook`` names all modules that the crawl needed at that time.
    """

    crawl: Count
    hook: Annotated[str, Meta(max_length=256)]
    reason: Annotated[str, Meta(max_length=300)]


class HookRefusal(Struct, frozen=True):
    """``worker``, on the machine ``host``, cannot import a crawl's hook, and takes no session."""

    worker: str
    host: str
    hook: str
    reason: str


class LeaseRequest(
    Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """Body of ``POST /v1/lease``. ``sequence`` rises by one with each call of an incarnation.

    ``refuses`` are crawls that the worker takes nothing of now; ``host`` names its machine then.
    """

    worker: WorkerId
    incarnation: Count
    sequence: Count
    max_sessions: Annotated[int, Meta(ge=1, le=1000)] = 32
    tasks_per_session: Annotated[int, Meta(ge=1, le=256)] = 32
    ttl: Annotated[float, Meta(ge=1, le=3600)] = 60.0
    wait: Annotated[float, Meta(ge=0, le=60)] = 20.0
    refuses: Annotated[tuple[Refusal, ...], Meta(max_length=100)] = ()
    host: Annotated[str, Meta(max_length=255)] = ""


class LeaseReply(Struct, frozen=True):
    """The reply to a lease request; ``waited`` seconds passed before the broker opened sessions.

    ``lost``: a Redis node gave no answer, and may have opened more sessions: reconcile.
    ``superseded``: see :class:`ReconcileReply`.
    """

    sessions: tuple[Session, ...] = ()
    waited: float = 0.0
    lost: bool = False
    superseded: int = 0


class ReconcileRequest(
    Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """A worker holds these sessions up to (incarnation, sequence); all its others are released.

    Leases with a lower or equal sequence that are still on their way will open nothing. ``dead``
    are older incarnations that have certainly ended: their sessions are released, too. Another
    older incarnation may still be at work; its leases expire by themselves. ``idle`` are sessions
    of the dead without a request under way. Only the hosts of other sessions of the dead must rest,
    until a request would have ended. ``dead_for`` is how many seconds ago the last of the dead
    ended, as far as it is known: the hosts have rested for this long already. ``leaving`` is the
    last call of a process: an earlier process that waits for its name may have it.
    """

    worker: WorkerId
    incarnation: Count
    sequence: Count
    holding: Annotated[tuple[Token, ...], Meta(max_length=10_000)] = ()
    dead: Annotated[tuple[Count, ...], Meta(max_length=100)] = ()
    idle: Annotated[tuple[Token, ...], Meta(max_length=10_000)] = ()
    dead_for: Seconds = 0.0
    leaving: bool = False


class ReconcileReply(Struct, frozen=True):
    """How many sessions were released, and how many tasks went back to the queues.

    ``away`` names the Redis nodes that did not answer: reconcile again until there are none.
    ``superseded`` is 0, or a later incarnation of this worker that has reconciled. In that case
    another process has the same name, and this one opens and releases nothing.
    """

    sessions: int
    tasks: int
    away: tuple[str, ...] = ()
    superseded: int = 0


class Done(Struct, frozen=True, tag="done", forbid_unknown_fields=True, omit_defaults=True):
    """The URL is settled. ``stored``: a page (2xx with a body) was stored; ``bytes`` were fetched.

    ``kind`` is ``ok``, or the failure kind under which a final state was recorded (``gone`` …).
    ``rewritten`` counts its links that the crawl's ``normalise`` has changed. ``forget``: the URL
    is gone, and is not asked for again until a new link leads to it.
    """

    stored: bool = False
    bytes: Count = 0
    kind: Annotated[str, Meta(max_length=40, pattern=KIND)] = "ok"
    rewritten: Count = 0
    forget: bool = False


class Retry(Struct, frozen=True, tag="retry", forbid_unknown_fields=True):
    """Try again, not before ``wait`` seconds from now. ``charge`` adds one to the URL's errors."""

    wait: Seconds
    kind: Annotated[str, Meta(max_length=40, pattern=KIND)]
    charge: bool = True


class Dead(Struct, frozen=True, tag="dead", forbid_unknown_fields=True):
    """No further try: a dead letter, which the worker has committed to the store already."""

    kind: Annotated[str, Meta(max_length=40, pattern=KIND)]


Outcome = Done | Retry | Dead


class FinishItem(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The outcome of a task; ``task`` is the task's number within the session."""

    session: SessionId
    token: Token
    task: Count
    outcome: Outcome


class CloseItem(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """End a session's fetching and free its host. Tasks that are not finished stay under the token.

    ``release`` names tasks that were not fetched; they go back to the queue uncharged.
    """

    session: SessionId
    token: Token
    report: HostReport = HostReport()
    release: Annotated[tuple[Count, ...], Meta(max_length=256)] = ()


class ExtendItem(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A session whose deadline is to be extended."""

    session: SessionId
    token: Token


class ReleaseItem(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Hand back unfetched tasks uncharged (graceful stop); an empty ``tasks`` means all that are
    left."""

    session: SessionId
    token: Token
    tasks: Annotated[tuple[Count, ...], Meta(max_length=256)] = ()


class FinishRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/finish``."""

    items: Annotated[tuple[FinishItem, ...], Meta(max_length=5000)]


class CloseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/sessions/close``."""

    items: Annotated[tuple[CloseItem, ...], Meta(max_length=5000)]


class ExtendRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/sessions/extend``; ``ttl`` in seconds from when it was sent."""

    items: Annotated[tuple[ExtendItem, ...], Meta(max_length=5000)]
    ttl: Annotated[float, Meta(ge=1, le=3600)] = 60.0


class ReleaseRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/release``."""

    items: Annotated[tuple[ReleaseItem, ...], Meta(max_length=5000)]


ItemStatus = Literal["ok", "stale", "gone", "stop", "away"]
"""The result of an item.

stale: the token or task is not current (409); gone: the crawl was deleted; stop: end soon; away:
the Redis node of its host does not answer, so nothing is known: send it again later.
"""


class ItemsReply(Struct, frozen=True):
    """One status per item of a batch, in its order."""

    results: tuple[ItemStatus, ...]
