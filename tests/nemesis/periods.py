"""Crawls that begin again: each due URL is requested once a period, and the calendar is right.

The targets' log shows which URLs were requested when, SQL when each period began and ended and the
content of the calendar, Redis the tasks on their way. The judges are functions; :class:`Calendars`
observes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic, time
from typing import Any

import redis

from tests.nemesis import reading
from tests.nemesis.checker import Finding, Hit
from tests.nemesis.reading import Sql
from tests.nemesis.world import NODES, World

CONFIRM_SECONDS = 6.0
"""A finding must last this long if it comes from reads of Redis and SQL, one after another: tasks
move between these reads."""
DOWN_FAILURES = 9
"""If a host has failed this many times in a row, its other pages wait for the next period."""
RETIRED_S = 2**32 - 1
_REFETCH = re.compile(rb".\d+,\d+,\d+,\d+,(?!00\d)\d+")
"""The start of the value of a task that fetches a known page again: level, counts, fingerprint."""


@dataclass(frozen=True)
class Period:
    """A period; ``ended`` is 0 while it is under way. Times are those of ``time.monotonic()``,
    except ``started_s``."""

    started: float
    ended: float
    started_s: int


@dataclass(frozen=True)
class Row:
    """A row of the calendar: when its URL is due; the epoch under which the URL was ``queued``, 0
    if it waits; and when it was fetched last."""

    due_s: int
    queued: int
    checked_ms: int


@dataclass
class Plan:
    """A crawl that begins again, at one moment in SQL. By fingerprint: ``pages`` and ``gone`` with
    their URLs, and the ``rows`` of its calendar."""

    id: int
    name: str
    state: str
    periods: list[Period] = field(default_factory=list)
    pages: dict[int, str] = field(default_factory=dict)
    gone: dict[int, str] = field(default_factory=dict)
    rows: dict[int, Row] = field(default_factory=dict)

    @property
    def known(self) -> dict[int, str]:
        """Return all fingerprints that must have a row, if the calendar takes all depths."""
        return {**self.gone, **self.pages}

    def ended_by(self, at: float) -> Plan:
        """Return the plan without the periods that ended later."""
        return replace(self, periods=[one for one in self.periods if one.ended <= at])

    def url(self, number: int) -> str:
        """Return the URL of a fingerprint, if it is known."""
        return self.known.get(number, f"fingerprint {number}")


# --- reading ---------------------------------------------------------------------------------


def read(sql: Sql, crawl: int) -> Plan | None:
    """Read all of a plan in one transaction; None if there is no such crawl. Raises OSError."""
    epoch = time() - monotonic()
    with sql.transaction() as db:

        def rows(text: str) -> Any:
            db.execute(text)
            return db.fetchall()

        mark = int(crawl)
        found = rows(f"SELECT name, state FROM crawls WHERE id = {mark} AND deleted = 0")
        if not found:
            return None
        plan = Plan(mark, _text(found[0][0]), _text(found[0][1]))
        for started_ms, ended_ms in rows(
            f"SELECT started_ms, ended_ms FROM periods WHERE crawl = {mark} ORDER BY number"
        ):
            ended = ended_ms / 1000 - epoch if ended_ms else 0.0
            plan.periods.append(Period(started_ms / 1000 - epoch, ended, started_ms // 1000))
        text = f"SELECT fingerprint, url FROM pages WHERE crawl = {mark}"
        if sql.is_mysql:
            text = (
                "SELECT p.fingerprint, c.url FROM pages p JOIN contents c ON c.crawl = p.crawl "
                f"AND c.place = p.place AND c.fingerprint = p.fingerprint WHERE p.crawl = {mark}"
            )
        plan.pages = {int(number): _text(url) for number, url in rows(text)}
        text = f"SELECT fingerprint, url FROM finals WHERE crawl = {mark} AND state = 'gone'"
        plan.gone = {int(number): _text(url) for number, url in rows(text)}
        text = f"SELECT fingerprint, due_s, queued, checked_ms FROM calendar WHERE crawl = {mark}"
        plan.rows = {int(number): Row(*map(int, more)) for number, *more in rows(text)}
        return plan


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@dataclass
class Tasks:
    """The number of a crawl's tasks of each URL; ``refetches`` are those that fetch known pages
    again."""

    of: Counter[str] = field(default_factory=Counter)
    refetches: Counter[str] = field(default_factory=Counter)

    def note(self, host: bytes, value: bytes) -> None:
        """Add one."""
        url = f"http://{host.decode()}{value[value.index(b'h/') + 1 :].decode()}"
        self.of[url] += 1
        self.refetches[url] += _REFETCH.match(value) is not None


def note_tasks(found: Tasks, client: redis.Redis, crawl: int) -> None:
    """Read all tasks of a crawl at a node: leased, to be tried later, and waiting. Raises
    redis.RedisError.

    Keys are listed first and then read in one transaction, in their state at one moment. A task
    that has moved to a newer key is missed, and none is counted twice.
    """
    at = client.connection_pool.connection_kwargs
    raw = redis.Redis(host=at["host"], port=at["port"], socket_timeout=reading.READ_SECONDS)
    name = str(crawl).encode()
    read = raw.pipeline(transaction=True)
    kinds = {
        b"s:*": read.hgetall, b"later": lambda key: read.zrange(key, 0, -1),
        b"w:%s:*" % name: lambda key: read.lrange(key, 0, -1), b"h:*": read.get,
    }  # fmt: skip
    keys = {kind: list(raw.scan_iter(b"gc:{*}:" + kind, count=2000)) for kind in kinds}
    for kind, names in keys.items():
        for key in names:
            kinds[kind](key)
    replies: Any = iter(read.execute())
    sessions, later, lists, hosts = (
        [(key, next(replies)) for key in names] for names in keys.values()
    )
    for _, record in sessions:
        if record.get(b"crawl") == name:
            for f, value in record.items():
                if f[:1] == b"t" and f[1:].isdigit():
                    found.note(record[b"host"], value)
    for _, members in later:
        for mark, host, value in (member.split(b"\n", 2) for member in members):
            if mark == name:
                found.note(host, value)
    for key, entries in lists:
        host = key.partition(b":w:")[2].partition(b":")[2].rpartition(b":")[0]
        for entry in entries:
            found.note(host, b"0" + entry)
    for key, packed in hosts:
        queue = reading.queues_of(packed).get(str(crawl), {})
        for value in queue.get("e", ()):
            found.note(key.partition(b":h:")[2], value.encode())


# --- judges of the calendar ------------------------------------------------------------------

Wrong = dict[str, set[int]]
"""Fingerprints by what is wrong with them."""


def broken(plan: Plan) -> Wrong:
    """Find what no transaction may ever leave behind: a page without a row; or, while the crawl
    rests, a row that is due or on its way."""
    wrong = {"are known and have no row": plan.known.keys() - plan.rows.keys()}
    if plan.state == "resting":
        last = plan.periods[-1].started_s
        waiting = {number for number, row in plan.rows.items() if not row.queued}
        wrong["are on their way though the crawl rests"] = plan.rows.keys() - waiting
        wrong["are due though the crawl rests"] = {
            number for number in waiting if plan.rows[number].due_s <= last
        }
    return {what: numbers for what, numbers in wrong.items() if numbers}


def doubled(plan: Plan, there: Tasks) -> Wrong:
    """Find URLs of which Redis has more than one task at one moment."""
    numbers = {number for number, url in plan.known.items() if there.of.get(url, 0) > 1}
    return {"have more than one task": numbers} if numbers else {}


def suspicious(before: Plan, there: Tasks, after: Plan) -> Wrong:
    """Find URLs that are on their way ``before`` and ``after`` Redis was read, and of which Redis
    had no task."""
    stays = {
        number
        for number, row in before.rows.items()
        if row.queued and after.rows.get(number) == row and before.url(number).startswith("http")
    }
    numbers = {number for number in stays if not there.of.get(before.url(number))}
    return {"are on their way, and nothing waits": numbers} if numbers else {}


class Suspects:
    """Findings and their start: a finding counts once it has lasted for a while without a break."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, int, int], float] = {}

    def confirmed(self, wrong: Wrong, plan: Plan, at: float) -> Wrong:
        """Return those that lasted for :data:`CONFIRM_SECONDS`, with no fetch in between."""
        unfetched = Row(0, 0, 0)
        keys = {
            (what, number, plan.rows.get(number, unfetched).checked_ms)
            for what, numbers in wrong.items()
            for number in numbers
        }
        self._since = {key: self._since.get(key, at) for key in keys}
        found: Wrong = {}
        for (what, number, _), since in self._since.items():
            if at - since >= CONFIRM_SECONDS:
                found.setdefault(what, set()).add(number)
        return found


def findings(plan: Plan, wrong: Wrong, at: float) -> list[Finding]:
    """Return one finding for each kind of error."""
    return [
        Finding(
            "calendar",
            f"crawl {plan.name}, {plan.state}, period {len(plan.periods)}: {len(numbers)} URLs "
            f"{what}: {', '.join(sorted(map(plan.url, numbers))[:3])}",
            at,
        )
        for what, numbers in wrong.items()
    ]


# --- judges of the log -----------------------------------------------------------------------


def turns(plan: Plan, seeds: Collection[str], *, all_pages: bool) -> dict[str, list[float]]:
    """Return when each place may be requested once more: at each start of a period the known
    places, or only the seeds. Places that may not be requested again are left out."""
    starts = [period.started for period in plan.periods[1:]]
    urls = {*seeds, *(plan.known.values() if all_pages else ())}
    return {place_of(url): starts for url in urls}


def passed_over(
    plan: Plan,
    hits: Iterable[Hit],
    seeds: Collection[str],
    failed: Mapping[str, int],
    *,
    all_pages: bool,
) -> list[Finding]:
    """Return pages that were known when a period began and were not requested until it ended.
    ``failed`` are failed tries by URL; such URLs are left out, and so are hosts with many
    failures."""
    times: dict[str, list[float]] = defaultdict(list)
    for hit in hits:
        times[hit.host + hit.target].append(hit.arrived)
    down = Counter[str]()
    for url, count in failed.items():
        down[place_of(url).partition("/")[0]] += count
    found = []
    wanted = {*(plan.pages.values() if all_pages else ()), *(set(seeds) & {*plan.pages.values()})}
    for number, period in enumerate(plan.periods[1:], 2):
        if not period.ended:
            continue
        missed = []
        for url in sorted(wanted - failed.keys()):
            log = times[place_of(url)]
            if down[place_of(url).partition("/")[0]] >= DOWN_FAILURES or not log:
                continue
            if min(log) < period.started and not _within(log, period):
                missed.append(url)
        if missed:
            text = (
                f"crawl {plan.name}: in period {number} nobody asked for {len(missed)} of "
                f"{len(wanted)} known pages: {', '.join(missed[:3])}"
            )
            found.append(Finding("passed over", text, period.ended))
    return found


def _within(log: Iterable[float], period: Period) -> bool:
    return any(period.started <= at <= period.ended for at in log)


def place_of(url: str) -> str:
    """Return the address and the path of a URL, as in the targets' log."""
    host, _, path = url.removeprefix("http://").partition("/")
    return f"{host.partition(':')[0]}/{path}"


# --- looking ---------------------------------------------------------------------------------


class Calendars:
    """Observes the crawls that begin again, by name, with their depths: ``all`` pages, or seeds."""

    def __init__(
        self, world: World, crawls: Mapping[str, object], find: Callable[[Finding], None]
    ) -> None:
        self.crawls = dict(crawls)
        self.plans: dict[str, Plan] = {}
        """The last state of each crawl."""
        self.looks = 0
        self._world, self._find = world, find
        self._suspects: dict[str, Suspects] = defaultdict(Suspects)
        self._told: set[tuple[str, str]] = set()

    def all_pages(self, name: str) -> bool:
        """Return whether the crawl's calendar has all of its pages."""
        return self.crawls.get(name) == "all"

    def look(self, ids: Mapping[str, int]) -> None:
        """Observe all existing crawls once. Raises OSError if SQL is away."""
        for name in sorted(self.crawls.keys() & ids.keys()):
            self._look_at(name, ids[name])

    def _look_at(self, name: str, crawl: int) -> None:
        sql = self._world.sql()
        before = read(sql, crawl)
        if before is None:
            return
        self.plans[name] = before
        if not self.all_pages(name):
            return
        self.looks += 1
        at = monotonic()
        self._tell(before, broken(before), at)
        there = Tasks()
        try:
            for node in NODES:
                client = self._world.master(node).client
                if not reading.is_told(client):
                    return
                note_tasks(there, client, crawl)
        except (redis.RedisError, OSError):
            return  # a node is away: its tasks are unknown
        self._tell(before, doubled(before, there), at)
        after = read(sql, crawl)
        if after is None or after.state != before.state:
            return
        wrong: Wrong = {}
        if before.state in ("active", "resting"):
            wrong = suspicious(before, there, after)
        self._tell(before, self._suspects[name].confirmed(wrong, before, at), at)

    def _tell(self, plan: Plan, wrong: Wrong, at: float) -> None:
        """Report each kind of error once a crawl: later looks find it again with other URLs."""
        fresh = {what: some for what, some in wrong.items() if (plan.name, what) not in self._told}
        self._told |= {(plan.name, what) for what in fresh}
        for finding in findings(plan, fresh, at):
            self._find(finding)


def rests_after(plan: Plan, healed: float) -> bool:
    """Return whether the crawl rests after a whole period that began after ``healed``."""
    last = plan.periods[-1]
    return plan.state == "resting" and last.started > healed and last.ended > 0


def judge_log(
    calendars: Calendars,
    hits: Sequence[Hit],
    seeds: Mapping[str, Collection[str]],
    failed: Mapping[str, int],
    names: Container[str],
) -> list[Finding]:
    """Return findings about pages that the crawls in ``names`` passed over. ``seeds`` has the seeds
    of each crawl."""
    return [
        finding
        for name, plan in sorted(calendars.plans.items())
        if name in names
        for finding in passed_over(
            plan, hits, seeds.get(name, ()), failed, all_pages=calendars.all_pages(name)
        )
    ]
