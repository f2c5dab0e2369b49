"""The live display of a crawl: a panel on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from greencrawl.broker.api.messages import PageVersion
from greencrawl.schema.clock import Clock, monotonic
from greencrawl.schema.records import (
    WITHHELD,
    Alert,
    CrawlStats,
    HookCount,
    HostState,
    NodeAway,
    NodeFull,
    PutOff,
    Stats,
    Version,
)

PLAIN_SECONDS = 5.0
"""Seconds between two lines if there is no terminal."""

RATE_SECONDS = 10.0
"""Seconds over which pages a second are a mean."""

TRIES = "failed tries"
"""What a broker counts while a crawl goes on: a URL that is tried again may yet be stored."""

SLOWEST = 3
HOOKS = 3
REFUSED = 3


class Rate:
    """How often pages were stored, a second, over the last ``RATE_SECONDS``."""

    def __init__(self, clock: Clock = monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def update(self, fetched: int) -> float:
        """Note the counter; return the rate, 0 before there are two readings."""
        now = self._clock()
        self._seen.append((now, fetched))
        while len(self._seen) > 2 and now - self._seen[0][0] > RATE_SECONDS:
            self._seen.popleft()
        began, first = self._seen[0]
        return max(0.0, (fetched - first) / (now - began)) if now > began else 0.0


def number_of(count: int, what: str) -> str:
    """Return ``1 page`` or ``1,200 pages`` of the noun ``page``."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def away_text(node: NodeAway) -> str:
    """Return a line about a Redis node that does not answer, with the time since when."""
    since = f" since {moment(node.since_ms)}" if node.since_ms else ""
    return f"{printable(node.why)}; not counted{since}: its hosts wait, all others go on"


def full_text(node: NodeFull) -> str:
    """Say that a Redis node is at or near its memory limit, and what to set."""
    near = "near" if node.used_bytes < node.limit_bytes else "at"
    return (
        f"Redis at {printable(node.node)} is {near} its memory limit: it uses "
        f"{size(node.used_bytes)} of {size(node.limit_bytes)}; new URLs wait in the store, and "
        "seeds are refused; if that lasts, set its maxmemory higher"
    )


def alert_text(alert: Alert) -> str:
    """Return an open alert, and since when."""
    return f"alert: {printable(alert.text)} ({alert.kind}, since {moment(alert.since_ms)})"


def moment(ms: int) -> str:
    """Return epoch milliseconds as a date and time in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def printable(text: str) -> str:
    """Return ``text`` on one line without control characters: some of it comes from foreign
    servers."""
    return "".join(char if char.isprintable() else " " for char in text)


def size(count: float) -> str:
    """Return bytes for people: ``1.5 MB`` (powers of 1000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def duration(seconds: float) -> str:
    """Return ``0:07``, ``12:34`` or ``1:02:03``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def change_text(version: PageVersion | Version) -> str:
    """Return whether a fetch is the first that is known of its page, or has changed it."""
    return "first" if version.first else "changed" if version.changed else "unchanged"


def failures_text(failures: dict[str, int]) -> str:
    """Return ``gone 3, timeout 1``, the commonest first; "none" if there are none."""
    common = sorted(failures.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{kind} {count:,}" for kind, count in common if count) or "none"


_PUT_OFF: dict[str, str] = {
    PutOff.SHARE: "an address or domain had used up its share",
    PutOff.LOOK_UP: "slow DNS look-ups",
    PutOff.MEMORY: "no memory for an answer",
    PutOff.SLOW: "too many slow hosts",
    PutOff.LOGIN: "a login failed or was lost",
    PutOff.ROBOTS: "the robots.txt of another host could not be fetched",
}


def put_off_text(put_off: dict[str, int]) -> str:
    """Return ``7 sessions, their URLs wait (slow DNS look-ups 5, …)``, the commonest first."""
    said = {_PUT_OFF.get(by, by): count for by, count in put_off.items()}
    total = sum(put_off.values())
    sessions = f"{total:,} session{'s' * (total != 1)}"
    return f"{sessions}, their URLs went back ({failures_text(said)})"


def failed(outcomes: dict[str, int]) -> dict[str, int]:
    """Return the kinds of outcomes that are failures."""
    return {kind: count for kind, count in outcomes.items() if kind not in WITHHELD}


def failures_of(stats: CrawlStats) -> dict[str, int]:
    """Return the failures of a crawl by kind: of URLs, or if these were not counted, of tries."""
    return failed(stats.failures) if stats.final_states is None else stats.final_states


def withheld(outcomes: dict[str, int]) -> dict[str, int]:
    """Return the kinds of outcomes of pages that are stored without their content."""
    return {kind: count for kind, count in outcomes.items() if kind in WITHHELD and count}


def withheld_text(stats: CrawlStats) -> str:
    """Return how many pages of a crawl are stored without their content, by the reason; "" for
    none."""
    some = withheld(stats.failures)
    return f"content not kept: {failures_text(some)}" if some else ""


def hooks_text(hooks: Sequence[HookCount]) -> str:
    """Return ``on_page on 3 pages (KeyError: 'price'), …``, the commonest first; "" for none."""
    shown = [
        f"{one.function} on {one.pages:,} page{'s' * (one.pages != 1)} ({printable(one.message)})"
        for one in hooks[:HOOKS]
    ]
    more = [f"{len(hooks) - HOOKS:,} other messages"] if len(hooks) > HOOKS else []
    return ", ".join(shown + more)


def refused_text(stats: CrawlStats) -> str:
    """Say which workers do not take the crawl's hook, and why; "" for none."""
    shown = [
        f"worker {one.worker} on machine {one.host} does not take hook {one.hook}: {one.reason}"
        for one in stats.refused[:REFUSED]
    ]
    if len(stats.refused) > REFUSED:
        shown.append(f"nor can {len(stats.refused) - REFUSED:,} others")
    if stats.stuck:
        shown.insert(0, "no worker can take the crawl; it is tried again every 20 s")
    return printable("; ".join(shown))


def slowest_text(hosts: Sequence[HostState]) -> str:
    """Return ``example.org 1.20 s, …``, hosts without a measured latency left out."""
    shown = [f"{host.host} {host.latency:.2f} s" for host in hosts if host.latency > 0]
    return ", ".join(shown[:SLOWEST]) or "none yet"


def rest_text(stats: Stats) -> str:
    """Return ``3 hosts rest for 41 s after a crash``, "" if none does."""
    count, seconds = stats.rest_hosts, max(round(stats.rest_seconds), 1)
    hosts = "1 host rests" if count == 1 else f"{count:,} hosts rest"
    return f"{hosts} for {seconds} s after a crash" if count else ""


def workers_text(stats: Stats) -> str:
    """Return a line if URLs wait and no worker is there, or if processes share an id; else ""."""
    warnings = []
    open_ = any(one.state == "active" and one.waiting + one.overflow for one in stats.crawls)
    if stats.workers == 0 and open_ and not any(one.leased for one in stats.crawls):
        warnings.append(
            "no worker takes URLs, so the waiting ones are not fetched: none is running, or all "
            "are paused or drained (see `greencrawl nodes`)"
        )
    ids = sorted({printable(name.rpartition("-")[0] or name) for name in stats.claimed_twice})
    if ids:
        warnings.append(
            f"worker id claimed twice: {', '.join(ids)}; give each worker a"
            " GREENCRAWL_WORKER_ID of its own"
        )
    return "; ".join(warnings)


def line(stats: CrawlStats, rate: float, seconds: float) -> str:
    """Return the plain line: everything in the panel except the slowest hosts."""
    hooks = f"; hook failed: {hooks_text(stats.hooks)}" if stats.hooks else ""
    parked = f"{stats.parked:,} parked, " if stats.parked else ""
    rewritten = f"; links rewritten: {stats.rewritten:,}" if stats.rewritten else ""
    put_off = f"; put off: {put_off_text(stats.put_off)}" if stats.put_off else ""
    kept = f"; {text}" if (text := withheld_text(stats)) else ""
    return (
        f"{duration(seconds)}  {stats.stored:,} pages stored, "
        f"{stats.waiting + stats.overflow:,} waiting, {stats.leased:,} in flight, "
        f"{stats.later:,} to retry, {parked}{rate:.1f} pages/s, "
        f"{size(stats.bytes)} transferred, {TRIES}: {failures_text(failed(stats.failures))}"
        f"{put_off}{hooks}{rewritten}{kept}"
    )


def panel(
    stats: CrawlStats, rate: float, seconds: float, slowest: Sequence[HostState], note: str = ""
) -> RenderableType:
    """Return the live panel: a heading, counts in two columns, failures, slowest hosts, a note."""
    table = Table.grid(padding=(0, 2))
    for _ in range(2):
        table.add_column()
        table.add_column(justify="right")
    table.add_row("pages stored", f"{stats.stored:,}", "pages/s", f"{rate:.1f}")
    table.add_row(
        "waiting", f"{stats.waiting + stats.overflow:,}", "transferred", size(stats.bytes)
    )
    table.add_row("in flight", f"{stats.leased:,}", "retries later", f"{stats.later:,}")
    table.add_row("hosts", f"{stats.hosts:,}", "dead letters", f"{stats.dead:,}")
    if stats.parked:
        table.add_row("parked", f"{stats.parked:,}", "", "")
    rows: list[RenderableType] = [
        Text.assemble((f"crawl {stats.crawl}", "bold green"), f"  {duration(seconds)}"),
        table,
        Text(f"{TRIES}: {failures_text(failed(stats.failures))}"),
        Text(f"slowest hosts: {slowest_text(slowest)}"),
    ]
    if stats.put_off:
        rows.append(Text(f"put off: {put_off_text(stats.put_off)}"))
    if stats.rewritten:
        rows.append(Text(f"links rewritten by normalise: {stats.rewritten:,}"))
    if text := withheld_text(stats):
        rows.append(Text(text))
    if stats.hooks:
        rows.append(Text(f"hook failed: {hooks_text(stats.hooks)}", style="yellow"))
    if note:
        rows.append(Text(note, style="yellow"))
    return Group(*rows)


class Display:
    """Shows a crawl's progress on ``console`` until the block ends."""

    def __init__(self, console: Console, clock: Clock = monotonic) -> None:
        self._console = console
        self._clock = clock
        self._began = clock()
        self._rate = Rate(clock)
        self._printed = float("-inf")
        self._note = self._key = ""
        self._shown: tuple[CrawlStats, float, Sequence[HostState]] | None = None
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def seconds(self) -> float:
        """Return the seconds since the display was made."""
        return self._clock() - self._began

    def show(self, stats: CrawlStats, slowest: Sequence[HostState] = ()) -> None:
        """Show the crawl as it is now. Cheap to call often; the end is always shown."""
        rate = self._rate.update(stats.fetched)
        self._shown = stats, rate, slowest
        if self._live is not None:
            self._draw(self._live)
        elif stats.state == "done" or self._clock() - self._printed >= PLAIN_SECONDS:
            self._printed = self._clock()
            self.say(line(stats, rate, self.seconds))

    def say(self, text: str) -> None:
        """Print a line that stays; on a terminal it is above the numbers."""
        self._console.print(text, soft_wrap=True, markup=False, highlight=False)

    def note(self, text: str, key: str = "") -> None:
        """Show a text beside the numbers ("" removes it); without a terminal print it once.

        ``key`` identifies a text of which only the numbers change. On a terminal the text is
        shown at once, even if there are no numbers.
        """
        key = key or text
        if text and key != self._key and self._live is None:
            self.say(text)
        changed, self._note, self._key = text != self._note, text, key
        if changed and self._live is not None:
            self._draw(self._live)

    def _draw(self, live: Live) -> None:
        if self._shown is None:
            live.update(Text(self._note, style="yellow"), refresh=True)
        else:
            stats, rate, slowest = self._shown
            live.update(panel(stats, rate, self.seconds, slowest, self._note), refresh=True)


def again_texts(one: CrawlStats) -> list[str]:
    """Return the period of a crawl that begins again, and the rounds that are under way."""
    said = []
    if one.state == "resting":
        number = f"; period {one.period.number} is over" if one.period else ""
        said.append(f"rests until {moment(one.wakes_ms)}{number}")
    elif one.period is not None and not one.period.ended_ms:
        said.append(
            f"period {one.period.number} is under way since {moment(one.period.started_ms)}"
        )
    for found in one.rounds:
        of = f" of {found.total:,}" if found.total >= 0 else ""
        verb = "read again from what is stored" if found.kind == "read" else "asked for again"
        said.append(f"{found.why}: {found.queued:,}{of} {verb}")
    return said
