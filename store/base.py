"""The contract of a store: the durable truth about crawls, pages, final states and seeds.

Every method is one transaction, durable when it returns, and idempotent where it says so. Methods
raise :class:`greencrawl.schema.errors.Unavailable` when the store is away (the caller waits and
tries again). A store may be used from many greenlets; blocking work runs off the hub.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from greencrawl.schema.records import (
    Admission,
    Alert,
    Attempt,
    Commit,
    Counted,
    Crawl,
    CrawlOptions,
    CrawlState,
    Debt,
    Due,
    Duty,
    Facts,
    Final,
    FrontierIdentity,
    HookCount,
    HookFailure,
    HookRefusal,
    Mark,
    Member,
    NodeOptions,
    Observation,
    OptionName,
    OrderChange,
    Ordered,
    Orders,
    Overflow,
    PageFilter,
    ParkedShape,
    Period,
    Planned,
    Purge,
    Refusal,
    Round,
    SeedBatch,
    Stamp,
    StoredPage,
    Validators,
    Version,
)

MARGIN = 10
"""Steps of the clock that an admission may come after its row: recovery goes back so far."""

DUTY_SECONDS = 6.0
"""How long a duty is held, unless it is renewed."""

MINUTE_MS = 60_000

NEVER = 2**63 - 1
"""Later than every stamp."""

PERIODS = 1000
"""So many periods of a crawl are kept at most."""

MEMBERS = 1000
"""So many members that have left are remembered at most."""

LATE_MS = 60_000
"""For so long pages may still be judged by rules of a crawl that have been changed."""

COUNT_PAGES = 20_000
"""Pages of a crawl up to which those of a round are counted: it takes well below a second."""

WHY = 1000
"""Characters of what is said of a round."""

Detail = Literal["row", "items", "text", "body"]
"""How much of a page is read: what a list shows (no headers, fields, items, text, links), that and
its items, all but the body, or all of it."""

EVERY = PageFilter()

STEP_ROWS = 20_000
"""Rows that a step of a list looks at, unless told otherwise."""


class Step(NamedTuple):
    """A step of a list: what it found, where it ended, and how many rows it looked at.

    ``pages`` are (cursor, page), to be taken before the next step; there may be none. The list goes
    on after ``cursor``.
    """

    pages: Iterator[tuple[str, StoredPage]]
    cursor: str
    looked_at: int


class Store(Protocol):
    """Content, final states, seeds and the replay log. See the module's text."""

    # -- the frontier's identity and the store's clock
    def frontier(self) -> FrontierIdentity | None:
        """The identity recorded when the frontier was created, or None before that."""

    def create_frontier(self, identity: FrontierIdentity) -> FrontierIdentity:
        """Record it if none is recorded yet; returns the one in force (perhaps another's)."""

    def put_layout(self, layout: int) -> FrontierIdentity:
        """Record that Redis holds the frontier in ``layout`` from now on; returns the identity."""

    def tick(self) -> int:
        """Raise the store's clock by one and return it. Rows carry its value as their stamp."""

    def clock(self) -> Stamp:
        """The store's clock and the epochs of the nodes, read together."""

    def raise_epoch(self, node: str, known: int, epoch: int) -> bool:
        """Set a node's epoch (at first 0) if it still is ``known``; whether it was."""

    # -- debts to nodes that were away, and where nodes were met last
    def owe(self, nodes: Collection[str], since: int | None = None) -> int:
        """Note that these nodes (ids) may miss what is stamped ``since`` (now) or later.

        Returns the store's clock: until then their ticks may have followed it. If that is more than
        MARGIN past ``since`` the rows are to be written again: a copy of a node from before may
        come back after the debt was paid, and its recovery would not read them.
        What a worker commits for them is noted in the same transaction: see ``Commit.owes``. No
        crawl becomes done while something is owed.
        """

    def debts(self) -> dict[str, Debt]:
        """Node → what it is owed; none for a node that is owed nothing."""

    def begin_replay(self, node: str) -> Debt | None:
        """What the node is owed, all of it in the replay log by now; None if it is nothing."""

    def end_replay(self, node: str, serial: int) -> bool:
        """The node has all it was owed. False, and it stays, if more came since ``serial``."""

    def addresses(self) -> dict[str, str]:
        """Node → the address at which it was met last."""

    def put_addresses(self, addresses: Mapping[str, str]) -> None:
        """Keep where nodes were met; an address is that of the last node met there."""

    # -- duties: what one broker at a time may do
    def take_duties(self, holder: str, names: Sequence[str]) -> dict[str, int]:
        """Take or renew those that nobody else holds, in one transaction; name → epoch.

        Each is held for :data:`DUTY_SECONDS` by the store's own clock: by that of this machine on
        SQLite, by the server's on MySQL. An end further off than that is none, so a clock that went
        back holds nobody up. The epoch rises when it is taken, and not when it is renewed in time.
        """

    def release_duties(self, holder: str, names: Sequence[str]) -> None:
        """Give back those that ``holder`` has; idempotent."""

    def duty_holder(self, name: str) -> str:
        """Who holds a duty now, "" if nobody does."""

    def under(self, duty: Duty) -> Store:
        """This store, for the holder of a duty.

        Each of its writing transactions checks first that nobody has taken the duty since, and
        keeps it from being taken before its commit. It raises
        :class:`greencrawl.schema.errors.DutyLost` and has changed nothing otherwise. Not to be
        closed.
        """

    # -- members: the processes that work together
    def put_member(self, member: Member) -> bool:
        """A member has joined: keep its row, as one that has not left; whether that changed it.

        It changes nothing for a life of the member that is not the latest, nor for one that is
        there already; one that had left or was lost is there again, since when it joined first.
        """

    def member_left(
        self, member: str, incarnation: int, why: str, at_ms: int, facts: Facts | None = None
    ) -> bool:
        """It left, or was lost; False, and nothing changes, if another life of it is known, or it
        is gone already. ``facts``: the last that it told."""

    def members(self) -> list[Member]:
        """All of them by id, those that have left with the others."""

    def drop_members(self, before_ms: int, keep: int = MEMBERS) -> int:
        """Forget those that left earlier, and all but the last ``keep`` that left; how many."""

    def forget_node(self, node: str, by_whom: str, at_ms: int) -> Ordered | None:
        """Forget the members of a node, and what it is ordered, and log who had it forgotten.

        One transaction; the answer has its revision. None, and nothing changes, where none of it is
        known, or one of its members has not left.
        """

    # -- orders: what holds for nodes, and who said so
    def put_orders(
        self,
        member: str,
        options: NodeOptions,
        unset: tuple[OptionName, ...],
        by_whom: str,
        at_ms: int,
        *,
        revision: int | None = None,
    ) -> Ordered | None:
        """Order ``options`` of a node (``*``: of all), take back ``unset``, and log who did.

        One transaction; returns what is ordered then. With a ``revision`` nothing changes unless
        that of the node's orders is still that one (0: none), and the answer is None. Orders that
        change nothing are not logged. Revisions rise over all nodes and crawls, in the order in
        which they are to be seen.
        """

    def note_crawl_change(
        self, crawl: int, name: str, changed: Mapping[str, Any], by_whom: str, at_ms: int
    ) -> int:
        """Log that options of a crawl were changed; returns the revision of that."""

    def orders(self) -> Orders:
        """All that is ordered now."""

    def orders_revision(self) -> int:
        """The revision of the latest order, 0 before the first. Cheap: it is asked every second."""

    def orders_log(
        self, limit: int = 100, *, before: int = NEVER, member: str = "", crawl: str = ""
    ) -> list[OrderChange]:
        """Who ordered what, the latest first, of revisions below ``before``; of one node or
        crawl where that is named."""

    def drop_orders_log(self, before_ms: int) -> int:
        """Forget who ordered what earlier, but for the latest order; how many entries."""

    # -- crawls
    def put_crawl(
        self, name: str, options: CrawlOptions, roots: Sequence[str], *, revision: int = 0
    ) -> Crawl:
        """Create the crawl, or update its options; roots are added to those there.

        ``revision`` rises if anything changed. An existing crawl keeps its id and state; but if
        more links are to be followed than before, and it was ever given something, a round ``read``
        over its pages begins in the same transaction, and a finished crawl becomes active.
        With a ``revision`` nothing changes unless the crawl's is still that one.

        ``version`` rises with every change of a crawl's row, here and in all that follows.
        """

    def crawls(self) -> list[Crawl]:
        """All crawls, oldest first."""

    def crawl(self, name_or_id: str | int) -> Crawl:
        """Raises UnknownCrawl."""

    def add_roots(self, crawl: int, roots: Sequence[str]) -> Crawl:
        """Widen a crawl's scope (a seed that redirects); idempotent."""

    def add_released(self, crawl: int, shapes: Sequence[str]) -> Crawl:
        """Park no more URLs of these shapes (``*``: of any); idempotent.

        A URL that is parked by one of them in a commit after this is left out and named in the
        stamp's ``refused``: together with :meth:`release_parked` nothing of a shape stays parked.
        Raises InvalidConfig beyond 1,000 shapes.
        """

    def set_state(
        self, crawl: int, state: CrawlState, reason: str = "", *, version: int = 0
    ) -> Crawl:
        """Set active, paused or done (never resting); returns the crawl as it is then.

        With a ``version`` nothing changes unless the crawl's is still that one. ``started_ms`` is
        set at the first active, ``finished_ms`` at done. Becoming done fails silently (the crawl
        returned is not done) while a seed batch of the crawl is pending, a node is owed
        something, or while URLs wait in its overflow, are due in its calendar, or a round is under
        way and ``reason`` names no limit (``max_…``): the check and the change are one transaction.
        One that is ``stopped`` is done whatever waits.
        """

    def rest(self, crawl: int, every_ms: int, *, version: int) -> Crawl:
        """Set a crawl done because it is finished, as :meth:`set_state`, and to wake up again.

        It does ``every_ms`` after its last period began, or at once if that is past: until then
        it is ``resting``, and all that holds of a finished crawl holds of it. The period under way
        has ended. Idempotent.
        """

    def begin_period(self, crawl: int, urls: Sequence[Admission]) -> Crawl:
        """Begin the next period of a crawl that rests and is due: returns it as it is then.

        One transaction: a row of the period, ``urls`` as a forced, pending batch, and the crawl is
        active. A crawl that does not rest, or not long enough, stays as it is.
        """

    def periods(self, crawl: int, limit: int = 100) -> list[Period]:
        """The latest first."""

    def begin_round(self, crawl: int, why: str) -> Round:
        """Begin a round ``fetch``, unless one is under way; returns that which is then.

        The crawl becomes active, as by :meth:`add_seeds`, in the same transaction. No crawl becomes
        done while a round is under way, but for a limit or a stop. Raises UnknownCrawl.
        """

    def rounds(self, crawl: int) -> list[Round]:
        """Of each kind the last one."""

    def count_round(self, crawl: int, known: Round) -> Round:
        """Count the pages that were stored when it began, and note how many.

        Its total stays -1 where there were none, or the crawl has more than ``COUNT_PAGES``:
        no round waits for its count.
        """

    def queue_round(
        self, crawl: int, known: Round, cursor: str, urls: Sequence[Admission], *, end: bool
    ) -> bool:
        """Log the next URLs of a round as a forced, pending batch; it is at ``cursor`` then.

        One transaction; False, and nothing was done, if the round is not at ``known.cursor`` any
        more, or the crawl is not active: a round waits while it is paused, and makes none that is
        stopped go on. With ``end`` it is over. Raises UnknownCrawl.
        """

    def reopen(self, crawl: int, version: int) -> Crawl:
        """Something came to a crawl that was found finished, or about to be, at ``version``.

        One that is finished becomes active; of one that is active at ``version`` the version
        rises, so that whoever is about to end it does not. Any other (paused, done at a limit,
        changed since) stays as it is. Returns the crawl as it is then. Raises UnknownCrawl.
        """

    def stored(self, crawl: int) -> int:
        """Pages (2xx) of a crawl with ``max_pages``; 0 if no commit has met that limit yet."""

    def count_time(self, crawl: int, now_ms: int, most_ms: int) -> int:
        """Add the time since the last call, and return all milliseconds counted so far.

        A gap longer than ``most_ms`` was a stop or a pause and counts as nothing. Brokers may
        count side by side: each moment is counted once. Raises UnknownCrawl.
        """

    def delete_crawl(self, crawl: int) -> None:
        """Delete the crawl and all its rows, in bounded steps; idempotent."""

    # -- deletions in the background
    def purges(self) -> list[Purge]:
        """What is being deleted, oldest first."""

    def add_purge(self, crawl: int, host: str = "") -> Purge:
        """Ask for the deletion of what waits of ``host``, or of the whole crawl.

        The latter is unknown from now on, and its name free. Idempotent. Raises UnknownCrawl.
        """

    def purge_size(self, purge: Purge) -> int:
        """Rows that are to go: of the crawl, or of the host's overflow."""

    def note_purge(self, purge: int, removed: int, total: int = 0) -> None:
        """Progress; ``total`` counts the first time it is given."""

    def purge_step(self, purge: Purge) -> bool:
        """Delete some rows of a crawl that is to go, noting progress; False when none is left."""

    def end_purge(self, purge: int) -> None:
        """Nothing is left of it; idempotent."""

    # -- logged seeds
    def add_seeds(
        self,
        crawl: int,
        urls: Sequence[Admission],
        *,
        force: bool = False,
        claim: Callable[[int], None] | None = None,
    ) -> int:
        """Log a batch as pending; returns its id. A crawl that was done, or is being stopped,
        becomes active again.

        ``claim`` is called with the id before anybody can find the batch pending, perhaps from
        another thread, and perhaps in vain: the commit may still fail.
        """

    def seeds_admitted(
        self, batch: int, tick: int = 0, epochs: Mapping[str, int] | None = None
    ) -> bool:
        """The batch is in every partition: it is pending no longer. Idempotent.

        False, and it stays pending, if it was stamped more than MARGIN before ``tick`` (of the
        nodes, when they admitted it), or if one of these nodes has a higher epoch now than in
        ``epochs``: restamp it, and admit it again.
        """

    def restamp_seeds(self, batch: int) -> Stamp:
        """Give a batch the present stamp, and return it; the batch is pending, if again."""

    def pending_seeds(self, limit: int = 100, after: int = 0) -> list[SeedBatch]:
        """Batches still pending, oldest first, beginning after batch ``after``."""

    def seeds(self, crawl: int) -> Iterator[SeedBatch]:
        """Stream all logged batches, oldest first."""

    # -- the replay log, read to refill a Redis: what was stamped ``since`` or later, in that order
    def replay_size(self, since: int) -> tuple[int, int, int]:
        """Pages, final states and batches of seeds."""

    def replay_marks(self, since: int) -> Iterator[list[Mark]]:
        """Stream what is settled, in chunks: pages, then final states."""

    def replay_links(self, since: int) -> Iterator[list[tuple[int, list[Admission]]]]:
        """Stream (crawl, links) of pages, in chunks."""

    def replay_seeds(self, since: int, *, force: bool) -> Iterator[SeedBatch]:
        """Stream batches that are forced, or that are not; pending ones too."""

    def stamps(self, crawl: int, fingerprints: Sequence[int]) -> dict[int, int]:
        """Fingerprint → the latest stamp of its page and its final state, if it has either."""

    # -- the overflow: URLs beyond the frontier's memory budget
    def put_overflow(self, crawl: int, items: Sequence[Overflow]) -> None:
        """Add rows, by (crawl, fingerprint); one that is there waits again.

        A crawl that was finished becomes active.
        """

    def overflow(self, crawl: int, partition: int, host: str, limit: int) -> list[Overflow]:
        """A host's waiting rows, the best first: by level, then in order of arrival."""

    def overflow_taken(self, items: Sequence[Overflow], node: str, epoch: int) -> None:
        """``node`` has these in memory since its ``epoch``: they wait no more.

        Changes nothing once the node's epoch is a higher one. From then on a row goes when its page
        or final state is committed; those that have one already go now, and that is stamped anew.
        """

    def overflow_hosts(self, crawl: int, partition: int, after: str, limit: int) -> list[str]:
        """Names of hosts with waiting rows, in order, beginning after ``after``."""

    def overflow_places(self) -> list[tuple[int, int]]:
        """(crawl, partition) wherever rows of an active crawl wait."""

    def overflow_of(self, partition: int) -> Iterator[tuple[int, list[Overflow]]]:
        """Stream all rows of a partition as (crawl, some rows), waiting or not."""

    def overflow_since(self, partition: int, since: int) -> Iterator[tuple[int, list[Overflow]]]:
        """Stream rows that wait since ``since`` (of the store's clock) or later; reads no others.

        One that was put by a process of the version before may be among them, or not.
        """

    def free_overflow(self, partition: int, since: int = 0) -> None:
        """Rows that a node has had in memory since ``since`` or later wait again, from now on.

        Reads no others, but for those that were noted by a process of the version before.
        """

    # -- the calendar: when pages of crawls that begin again are asked for next
    def add_calendar(self, crawl: int, found: Sequence[Observation]) -> None:
        """Rows for what has none yet, and belongs into the crawl's calendar: due in the next
        period."""

    def calendar_places(self) -> list[tuple[int, int]]:
        """(crawl, partition) wherever rows of an active crawl are due."""

    def calendar_due(
        self, crawl: int, partition: int, after: tuple[int, int, int], limit: int
    ) -> list[Due]:
        """Rows that are due, and wait, behind a place: by date, host and fingerprint."""

    def calendar_taken(self, crawl: int, rows: Sequence[Due], node: str, epoch: int) -> int:
        """``node`` has these in memory since its ``epoch``; returns how many are on their way now.

        Rows that were fetched since they were read are left out, and all are once the node's
        epoch is a higher one. A row waits again from its next commit on: see :meth:`commit`.
        """

    def drop_calendar(self, crawl: int, rows: Sequence[Due]) -> None:
        """Forget rows of which nothing was heard since they were read."""

    def postpone_calendar(self, crawl: int, partition: int, row: Due) -> None:
        """The host of ``row`` is down: what is due of it, at that date, is in the next period."""

    def free_calendar(self, partition: int, epoch: int) -> None:
        """Rows that a node has had in memory under an epoch before this one wait again."""

    def planned(self, crawl: int, fingerprint: int) -> Planned | None:
        """When a URL is asked for again; None where it is not in its crawl's calendar."""

    # -- the worker's commit
    def commit(self, work: Commit) -> Stamp:
        """Write pages, attempts and finals in one transaction; returns its stamp, which the
        same records get anew when they are written again.

        A page or final of the same (crawl, fingerprint) is replaced by a newer one, and left
        alone by an older (``fetched_ms``/``at_ms``); a page removes the URL's final state and the
        other way round a final never removes a page. That a URL is parked says nothing where it
        has a page or another final state, be these older: it is left out, or goes.

        A page that was found unchanged stays as it is, at the present stamp; a final state of
        before, or a parked one, goes as it does with a new version.

        An attempt is keyed by (crawl, fingerprint, at_ms), so that writing it again changes
        nothing. The outcome of a hook is noted with the page that it ran on (see ``HookRun``).
        Pages with links make their crawl active again if it was finished.

        A crawl with ``max_pages`` never stores more pages (2xx): those beyond are left out and
        named in the stamp's ``refused``. A page that takes the place of one counts nothing. So are
        URLs that are parked by a released shape.

        In a crawl with a calendar the row of each URL gets its next date, and waits. That is in the
        first period after the present one. It is later if the URL is gone, and never once it was
        gone several times within several days: then the stamp names it as ``retired``. What is late
        changes no row that waits.
        """

    # -- pages whose hook failed
    def hook_counts(self, crawl: int) -> list[HookCount]:
        """By function and message, the commonest first; some hundreds of them at most.

        Pages with any other message are counted under ``other``.
        """

    def hook_failures(
        self, crawl: int, function: str, message: str, *, after: str = "", limit: int = 100
    ) -> list[tuple[str, HookFailure]]:
        """(cursor, failure) of pages with this message, in an order that stays, after a cursor.

        Raises ValueError for one that is no cursor.
        """

    def hook_pages(
        self, crawl: int, functions: Sequence[str], *, after: int | None = None, limit: int = 100
    ) -> list[int]:
        """Fingerprints of pages on which one of ``functions`` failed, rising, after ``after``."""

    # -- workers that cannot import a crawl's hook
    def put_refusals(
        self, worker: str, host: str, refusals: Sequence[Refusal], until_ms: int
    ) -> None:
        """What ``worker`` refuses now, in place of what it refused before."""

    def refusals(self, now_ms: int) -> list[tuple[int, HookRefusal]]:
        """(crawl, refusal) of those that still count, by worker."""

    # -- blocks of hosts, written through
    def put_block(self, host: str, until_ms: int, reason: str) -> None:
        """Record that ``host`` is blocked until ``until_ms`` (epoch); never moves back."""

    def lift_block(self, host: str) -> None:
        """Forget the block of ``host``; idempotent."""

    def blocks(self, now_ms: int) -> list[tuple[str, int, str]]:
        """(host, until_ms, reason) of blocks still in force."""

    # -- operators' delays of hosts
    def put_delay(self, host: str, delay_ms: int) -> None:
        """Record the least delay of ``host``; 0 forgets it. It stays until then. Idempotent."""

    def delay(self, host: str) -> int:
        """The least delay of ``host`` in ms, 0 where none is set."""

    def delays(self) -> dict[str, int]:
        """Host → least delay in ms, of all that have one."""

    # -- questions
    def page(self, crawl: int, fingerprint: int, *, detail: Detail = "body") -> StoredPage | None:
        """The latest version of a page, or None. Raises BodyAway if its file cannot be read."""

    def validators(self, crawl: int, fingerprints: Sequence[int]) -> dict[int, Validators]:
        """Fingerprint → what the server said of the page that is stored, of those that are whole
        and have a status of 2xx. It may come from a replica: an older one costs a fetch."""

    def history(self, crawl: int, fingerprint: int, limit: int = 20) -> list[Version]:
        """A page's fetches, the latest first; none for a URL without a page."""

    def body(self, crawl: int, digest: bytes, size: int) -> bytes | None:
        """A body of ``size`` bytes by its digest, None where no page has it, and no version that is
        kept. Raises BodyAway."""

    def final(self, crawl: int, fingerprint: int) -> Final | None:
        """The final state of a URL, or None as long as it has none."""

    def attempts(self, crawl: int, fingerprint: int, limit: int = 20) -> list[Attempt]:
        """Latest first."""

    def dead(self, crawl: int, limit: int = 100, after: str = "") -> list[tuple[str, Final]]:
        """Dead letters as (cursor, final), in an order that stays, beginning after a cursor."""

    def requeue_dead(
        self, crawl: int, limit: int = 10_000, *, before: int = NEVER
    ) -> SeedBatch | None:
        """Turn up to ``limit`` dead letters into one forced, pending seed batch.

        One transaction. Returns the batch, or None if there were none. ``before``: only letters
        with an earlier stamp, so that whoever empties the box comes to an end, though some die
        again meanwhile: :meth:`tick` gives a number that no letter has yet.
        """

    def parked_shapes(self, crawl: int, limit: int = 100) -> list[ParkedShape]:
        """Shapes by which URLs are parked, those with the most first."""

    def release_parked(
        self, crawl: int, shape: str | None = None, *, limit: int = 10_000, before: int = NEVER
    ) -> SeedBatch | None:
        """Turn up to ``limit`` parked URLs (of a shape) into a batch, as :meth:`requeue_dead`."""

    def counts(self, crawl: int) -> dict[str, int]:
        """For the summary: pages (2xx), bytes (body), attempts, hosts; dead, gone, excluded and
        parked URLs."""

    def slowest_hosts(self, crawl: int, limit: int = 5) -> list[tuple[str, float, int]]:
        """(host, mean seconds an answer, answers), slowest first."""

    # -- streams, which may come from a replica: nothing is decided by them
    def pages(
        self,
        crawl: int,
        wanted: PageFilter = EVERY,
        *,
        detail: Detail = "text",
        after: str = "",
    ) -> Iterator[tuple[str, StoredPage]]:
        """Stream (cursor, page) in the order of storing, in constant memory, after a cursor.

        A page that is stored anew meanwhile may be met again; none stored before is passed over.
        Cursors are short texts of letters, digits, "-" and ".". Raises ValueError for one that is
        no cursor, BodyAway for a body whose file cannot be read.
        """

    def page_steps(
        self,
        crawl: int,
        wanted: PageFilter = EVERY,
        *,
        detail: Detail = "text",
        after: str = "",
        window: int = STEP_ROWS,
    ) -> Iterator[Step]:
        """Stream the same in steps, for a caller that may not wait until something is found.

        A step looks at up to ``window`` rows (of the crawl, or of the host where that is wanted),
        whether ``wanted`` lets any of them through or none. When the steps end the list is through.
        """

    def finals(
        self, crawl: int, since_ms: int = 0, *, after: str = ""
    ) -> Iterator[tuple[str, Final]]:
        """Stream (cursor, final) of final states reached at ``since_ms`` or later.

        As with pages no statement looks at more than :data:`STEP_ROWS` rows.
        """

    # -- the journal by months
    def prepare_months(self, now_ms: int) -> None:
        """Make room for attempts of this month (UTC) and the next ones; idempotent and cheap."""

    # -- retention: each step is a transaction of some milliseconds, after which it may end
    def drop_months(self, before_ms: int) -> Iterator[int]:
        """Drop the journal's whole months that ended by ``before_ms``, telling the same of months.

        Sums over the journal (``counts``, ``slowest_hosts``) stay. On MySQL a step is a month.
        """

    def drop_successes(self, before_ms: int) -> Iterator[int]:
        """Drop attempts older than that which brought a page, telling after each step how many.

        One that came late, or on MySQL is of a month that is not over by then, may stay longer.
        """

    def drop_versions(self, before_ms: int) -> Iterator[int]:
        """Drop fetches older than that from the histories of pages, but for the present ones."""

    def drop_expired(self, now_ms: int) -> Iterator[int]:
        """Drop blocks that ended a day ago, and refusals that no longer count."""

    def drop_seeds(self, batches: Sequence[tuple[int, int]]) -> int:
        """Drop batches, by (id, stamp), that are not pending and were not stamped anew since."""

    # -- what the coordinator keeps: see greencrawl.broker.tasks.coordinator
    def put_samples(self, samples: Sequence[Counted]) -> None:
        """Write samples, by (crawl, minute); one that is there stays as it is.

        None is written for a crawl that is deleted. Idempotent.
        """

    def samples(self, crawl: int, since_ms: int = 0, points: int = 1000) -> list[Counted]:
        """Samples since a moment (epoch), and the last one before it, in order.

        If there are more than ``points`` (2 or more) they are thinned evenly.
        """

    def drop_samples(self, before_ms: int) -> Iterator[int]:
        """Drop older samples, telling after each step how many."""

    def alerts(self) -> list[Alert]:
        """Those that are not over, the oldest first; some have not begun to count yet."""

    def untold_alerts(self) -> list[Alert]:
        """Those with a message that was not delivered; the oldest first."""

    def put_alerts(self, alerts: Sequence[Alert]) -> None:
        """Write alerts, by (kind, subject, since_ms); of one that is there ``told`` stays as it is.

        Idempotent.
        """

    def note_told(self, alert: Alert) -> None:
        """Note how many messages of an alert were delivered. Idempotent."""

    def forget_alerts(self, alerts: Sequence[Alert]) -> None:
        """Delete alerts that nobody has to be told of. Idempotent."""

    def drop_alerts(self, before_ms: int) -> Iterator[int]:
        """Drop those that were over before, telling after each step how many."""

    # -- for who watches it
    def size(self) -> int:
        """Bytes that its files or tables take, about; bodies in files are not counted. It may take
        a while on MySQL."""

    def lags(self) -> dict[str, float | None]:
        """Replica → seconds that it is behind at most, None where that cannot be told.

        The oftener this is called, the nearer it is. None at all where there are no replicas.
        """

    def close(self) -> None:
        """Free connections and files. Idempotent; every other call raises Closed from then on."""
