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
    NodeOrders,
    Observation,
    OptionName,
    OrderChange,
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
"""An admission may come this many ticks of the clock after its row, so recovery starts this far
back."""

DUTY_SECONDS = 6.0
"""How long a broker holds a duty that it does not renew."""

MINUTE_MS = 60_000

NEVER = 2**63 - 1
"""Later than every stamp."""

PERIODS = 1000
"""At most this many periods of a crawl are kept."""

MEMBERS = 1000
"""At most this many members are kept after they have left."""

LATE_MS = 60_000
"""How long pages may still be judged by the old rules after a crawl's rules were changed."""

COUNT_PAGES = 20_000
"""A round counts pages only if a crawl has at most this many: that takes well below a second."""

WHY = 1000
"""The reason of a round may have this many characters."""

Detail = Literal["row", "items", "text", "body"]
"""How much of a page is read.

"row" is what a list shows (no headers, fields, items, text, links); "items" adds its items; "text"
is all but the body; "body" is all.
"""

EVERY = PageFilter()

STEP_ROWS = 20_000
"""Rows that one step of a list reads by default."""


class Step(NamedTuple):
    """A step of a list: what it found, where it ended, and how many rows it read.

    ``pages`` are (cursor, page), to be taken before the next step; there may be none. The list goes
    on after ``cursor``.
    """

    pages: Iterator[tuple[str, StoredPage]]
    cursor: str
    looked_at: int


class Store(Protocol):
    """Content, final states, seeds and the replay log; see the module's docstring."""

    # -- the frontier's identity and the store's clock
    def frontier(self) -> FrontierIdentity | None:
        """Return the identity recorded when the frontier was created, or None before that."""

    def create_frontier(self, identity: FrontierIdentity) -> FrontierIdentity:
        """Record ``identity`` if the store has none yet; return the identity that it has now."""

    def put_layout(self, layout: int) -> FrontierIdentity:
        """Record that Redis holds the frontier in ``layout`` from now on; return the identity."""

    def tick(self) -> int:
        """Raise the store's clock by one and return it. Rows carry its value as their stamp."""

    def clock(self) -> Stamp:
        """Return the store's clock and the epochs of the nodes, read together."""

    def raise_epoch(self, node: str, known: int, epoch: int) -> bool:
        """Set a node's epoch (at first 0) if it still is ``known``; return whether it was."""

    # -- debts to nodes that were away, and the addresses of nodes
    def owe(self, nodes: Collection[str], since: int | None = None) -> int:
        """Note that these nodes (ids) may miss what is stamped ``since`` (now) or later.

        Returns the store's clock: up to that value the nodes may have followed it. If the value is
        more than MARGIN past ``since``, write the rows again. The reason: an old copy of a node may
        come back after the debt was paid, and its recovery would not read these rows. A worker's
        commit notes its debts in the same transaction: see ``Commit.owes``. No crawl becomes done
        while a node is owed something.
        """

    def debts(self) -> dict[str, Debt]:
        """Return node → its debt; nodes without a debt are left out."""

    def begin_replay(self, node: str) -> Debt | None:
        """Return the node's debt, None without one; all its rows are in the replay log by now."""

    def end_replay(self, node: str, serial: int) -> bool:
        """Record that the node has all that it was owed.

        Returns False, and the debt stays, if more was added since ``serial``.
        """

    def addresses(self) -> dict[str, str]:
        """Return node → the address at which it was last seen."""

    def put_addresses(self, addresses: Mapping[str, str]) -> None:
        """Record where nodes were seen; an address belongs to the last node seen there."""

    # -- duties: what one broker at a time may do
    def take_duties(self, holder: str, names: Sequence[str]) -> dict[str, int]:
        """Take or renew the duties that no other broker holds, in one transaction; return name →
        epoch.

        A duty is held for :data:`DUTY_SECONDS` by the clock of this machine (SQLite) or of the
        server (MySQL). A duty that seems to be held for longer is free, so a clock that was set
        back blocks nobody. The epoch rises when a duty is taken, and not when it is renewed in
        time.
        """

    def release_duties(self, holder: str, names: Sequence[str]) -> None:
        """Give back the duties that ``holder`` has; idempotent."""

    def duty_holder(self, name: str) -> str:
        """Return the holder of a duty, "" if there is none."""

    def under(self, duty: Duty) -> Store:
        """Return this store for the holder of a duty.

        Each writing transaction first checks that no other broker has taken the duty since, and
        keeps it from being taken before the commit. If it was taken, the transaction raises
        :class:`greencrawl.schema.errors.DutyLost` and changes nothing. Do not close the returned
        store.
        """

    # -- members: the processes that work together
    def put_member(self, member: Member) -> bool:
        """Record that a member has joined, and has not left; return whether this changed its row.

        The row stays if a later life of the member is known, or if this life is there already. A
        life that had left or was lost is there again; the time when it first joined stays.
        """

    def member_left(
        self, member: str, incarnation: int, why: str, at_ms: int, facts: Facts | None = None
    ) -> bool:
        """Record that a member left or was lost, with ``facts``, its last report.

        Returns False and changes nothing if another life of the member is known, or if it has left.
        """

    def members(self) -> list[Member]:
        """Return all members by id, also those that have left."""

    def drop_members(self, before_ms: int, keep: int = MEMBERS) -> int:
        """Delete members that left before ``before_ms``, and all but the last ``keep`` that left;
        return how many."""

    def forget_node(self, node: str, by_whom: str, at_ms: int) -> NodeOrders | None:
        """Forget the members of a node and its orders, and log who did this.

        One transaction; the answer has its revision. Returns None and changes nothing if the node
        has no known member and no order, or a member that has not left. If a member joins
        meanwhile, the orders stay, and the answer has them.
        """

    # -- orders: what holds for nodes, and who ordered it
    def put_orders(
        self,
        member: str,
        options: NodeOptions,
        unset: tuple[OptionName, ...],
        by_whom: str,
        at_ms: int,
        *,
        revision: int | None = None,
    ) -> NodeOrders | None:
        """Order ``options`` for a node (``*``: for all), take back ``unset``, and log who did.

        One transaction; returns the orders then in force. With a ``revision`` nothing changes
        unless that is still the revision of the node's orders (0: none); otherwise the answer is
        None. Orders that change nothing are not logged. Revisions rise over all nodes and crawls,
        in the order in which they become visible.
        """

    def note_crawl_change(
        self, crawl: int, name: str, changed: Mapping[str, Any], by_whom: str, at_ms: int
    ) -> int:
        """Log that options of a crawl were changed; return the revision of that change."""

    def orders(self) -> Orders:
        """Return all orders in force."""

    def orders_revision(self) -> int:
        """Return the revision of the latest order, 0 before the first.

        This is cheap: it is called every second.
        """

    def orders_log(
        self, limit: int = 100, *, before: int = NEVER, member: str = "", crawl: str = ""
    ) -> list[OrderChange]:
        """Return who ordered what, the latest first, of revisions below ``before``.

        If a node or a crawl is named, only its changes are returned.
        """

    def drop_orders_log(self, before_ms: int) -> int:
        """Delete older entries of the log of orders, except the latest one; return how many."""

    # -- crawls
    def put_crawl(
        self, name: str, options: CrawlOptions, roots: Sequence[str], *, revision: int = 0
    ) -> Crawl:
        """Create the crawl, or update its options; roots are added to those it has.

        ``revision`` rises if anything changed. An existing crawl keeps its id and state, with one
        exception. If its links now reach further than before, and it was ever given a URL, a round
        ``read`` over its pages begins in the same transaction, and a finished crawl becomes active.
        With a ``revision`` nothing changes unless the crawl still has it.

        ``version`` rises with every change of a crawl's row, here and in all methods below.
        """

    def crawls(self) -> list[Crawl]:
        """Return all crawls, oldest first."""

    def crawl(self, name_or_id: str | int) -> Crawl:
        """Return a crawl. Raises UnknownCrawl."""

    def add_roots(self, crawl: int, roots: Sequence[str]) -> Crawl:
        """Widen a crawl's scope (a seed that redirects); idempotent."""

    def add_released(self, crawl: int, shapes: Sequence[str]) -> Crawl:
        """Park no more URLs of these shapes (``*``: of any); idempotent.

        A later commit leaves out a URL that is parked by one of these shapes, and names it in the
        stamp's ``refused``. Together with :meth:`release_parked` this leaves nothing of a shape
        parked. Raises InvalidConfig beyond 1,000 shapes.
        """

    def set_state(
        self, crawl: int, state: CrawlState, reason: str = "", *, version: int = 0
    ) -> Crawl:
        """Set a crawl active, paused or done (never resting); return the crawl after the change.

        With a ``version`` nothing changes unless the crawl still has it. ``started_ms`` is set at
        the first active, ``finished_ms`` at done. The crawl does not become done (the returned
        crawl shows that) in these cases: a seed batch of it is pending; a node is owed something;
        URLs wait in its overflow or are due in its calendar; a round is under way and ``reason``
        names no limit (``max_…``). The check and the change are one transaction. A crawl that is
        ``stopped`` becomes done whatever waits.
        """

    def rest(self, crawl: int, every_ms: int, *, version: int) -> Crawl:
        """Set a finished crawl done, as :meth:`set_state` does, until its next period.

        The next period begins ``every_ms`` after the start of the last one, or now if that is past.
        Until then the crawl is ``resting``, and all rules for a finished crawl apply to it. The
        current period has ended. Idempotent.
        """

    def begin_period(self, crawl: int, urls: Sequence[Admission]) -> Crawl:
        """Begin the next period of a resting crawl that is due; return the crawl after that.

        One transaction adds a row of the period and ``urls`` as a forced, pending batch, and makes
        the crawl active. A crawl that does not rest, or has not rested long enough, stays as it is.
        """

    def periods(self, crawl: int, limit: int = 100) -> list[Period]:
        """Return the latest periods, the last one first."""

    def begin_round(self, crawl: int, why: str) -> Round:
        """Begin a round ``fetch`` unless one is under way; return the round under way.

        The crawl becomes active, as by :meth:`add_seeds`, in the same transaction. No crawl becomes
        done while a round is under way, except by a limit or a stop. Raises UnknownCrawl.
        """

    def rounds(self, crawl: int) -> list[Round]:
        """Return the last round of each kind."""

    def count_round(self, crawl: int, known: Round) -> Round:
        """Count the pages that were stored when a round began, and note the number.

        The total stays -1 if there were no pages, or if the crawl has more than ``COUNT_PAGES``: no
        round waits for its count.
        """

    def queue_round(
        self, crawl: int, known: Round, cursor: str, urls: Sequence[Admission], *, end: bool
    ) -> bool:
        """Log the next URLs of a round as a forced, pending batch, and set its place to ``cursor``.

        One transaction. It returns False and does nothing if the round is not at ``known.cursor``
        any more, or the crawl is not active. A round waits while its crawl is paused, and does not
        start a stopped crawl. With ``end`` the round is over. Raises UnknownCrawl.
        """

    def reopen(self, crawl: int, version: int) -> Crawl:
        """Note that URLs came to a crawl that was finished, or about to be, at ``version``.

        A finished crawl becomes active. A crawl that is active at ``version`` gets a higher
        version, so that a caller who is about to end the crawl does not. Any other crawl (paused,
        done at a limit, changed since) stays as it is. Returns the crawl after that. Raises
        UnknownCrawl.
        """

    def stored(self, crawl: int) -> int:
        """Return the pages (2xx) of a crawl with ``max_pages``; 0 if no commit has counted them
        yet."""

    def count_time(self, crawl: int, now_ms: int, most_ms: int) -> int:
        """Add the time since the last call, and return all milliseconds counted so far.

        A gap longer than ``most_ms`` was a stop or a pause and does not count. Several brokers may
        count at once: each moment is counted once. Raises UnknownCrawl.
        """

    def delete_crawl(self, crawl: int) -> None:
        """Delete the crawl and all its rows, in bounded steps; idempotent."""

    # -- deletions in the background
    def purges(self) -> list[Purge]:
        """Return the deletions under way, oldest first."""

    def add_purge(self, crawl: int, host: str = "") -> Purge:
        """Start the deletion of the URLs of ``host`` that wait, or of the whole crawl.

        A deleted crawl is unknown from now on, and its name is free. Idempotent. Raises
        UnknownCrawl.
        """

    def purge_size(self, purge: Purge) -> int:
        """Return how many rows are to be deleted: of the crawl, or of the host's overflow."""

    def note_purge(self, purge: int, removed: int, total: int = 0) -> None:
        """Note how many rows are deleted; the first ``total`` that is given stays."""

    def purge_step(self, purge: Purge) -> bool:
        """Delete some rows of a crawl and note the progress; return False when no row is left."""

    def end_purge(self, purge: int) -> None:
        """Record that a deletion is complete; idempotent."""

    # -- stored seeds
    def add_seeds(
        self,
        crawl: int,
        urls: Sequence[Admission],
        *,
        force: bool = False,
        claim: Callable[[int], None] | None = None,
    ) -> int:
        """Log a batch as pending; return its id.

        A crawl that was done, or is being stopped, becomes active again. ``claim`` is called with
        the id before anybody can find the batch pending. The call may come from another thread, and
        the commit may still fail afterwards.
        """

    def seeds_admitted(
        self, batch: int, tick: int = 0, epochs: Mapping[str, int] | None = None
    ) -> bool:
        """Record that a batch is in every partition: it is not pending any more. Idempotent.

        ``tick`` is the clock of the nodes when they admitted the batch. It returns False, and the
        batch stays pending, in two cases: the batch was stamped more than MARGIN before ``tick``,
        or one of the nodes now has a higher epoch than in ``epochs``. Then restamp it, and admit it
        again.
        """

    def restamp_seeds(self, batch: int) -> Stamp:
        """Give a batch the present stamp, and return the stamp; the batch is pending (again)."""

    def pending_seeds(self, limit: int = 100, after: int = 0) -> list[SeedBatch]:
        """Return batches that are pending, oldest first, beginning after batch ``after``."""

    def seeds(self, crawl: int) -> Iterator[SeedBatch]:
        """Stream all stored batches, oldest first."""

    # -- the replay log, read to refill a Redis: what was stamped ``since`` or later, in that order
    def replay_size(self, since: int) -> tuple[int, int, int]:
        """Return how many pages, final states and batches of seeds the replay log has."""

    def replay_marks(self, since: int) -> Iterator[list[Mark]]:
        """Stream what is settled, in chunks: pages, then final states."""

    def replay_links(self, since: int) -> Iterator[list[tuple[int, list[Admission]]]]:
        """Stream (crawl, links) of pages, in chunks."""

    def replay_seeds(self, since: int, *, force: bool) -> Iterator[SeedBatch]:
        """Stream batches that are forced, or that are not; pending ones too."""

    def stamps(self, crawl: int, fingerprints: Sequence[int]) -> dict[int, int]:
        """Return fingerprint → the latest stamp of its page and its final state, if it has
        either."""

    # -- the overflow: URLs beyond the frontier's memory budget
    def put_overflow(self, crawl: int, items: Sequence[Overflow]) -> None:
        """Add rows, by (crawl, fingerprint); a row that is there already waits again.

        A crawl that was finished becomes active.
        """

    def overflow(self, crawl: int, partition: int, host: str, limit: int) -> list[Overflow]:
        """Return a host's waiting rows, the best first: by level, then in order of arrival."""

    def overflow_taken(self, items: Sequence[Overflow], node: str, epoch: int) -> None:
        """Record that ``node`` has these rows in memory since its ``epoch``: they wait no more.

        Nothing changes if the node's epoch is higher by now. From then on a row is deleted when its
        page or final state is committed. A row whose page or final state is committed already is
        deleted now; that page or state gets a new stamp.
        """

    def overflow_hosts(self, crawl: int, partition: int, after: str, limit: int) -> list[str]:
        """Return names of hosts with waiting rows, in order, beginning after ``after``."""

    def overflow_places(self) -> list[tuple[int, int]]:
        """Return (crawl, partition) wherever rows of an active crawl wait."""

    def overflow_of(self, partition: int) -> Iterator[tuple[int, list[Overflow]]]:
        """Stream all rows of a partition as (crawl, some rows), waiting or not."""

    def overflow_since(self, partition: int, since: int) -> Iterator[tuple[int, list[Overflow]]]:
        """Stream only rows that wait since ``since`` (of the store's clock) or later."""

    def free_overflow(self, partition: int, since: int = 0) -> None:
        """Let rows wait again that a node has had in memory since ``since`` or later.

        No other rows are read.
        """

    # -- the calendar: when pages of crawls that begin again are asked for next
    def add_calendar(self, crawl: int, found: Sequence[Observation]) -> None:
        """Add URLs that belong into the crawl's calendar and have no row there; each is due in the
        next period."""

    def calendar_places(self) -> list[tuple[int, int]]:
        """Return each (crawl, partition) with due rows of an active crawl."""

    def calendar_due(
        self, crawl: int, partition: int, after: tuple[int, int, int], limit: int
    ) -> list[Due]:
        """Return due rows that wait, by date, host and fingerprint, beginning after ``after``."""

    def calendar_taken(self, crawl: int, rows: Sequence[Due], node: str, epoch: int) -> int:
        """Record that ``node`` has these rows in memory since its ``epoch``; return how many rows
        that are.

        A row is left out if its URL was fetched since the row was read; all rows are left out if
        the node's epoch is higher by now. A row waits again from its next commit on: see
        :meth:`commit`.
        """

    def drop_calendar(self, crawl: int, rows: Sequence[Due]) -> None:
        """Delete the rows in which nothing was noted since they were read."""

    def postpone_calendar(self, crawl: int, partition: int, row: Due) -> None:
        """A host is down: move its rows with the due date of ``row`` to the next period."""

    def free_calendar(self, partition: int, epoch: int) -> None:
        """Let rows wait again that a node has had in memory under an epoch before ``epoch``."""

    def planned(self, crawl: int, fingerprint: int) -> Planned | None:
        """Return when a URL is asked for again; None if it is not in its crawl's calendar."""

    # -- the worker's commit
    def commit(self, work: Commit) -> Stamp:
        """Write pages, attempts and finals in one transaction; return its stamp.

        The same records get a new stamp when they are written again.

        A page or final state replaces an older one of the same (crawl, fingerprint) and leaves a
        newer one alone, by ``fetched_ms`` or ``at_ms``. A page removes the URL's final state; a
        final state never removes a page. The state parked yields to a page and to any other final
        state, even to an older one.

        A page that was found unchanged stays as it is, and gets the present stamp. An older final
        state, or a parked one, is removed as for a new version.

        An attempt is keyed by (crawl, fingerprint, at_ms), so that writing it again changes
        nothing. The outcome of a hook is noted with the page that it ran on (see ``HookRun``).
        Pages with links make their crawl active again if it was finished.

        A crawl with ``max_pages`` never stores more pages (2xx): further pages are left out, and
        the stamp names them in ``refused``. A page that replaces another is not counted again. URLs
        parked by a released shape are left out in the same way.

        In a crawl with a calendar the row of each URL gets its next date, and waits. The date is in
        the next period, or later if the URL is gone. A URL that was gone several times, over
        several days, gets no date: the stamp names it as ``retired``. A late result changes no row
        that waits.
        """

    # -- pages whose hook failed
    def hook_counts(self, crawl: int) -> list[HookCount]:
        """Return failures by function and message, the commonest first; some hundreds at most.

        Pages with any other message are counted under ``other``.
        """

    def hook_failed_since(self, crawl: int, after_ms: int) -> tuple[int, int]:
        """Return how many pages have failures of functions after ``after_ms`` that were not mended
        since, and the moment of the latest (``after_ms`` if there is none)."""

    def hook_failures(
        self, crawl: int, function: str, message: str, *, after: str = "", limit: int = 100
    ) -> list[tuple[str, HookFailure]]:
        """Return (cursor, failure) of pages with this message after a cursor, in an order that
        stays.

        Raises ValueError for an invalid cursor.
        """

    def hook_pages(
        self, crawl: int, functions: Sequence[str], *, after: int | None = None, limit: int = 100
    ) -> list[int]:
        """Return fingerprints of pages after ``after`` on which one of ``functions`` failed, in
        order."""

    # -- workers that cannot import a crawl's hook
    def put_refusals(
        self, worker: str, host: str, refusals: Sequence[Refusal], until_ms: int
    ) -> None:
        """Replace what ``worker`` refuses."""

    def refusals(self, now_ms: int) -> list[tuple[int, HookRefusal]]:
        """Return (crawl, refusal) of the refusals that still count, by worker."""

    # -- blocks of hosts, which Redis has, too
    def put_block(self, host: str, until_ms: int, reason: str) -> None:
        """Record that ``host`` is blocked until ``until_ms`` (Unix time), unless it is blocked for
        longer."""

    def lift_block(self, host: str) -> None:
        """Forget the block of ``host``; idempotent."""

    def blocks(self, now_ms: int) -> list[tuple[str, int, str]]:
        """Return (host, until_ms, reason) of blocks still in force."""

    # -- operators' delays of hosts
    def put_delay(self, host: str, delay_ms: int) -> None:
        """Record the least delay of ``host``, which stays until 0 deletes it. Idempotent."""

    def delay(self, host: str) -> int:
        """Return the least delay of ``host`` in ms, 0 if none is set."""

    def delays(self) -> dict[str, int]:
        """Return host → least delay in ms, of all that have one."""

    # -- queries
    def page(self, crawl: int, fingerprint: int, *, detail: Detail = "body") -> StoredPage | None:
        """Return the latest version of a page, or None. Raises BodyAway if its file cannot be
        read."""

    def validators(self, crawl: int, fingerprints: Sequence[int]) -> dict[int, Validators]:
        """Return fingerprint → validators of the stored pages that are whole and have a 2xx status.

        A replica may answer: an outdated answer costs one fetch.
        """

    def with_page(self, crawl: int, fingerprints: Sequence[int]) -> frozenset[int]:
        """Return the fingerprints that have a page."""

    def history(self, crawl: int, fingerprint: int, limit: int = 20) -> list[Version]:
        """Return a page's fetches, the latest first; none for a URL without a page."""

    def body(self, crawl: int, digest: bytes, size: int) -> bytes | None:
        """Return a body of ``size`` bytes by its digest. Raises BodyAway.

        Returns None if no page and no stored version has the body.
        """

    def final(self, crawl: int, fingerprint: int) -> Final | None:
        """Return the final state of a URL, or None as long as it has none."""

    def attempts(self, crawl: int, fingerprint: int, limit: int = 20) -> list[Attempt]:
        """Return the attempts of a URL, the latest first."""

    def dead(self, crawl: int, limit: int = 100, after: str = "") -> list[tuple[str, Final]]:
        """Return dead letters as (cursor, final) after a cursor, in an order that stays."""

    def requeue_dead(
        self, crawl: int, limit: int = 10_000, *, before: int = NEVER
    ) -> SeedBatch | None:
        """Turn up to ``limit`` dead letters into one forced, pending seed batch.

        One transaction. Returns the batch, or None if there were no letters. With ``before`` only
        letters with an earlier stamp are taken. So a caller that requeues all letters comes to an
        end even if some die again meanwhile. :meth:`tick` returns a number that no letter has yet.
        """

    def parked_shapes(self, crawl: int, limit: int = 100) -> list[ParkedShape]:
        """Return the shapes that URLs are parked by, those with the most URLs first."""

    def release_parked(
        self, crawl: int, shape: str | None = None, *, limit: int = 10_000, before: int = NEVER
    ) -> SeedBatch | None:
        """Turn up to ``limit`` parked URLs (of a shape) into a batch, as :meth:`requeue_dead`
        does."""

    def counts(self, crawl: int) -> dict[str, int]:
        """Return the counts of the summary: pages, bytes, attempts, hosts, and final states.

        Only pages with a 2xx status count, and the bytes of their bodies. The states are dead,
        gone, excluded and parked.
        """

    def slowest_hosts(self, crawl: int, limit: int = 5) -> list[tuple[str, float, int]]:
        """Return (host, mean seconds of an answer, number of answers), slowest first."""

    # -- streams; a replica may answer them, so nothing is decided by them
    def pages(
        self,
        crawl: int,
        wanted: PageFilter = EVERY,
        *,
        detail: Detail = "text",
        after: str = "",
    ) -> Iterator[tuple[str, StoredPage]]:
        """Stream (cursor, page) in the order of storing, in constant memory, after a cursor.

        A page that is stored again meanwhile may come again; no page that was stored before is left
        out. Cursors are short texts of letters, digits, "-" and ".". Raises ValueError for an
        invalid cursor, BodyAway for a body whose file cannot be read.
        """

    def page_steps(
        self,
        crawl: int,
        wanted: PageFilter = EVERY,
        *,
        detail: Detail = "text",
        after: str = "",
        window: int = STEP_ROWS,
        newest: bool = False,
    ) -> Iterator[Step]:
        """Stream pages in steps, for a caller that may not wait until something is found.

        A step reads up to ``window`` rows (of the crawl, or of the wanted host), even if ``wanted``
        selects none of them. The list is complete when the steps end. With ``newest`` the order is
        the opposite one, and pages that are stored meanwhile are left out.
        """

    def finals(
        self, crawl: int, since_ms: int = 0, *, after: str = ""
    ) -> Iterator[tuple[str, Final]]:
        """Stream (cursor, final) of final states reached at ``since_ms`` or later.

        As with pages, no statement reads more than :data:`STEP_ROWS` rows.
        """

    # -- the journal by months
    def prepare_months(self, now_ms: int) -> None:
        """Make room for attempts of this month (UTC) and the next ones; idempotent and cheap."""

    # -- retention: each step is a transaction of some milliseconds; the caller may stop after any
    def drop_months(self, before_ms: int) -> Iterator[int]:
        """Drop the journal's whole months that ended by ``before_ms``; yield how many each step
        dropped.

        Sums over the journal (``counts``, ``slowest_hosts``) stay. On MySQL a step is a month.
        """

    def drop_successes(self, before_ms: int) -> Iterator[int]:
        """Drop attempts that are older and brought a page; yield how many each step dropped.

        A late attempt may stay longer. On MySQL attempts stay until their whole month is older.
        """

    def drop_versions(self, before_ms: int) -> Iterator[int]:
        """Drop older fetches from the histories of pages, but never the current ones."""

    def drop_expired(self, now_ms: int) -> Iterator[int]:
        """Drop blocks that ended a day ago, and refusals that no longer count."""

    def drop_seeds(self, batches: Sequence[tuple[int, int]]) -> int:
        """Drop batches, by (id, stamp), that are not pending and were not stamped again since."""

    # -- what the coordinator keeps: see greencrawl.broker.tasks.coordinator
    def put_samples(self, samples: Sequence[Counted]) -> None:
        """Write samples, by (crawl, minute); an existing sample stays as it is.

        No sample is written for a deleted crawl. Idempotent.
        """

    def samples(self, crawl: int, since_ms: int = 0, points: int = 1000) -> list[Counted]:
        """Return samples since a moment (Unix time), and the last one before it, in order.

        If there are more than ``points`` (2 or more), they are thinned evenly.
        """

    def drop_samples(self, before_ms: int) -> Iterator[int]:
        """Drop older samples; yield how many each step dropped."""

    def alerts(self) -> list[Alert]:
        """Return alerts that are not over, the oldest first; some are too young to be told yet."""

    def untold_alerts(self) -> list[Alert]:
        """Return alerts with a message that was not delivered, the oldest first."""

    def put_alerts(self, alerts: Sequence[Alert]) -> None:
        """Write alerts, by (kind, subject, since_ms); an existing alert keeps its ``told``.

        Idempotent.
        """

    def note_told(self, alert: Alert) -> None:
        """Note how many messages of an alert were delivered. Idempotent."""

    def forget_alerts(self, alerts: Sequence[Alert]) -> None:
        """Delete alerts that need no message. Idempotent."""

    def drop_alerts(self, before_ms: int) -> Iterator[int]:
        """Drop alerts that ended earlier; yield how many each step dropped."""

    # -- monitoring
    def size(self) -> int:
        """Return about how many bytes the store takes, without bodies in files.

        It may take a while on MySQL.
        """

    def lags(self) -> dict[str, float | None]:
        """Return replica → seconds that it lags at most, None where that is not known.

        The more often this is called, the more exact the result. Without replicas it is empty.
        """

    def close(self) -> None:
        """Free connections and files. Idempotent; every other call raises Closed from then on."""
