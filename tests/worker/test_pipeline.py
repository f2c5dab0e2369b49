"""The life of a task, from lease to result, on a fetcher and stores made of dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gevent
import msgspec
import pytest
from gevent.event import Event

from greencrawl.broker.frontier import Mode
from greencrawl.schema.errors import Unavailable, UnknownCrawl
from greencrawl.schema.net import scope
from greencrawl.schema.net.request import crawl_headers
from greencrawl.schema.net.urls import CANONICALISER, fingerprint
from greencrawl.schema.records import (
    Admission,
    CloseItem,
    Crawl,
    CrawlOptions,
    Dead,
    Done,
    Failure,
    FailureKind,
    Fetched,
    HookRun,
    HostReport,
    Retry,
    Session,
    StoredPage,
    Task,
    TaskKind,
    Validators,
)
from greencrawl.schema.records.auth import Form, Source
from greencrawl.store.base import Detail
from greencrawl.store.errors import BodyAway
from greencrawl.store.rows import is_page
from greencrawl.worker import hooks, retry
from greencrawl.worker.auth import Judge
from greencrawl.worker.crawls import CrawlContext
from greencrawl.worker.delivery.attempts import Journal
from greencrawl.worker.delivery.results import Result, Results
from greencrawl.worker.extract.listing import Listing
from greencrawl.worker.extract.main import available
from greencrawl.worker.extract.main.library import extract
from greencrawl.worker.hooks import Hooks
from greencrawl.worker.http.client import LeaseExpired
from greencrawl.worker.kernels.choosing import read_in_quarantine
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.kernels.visit import TaskVisit
from greencrawl.worker.link_checker import MAX_REDIRECTS
from greencrawl.worker.pipeline import Pipeline
from greencrawl.worker.process.costly import PARKED_AFTER
from greencrawl.worker.process.crash_record import CrashRecord, Suspect
from greencrawl.worker.process.guarded import Guarded
from greencrawl.worker.process.quarantine import DiedInQuarantine, NoProcess
from greencrawl.worker.robots import parser
from greencrawl.worker.robots.cache import ASK_AGAIN_SECONDS, RobotsRules
from greencrawl.worker.session.fetcher import CROWDED_SECONDS, Visit
from greencrawl.worker.session.held import HeldSession
from greencrawl.worker.session.memory_budget import MemoryBudget, MemoryTimeout
from tests.worker.extract.main.test_main_text import ARTICLE, STORY

TOKEN = "00000000000000aa"
Answer = Fetched | Failure | Exception


def html(body: str = "", **headers: str) -> Fetched:
    named = {"content-type": "text/html", **{k.replace("_", "-"): v for k, v in headers.items()}}
    return Fetched("", 200, named, body.encode(), fetched_ms=5, wire_bytes=len(body))


def status(code: int, **headers: str) -> Fetched:
    return Fetched("", code, {k.replace("_", "-"): v for k, v in headers.items()}, b"")


def _set() -> Event:
    event = Event()
    event.set()
    return event


@dataclass
class Site:
    """It answers by URL, otherwise with 404, and notes all requests with their headers."""

    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    meanwhile: Callable[[str], None] = lambda _: None

    def fetch(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        max_body_bytes: int,
        deadline: float,
        method: str = "GET",
        body: bytes = b"",
        caps: object = None,
        watch: object = None,
        pack: bool = False,
    ) -> Fetched | Failure:
        self.asked.append(url)
        self.headers.append(headers)
        self.meanwhile(url)
        answer = self.answers.get(url, status(404))
        if isinstance(answer, Exception):
            raise answer
        return msgspec.structs.replace(answer, url=url) if isinstance(answer, Fetched) else answer

    @property
    def pages(self) -> list[str]:
        return [url for url in self.asked if not url.endswith("/robots.txt")]


@dataclass
class Stores:
    """A double of store, frontier and writer in one class."""

    crawl_: Crawl
    robots: dict[str, bytes] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    deleted: bool = False
    away: int = 0
    asked: list[Admission] = field(default_factory=list)
    answer: Callable[[Admission], None] | None = None
    stored: dict[int, StoredPage] = field(default_factory=dict)
    recalled: list[Admission] = field(default_factory=list)
    room: Event = field(default_factory=_set)
    refuses: str = ""
    version: int = CANONICALISER

    def crawl(self, name_or_id: str | int) -> Crawl:
        if self.deleted:
            raise UnknownCrawl("1")
        if self.away:
            self.away -= 1
            raise Unavailable("store")
        return self.crawl_

    def add_roots(self, crawl: int, roots: list[str]) -> Crawl:
        old = self.crawl_
        self.crawl_ = msgspec.structs.replace(
            old, roots=(*old.roots, *roots), revision=old.revision + 1
        )
        return self.crawl_

    def page(self, crawl: int, fingerprint: int, *, detail: Detail = "body") -> StoredPage | None:
        return self.stored.get(fingerprint)

    def with_page(self, crawl: int, fingerprints: Sequence[int]) -> frozenset[int]:
        return frozenset(fingerprints) & self.stored.keys()

    def validators(self, crawl: int, fingerprints: Sequence[int]) -> dict[int, Validators]:
        known = [number for number in fingerprints if number in self.stored]
        return {number: Validators(self.stored[number].headers["etag"]) for number in known}

    def recall(self, page: StoredPage) -> None:
        self.recalled += page.links

    def fingerprint(self, url: str) -> int:
        return fingerprint(url, 0, self.version)

    def robots_get(self, origin: str) -> bytes | None:
        if self.refuses == "away":
            raise Unavailable("redis")
        return self.robots.get(origin)

    def robots_put(self, origin: str, value: bytes, seconds: int, *, needed: bool = False) -> bool:
        if self.refuses == "away":
            raise Unavailable("redis")
        if not self.refuses or needed:
            self.robots[origin] = value
        return origin in self.robots

    def admit(self, crawl: int, items: Sequence[Admission], *, mode: Mode = Mode.NEW) -> list[bool]:
        if self.refuses:
            raise Unavailable("redis is at its memory limit")
        self.asked += items
        if self.answer is not None:
            self.answer(items[0])
        return [True] * len(items)

    def wait_for_room(self) -> None:
        self.room.wait()

    def put(self, result: Result) -> None:
        self.results.append(result)


class Stopping(Event):
    """The event on which a visit waits; it notes how long, but does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> Any:
        self.waits.append(round(timeout or 0.0))
        gevent.sleep(0)


@dataclass
class QuarantineDouble:
    """It reads as the separate process does, but in this one; it raises ``error`` if there is
    one."""

    read_: list[str] = field(default_factory=list)
    error: Exception | None = None

    def read(
        self, context: CrawlContext, task: Task, fetched: Fetched, kernel: str = "http"
    ) -> Reading:
        self.read_.append(task.url)
        if self.error is not None:
            raise self.error
        return read_in_quarantine(context, kernel, task, fetched)

    def fetch(
        self,
        context: CrawlContext,
        visit: TaskVisit,
        task: Task,
        kernel: str,
        headers: Mapping[str, str],
    ) -> Fetched | Failure:
        self.read_.append(task.url)
        if self.error is not None:
            raise self.error
        return context.kernels.by_name[kernel].fetch(visit, task, headers)

    def request_headers(
        self, context: CrawlContext, task: Task, headers: dict[str, str]
    ) -> dict[str, str]:
        self.read_.append(task.url)
        if self.error is not None:
            raise self.error
        return context.hooks.request_headers(task, headers)

    def excluded_by(self, context: CrawlContext, task: Task, url: str, link: bool) -> str | None:
        self.read_.append(url)
        if self.error is not None:
            raise self.error
        return context.rules.judge(task, url, link)


@dataclass
class Anonymous:
    """An authenticator without credentials; it holds requests of logins that wait for a host, by
    URL."""

    waiting: list[str] = field(default_factory=list)
    looks: int = 0

    def get(
        self, visit: Visit, url: str, headers: Mapping[str, str], judge: Judge
    ) -> Fetched | Failure:
        return visit.get(url, headers, visit.max_body_bytes)

    def serve(self, visit: Visit) -> int:
        self.looks += 1
        for url in self.waiting:
            answer = visit.send("POST", url, {}, b"", 99)
            if isinstance(answer, Failure):
                visit.fail(str(answer.kind), 0.0)
        done, self.waiting = len(self.waiting), []
        return done


class World:
    """A pipeline on doubles; ``run`` leases URLs of host ``h`` and returns the close."""

    def __init__(self, folder: Path) -> None:
        self.site = Site()
        self.stopping = Stopping()
        self.crash_record = CrashRecord(folder / "crash")
        self.quarantine = QuarantineDouble()
        self.errands = Anonymous()
        self.keep_all = False
        self.memory_budget = MemoryBudget()
        self.set(scope="host")

    def set(self, **options: Any) -> None:
        """Make another crawl, without the judge of traps: pages here are too empty for it."""
        made = CrawlOptions(**{"delay": 0.0, "sitemaps": "off", "traps": "off", **options})
        self.stores = Stores(Crawl(id=1, name="t", state="active", options=made, roots=("h",)))

    def pipeline(self) -> Pipeline:
        """Make the pipeline of a process that knows nothing yet."""
        return Pipeline(
            store=self.stores,
            frontier=self.stores,
            fetcher=self.site,
            auth=self.errands,
            writer=self.stores,  # type: ignore[arg-type]
            results=Results(Journal("w-0", clock=lambda: 1000), self.stores.fingerprint),
            guarded=Guarded(self.crash_record, self.quarantine),
            stopping=self.stopping,
            keep_all=self.keep_all,
            memory_budget=self.memory_budget,
        )

    def run(
        self,
        *tasks: Task | str,
        delay: float = 0.0,
        host: str = "h",
        failures: int = 0,
        pipeline: Pipeline | None = None,
    ) -> CloseItem | None:
        numbered = tuple(
            Task(i, task) if isinstance(task, str) else task for i, task in enumerate(tasks, 1)
        )
        session = msgspec.structs.replace(_session(numbered, delay, host), failures=failures)
        self.held = HeldSession(session, 1e12)
        return (pipeline or self.pipeline()).run(self.held)

    @property
    def outcomes(self) -> list[Any]:
        return [result.outcome for result in self.stores.results]

    @property
    def result(self) -> Result:
        assert len(self.stores.results) == 1
        return self.stores.results[0]


def _session(tasks: tuple[Task, ...], delay: float, host: str) -> Session:
    return Session(
        session=f"1/{host}",
        token=TOKEN,
        crawl=1,
        revision=1,
        host=host,
        ttl=60,
        delay=delay,
        floor=delay,
        robots_known=False,
        tasks=tasks,
    )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that makes these functions the crawl's hook module."""

    def make(**functions: Any) -> None:
        monkeypatch.setattr(hooks, "load", lambda _: Hooks(**functions))

    return make


def test_page_is_read_and_its_links_are_to_be_admitted(world: World) -> None:
    world.site.answers["http://h/"] = html("<title>T</title><a href=/a>a</a><a href=//o/>o</a>")
    close = world.run("http://h/")
    page = world.result.page
    assert page is not None
    assert (page.title, page.status, page.depth) == ("T", 200, 0)
    assert [link.url for link in page.links] == ["http://h/a"]
    assert world.outcomes == [Done(stored=True, bytes=page.body.__len__())]
    assert close is not None
    assert (close.release, close.report.robots, close.report.requests) == ((), True, 2)


@pytest.mark.skipif(not available(), reason="nothing was compiled")
@pytest.mark.parametrize("suspect", [False, True])
def test_main_text_is_stored_with_each_page_unless_the_crawl_turns_it_off(
    world: World, suspect: bool, use: Callable[..., None]
) -> None:
    def main() -> str | None:
        world.run(Task(1, "http://h/", deliveries=4 if suspect else 1))
        page = world.stores.results[-1].page
        assert page is not None
        return page.main

    world.site.answers["http://h/"] = html(ARTICLE)
    assert main() == extract(ARTICLE.encode(), "http://h/").main
    cut = html(ARTICLE[: ARTICLE.index(STORY[2])])
    world.site.answers["http://h/"] = msgspec.structs.replace(cut, truncated=True)
    assert (main() or "").endswith(STORY[1]), "of a page that is cut off it is told, too"
    seen: list[str] = []
    use(on_page=lambda page, fetched: seen.append(page.main))
    told = main()
    world.set(main_text="off")
    assert main() is None
    assert seen == [told, told], "a hook has it all the same"


def test_no_page_is_requested_while_the_writer_has_no_room(world: World) -> None:
    world.stores.room.clear()
    running = gevent.spawn(world.run, "http://h/a", "http://h/b")
    running.join(0.05)
    assert world.site.asked == []
    world.stores.room.set()
    running.get(timeout=5)
    assert world.site.pages == ["http://h/a", "http://h/b"]


def test_an_answer_is_not_read_while_the_writer_has_no_room(
    world: World, use: Callable[..., None]
) -> None:
    titles: list[str] = []
    use(on_page=lambda page, fetched: titles.append(page.title))
    world.site.answers["http://h/a"] = html("<title>T</title>")
    world.site.meanwhile = lambda _: world.stores.room.clear() if world.site.pages else None
    running = gevent.spawn(world.run, "http://h/a")
    running.join(0.05)
    assert (world.site.pages, titles) == (["http://h/a"], [])
    world.stores.room.set()
    running.get(timeout=5)
    assert titles == ["T"]


def test_robots_are_asked_first_and_once_for_an_origin(world: World) -> None:
    world.run("http://h/a", "http://h/b")
    assert world.site.asked == ["http://h/robots.txt", "http://h/a", "http://h/b"]
    world.run("http://h/c")
    assert world.site.asked.count("http://h/robots.txt") == 1


def test_disallowed_page_is_not_requested_and_the_line_is_kept(world: World) -> None:
    world.site.answers["http://h/robots.txt"] = html("User-agent: *\nDisallow: /private")
    world.run("http://h/private/x", "http://h/ok")
    assert world.site.pages == ["http://h/ok"]
    final = world.stores.results[0].finals[0]
    assert (final.state, final.kind) == ("excluded", "robots")
    assert "Disallow: /private" in final.detail
    assert world.outcomes[0] == Done(kind="robots")


@pytest.mark.parametrize(
    "answer", [status(500), status(429, retry_after="7"), Failure(FailureKind.TIMEOUT)]
)
def test_unreachable_robots_disallow_all_for_now(world: World, answer: Fetched | Failure) -> None:
    world.site.answers["http://h/robots.txt"] = answer
    close = world.run("http://h/a", "http://h/b")
    assert world.site.pages == []
    assert isinstance(world.result.outcome, Retry)
    assert world.result.outcome.kind == "robots_unreachable"
    assert close is not None
    assert close.report.failed == "robots_unreachable"
    assert close.report.block == (7.0 if answer == status(429, retry_after="7") else 0.0)
    assert close.release == (2,)
    assert not world.stores.robots


def test_sessions_that_begin_together_take_turns_at_the_shared_cache(world: World) -> None:
    asking: list[int] = [0]

    class Slow(Stores):
        def robots_get(self, origin: str) -> bytes | None:
            asking.append(asking[-1] + 1)
            gevent.sleep(0.001)
            asking.append(asking[-1] - 1)
            return b""

    cache = RobotsRules(Slow(world.stores.crawl_))
    many = [gevent.spawn(cache._known, f"http://h{n}") for n in range(100)]
    gevent.joinall(many, timeout=10, raise_error=True)
    assert len(asking) == 201
    assert max(asking) == 16


@pytest.mark.parametrize("code", [401, 403, 404, 410])
def test_absent_robots_allow_everything(world: World, code: int) -> None:
    world.site.answers["http://h/robots.txt"] = status(code)
    world.run("http://h/a")
    assert world.site.pages == ["http://h/a"]


def test_robots_redirect_is_followed_on_the_same_host(world: World) -> None:
    world.site.answers["http://h/robots.txt"] = status(301, location="https://h/robots.txt")
    world.site.answers["https://h/robots.txt"] = html("User-agent: *\nDisallow: /a")
    world.run("http://h/a")
    assert world.site.pages == []


def test_a_redirect_of_robots_txt_to_another_host_is_asked_of_that_hosts_session(
    world: World,
) -> None:
    """RFC 9309, section 2.3.1.2: rules found there are valid for the first host."""
    world.site.answers["http://h/robots.txt"] = status(301, location="http://o/robots.txt")
    world.site.answers["http://o/robots.txt"] = html("User-agent: *\nDisallow: /a")
    world.site.answers["http://h/b"] = html("b")

    def answered_elsewhere(question: Admission) -> None:
        assert question == Admission("http://o/robots.txt", redirects=1, kind=TaskKind.ROBOTS)
        mine, world.stores.answer = world.held, None
        world.run(Task(1, question.url, redirects=1, kind=question.kind), host="o")
        world.held = mine

    world.stores.answer = answered_elsewhere
    world.run("http://h/a", "http://h/b")
    assert world.site.asked == ["http://h/robots.txt", "http://o/robots.txt", "http://h/b"]
    answer, excluded, page = world.stores.results
    assert (answer.outcome, answer.page, answer.finals) == (Done(), None, [])
    assert [f.kind for f in excluded.finals] == ["robots"]
    assert page.page is not None


def test_robots_redirect_without_an_answer_disallows_all_for_now(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.worker.robots.cache.ASK_SECONDS", 0.0)
    world.site.answers["http://h/robots.txt"] = status(301, location="http://o/robots.txt")
    close = world.run("http://h/a", "http://h/b")
    assert world.site.asked == ["http://h/robots.txt"]
    assert close is not None
    assert (close.release, close.report.block) == ((2,), ASK_AGAIN_SECONDS)
    assert isinstance(world.result.outcome, Retry)


@pytest.mark.parametrize("why", ["full", "away"])
def test_pages_go_back_uncharged_if_robots_txt_of_another_host_cannot_be_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr("greencrawl.worker.robots.cache.ASK_SECONDS", 0.0)
    world.site.answers["http://h/robots.txt"] = status(301, location="http://o/robots.txt")
    world.stores.refuses = why
    close = world.run("http://h/a", "http://h/b")
    assert close is not None
    assert (close.release, close.report.block) == ((1, 2), ASK_AGAIN_SECONDS)
    assert (close.report.failed, close.report.requests) == ("", 1), "no fault of the host's"
    assert world.stores.results == [], "none is charged"


def test_a_question_for_robots_txt_goes_back_uncharged_if_its_answer_cannot_be_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Redis node of its host is away, and the session does not use its whole patience."""
    monkeypatch.setattr("greencrawl.worker.session.fetcher.AWAY_PATIENCE_SECONDS", 0.2)
    world.site.answers["http://o/robots.txt"] = html("User-agent: *\nDisallow: /a")
    world.stores.refuses = "away"
    question = Task(1, "http://o/robots.txt", kind=TaskKind.ROBOTS)
    with gevent.Timeout(5):
        close = world.run(question, host="o")
    assert close is not None
    assert (close.release, close.report.failed, world.stores.results) == ((1,), "", [])


def test_a_question_for_robots_txt_is_read_again_if_only_this_process_knows_the_rules(
    world: World,
) -> None:
    """The asking host looks into the shared cache, which had no room for the rules at first."""
    world.site.answers["http://o/robots.txt"] = html("User-agent: *\nDisallow: /a")
    world.stores.crawl_ = msgspec.structs.replace(world.stores.crawl_, roots=("h", "o"))
    pipeline = world.pipeline()
    world.stores.refuses = "no room"
    world.run("http://o/a", host="o", pipeline=pipeline)
    world.stores.refuses = ""
    assert world.stores.robots == {}
    question = Task(1, "http://o/robots.txt", kind=TaskKind.ROBOTS)
    world.run(question, host="o", pipeline=pipeline)
    assert list(world.stores.robots) == ["http://o"]


def test_robots_redirected_over_hosts_too_often_count_as_absent(world: World) -> None:
    world.site.answers["http://o/robots.txt"] = status(301, location="http://p/robots.txt")
    world.run(Task(1, "http://o/robots.txt", redirects=5, kind=TaskKind.ROBOTS), host="o")
    assert world.stores.asked == []
    cached = parser.unpack(world.stores.robots["http://o"])
    assert cached is not None
    assert cached.rules().allowed("http://o/a", "any")


def test_a_304_means_unchanged_for_a_refetch_and_is_an_error_for_another_task(
    world: World,
) -> None:
    url = "http://h/a"
    number = fingerprint(url)
    world.stores.stored[number] = StoredPage(
        crawl=1, fingerprint=number, url=url, status=200, headers={"etag": '"1"'}
    )
    world.site.answers[url] = status(304)
    world.run(Task(1, url, kind=TaskKind.REFETCH))
    result = world.result
    assert (result.page, result.finals, result.outcome) == (None, [], Done(kind="unchanged"))
    assert result.check is not None
    assert (result.check.fingerprint, result.attempts[0].code) == (number, 304)
    world.stores.results.clear()
    world.run(Task(1, url))
    assert isinstance(world.result.outcome, Retry)
    assert (world.result.outcome.kind, world.result.check) == ("bad_status", None)


def test_the_redirect_of_a_refetch_leads_to_a_page_as_any_other(
    world: World,
) -> None:
    world.site.answers["http://h/a"] = status(301, location="/b")
    world.run(Task(1, "http://h/a", kind=TaskKind.REFETCH))
    page = world.result.page
    assert page is not None
    assert [(link.url, link.kind) for link in page.links] == [("http://h/b", TaskKind.PAGE)]


def test_a_failed_question_for_robots_txt_blocks_its_host_and_leaves_no_row(world: World) -> None:
    world.site.answers["http://o/robots.txt"] = status(503)
    close = world.run(Task(1, "http://o/robots.txt", kind=TaskKind.ROBOTS), host="o")
    assert close is not None
    assert close.report.failed == "robots_unreachable"
    assert (world.result.finals, world.result.attempts) == ([], [])


def test_robots_redirect_to_a_host_whose_rules_are_known_takes_those(world: World) -> None:
    world.site.answers["http://h/robots.txt"] = status(301, location="http://o/robots.txt")
    world.site.answers["http://o/robots.txt"] = html("User-agent: *\nDisallow: /a")
    world.run("http://o/", host="o")
    world.stores.crawl_ = msgspec.structs.replace(world.stores.crawl_, roots=("h", "o"))
    world.run("http://o/", host="o")
    world.run("http://h/a")
    assert "http://h/a" not in world.site.asked


@pytest.mark.parametrize("answer", [status(304), status(302), status(300, location="/other")])
def test_robots_redirect_without_a_target_is_asked_for_once(world: World, answer: Fetched) -> None:
    world.site.answers["http://h/robots.txt"] = answer
    world.run("http://h/a")
    assert world.site.asked == ["http://h/robots.txt", "http://h/a"]


def test_giant_robots_of_many_origins_are_not_all_kept_in_memory(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.worker.robots.cache._RULES_BYTES", 8_000_000)
    cache = RobotsRules(world.stores)
    giant = b"User-agent: *\nDisallow: /a\nDisallow: /" + b"x" * 400_000
    for number in range(20):
        world.stores.robots[f"http://h{number}"] = parser.pack("rules", giant, 0)
        rules = cache.rules(None, f"http://h{number}/a")  # type: ignore[arg-type]
        assert isinstance(rules, parser.Rules)
        assert not rules.allowed(f"http://h{number}/a", "bot")
    assert 8 < len(cache._local) < 11
    assert cache._bytes < 8_000_000


def test_robots_with_long_comments_take_no_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.worker.robots.cache._RULES_BYTES", 1_000_000)
    cache = RobotsRules(world.stores)
    wordy = b"User-agent: *\nDisallow: /a\n#" + b"x" * 400_000
    for number in range(20):
        world.stores.robots[f"http://h{number}"] = parser.pack("rules", wordy, 0)
        cache.rules(None, f"http://h{number}/a")  # type: ignore[arg-type]
    assert len(cache._local) == 20


@pytest.mark.parametrize("why", ["full", "away"])
def test_robots_that_the_shared_cache_does_not_take_are_fetched_once(
    world: World, why: str
) -> None:
    """The cache is near its memory limit or away; the pages use the rules that were just read."""
    world.site.answers["http://h/robots.txt"] = html("User-agent: *\nDisallow: /b")
    world.stores.refuses = why
    close = world.run("http://h/a", "http://h/b", "http://h/c")
    assert close is not None
    assert world.site.asked == ["http://h/robots.txt", "http://h/a", "http://h/c"]


def test_endless_robots_redirects_end(world: World) -> None:
    world.site.answers["http://h/robots.txt"] = status(302, location="/robots.txt?x")
    world.site.answers["http://h/robots.txt?x"] = status(302, location="/robots.txt?x")
    world.run("http://h/a")
    assert len(world.site.asked) == 7


def test_crawl_delay_holds_within_the_session(world: World) -> None:
    world.site.answers["http://h/robots.txt"] = html("User-agent: *\nCrawl-delay: 30")
    close = world.run("http://h/a", "http://h/b")
    assert world.stopping.waits == [30, 30]
    assert close is not None
    assert close.report.robots_delay == 30


def test_crawl_delay_is_kept_after_a_session_that_could_not_report_it(world: World) -> None:
    world.site.answers["http://h/robots.txt"] = html("User-agent: *\nCrawl-delay: 30")
    world.run("http://h/a")
    world.stopping.waits.clear()
    world.run("http://h/b")
    assert world.stopping.waits == [30], "the rules came from the cache"


def test_missing_page_is_gone_and_journalled_once(world: World) -> None:
    world.run("http://h/a")
    (attempt,), (final,) = world.result.attempts, world.result.finals
    assert (attempt.code, attempt.kind, attempt.errors, attempt.wait) == (404, "gone", 1, None)
    assert (final.state, final.code) == ("gone", 404)
    assert world.outcomes == [Done(kind="gone")]


@pytest.mark.parametrize("deliveries", [1, 2])
def test_links_of_an_earlier_delivery_are_admitted_though_the_page_is_gone(
    world: World, deliveries: int
) -> None:
    """A process died between commit and admission; then the page changed."""
    links = [Admission("http://h/linked", 1)]
    number = fingerprint("http://h/a")
    world.stores.stored[number] = StoredPage(
        crawl=1, fingerprint=number, url="http://h/a", status=200, links=links
    )
    world.run(Task(1, "http://h/a", deliveries=deliveries))
    assert world.stores.recalled == (links if deliveries > 1 else [])
    assert world.outcomes == [Done(kind="gone")]


def test_a_failing_page_is_tried_again_as_often_as_the_crawl_allows(world: World) -> None:
    world.set(tries=2)
    world.site.answers["http://h/a"] = status(500)
    world.run("http://h/a", Task(2, "http://h/a", errors=1))
    first, second = world.stores.results
    assert isinstance(first.outcome, Retry)
    assert first.attempts[0].wait == first.outcome.wait
    assert not first.finals
    assert second.outcome == Dead("server_error")
    assert second.finals[0].state == "dead"


def test_page_whose_body_is_away_is_tried_again_and_costs_its_host_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def page(*_: object, **__: object) -> StoredPage | None:
        raise BodyAway("a.warc.gz", "there is no such file")

    monkeypatch.setattr(world.stores, "page", page)
    last = retry.TABLE[FailureKind.BODY_AWAY].tries - 1
    kind = TaskKind.REREAD
    closed = world.run(
        Task(1, "http://h/a", kind=kind), Task(2, "http://h/b", kind=kind, errors=last)
    )
    first, second = world.stores.results
    assert first.outcome == Retry(60.0, "body_away")
    assert (first.check, first.finals, second.outcome) == (None, [], Dead("body_away"))
    assert (second.finals[0].detail, second.finals[0].task) == ("its body is away: a.warc.gz", kind)
    assert closed is not None
    assert (world.site.asked, closed.report.failed) == ([], "")


def test_failing_host_ends_the_session_and_the_rest_is_released(world: World) -> None:
    world.site.answers["http://h/a"] = status(503, retry_after="120")
    close = world.run("http://h/a", "http://h/b", "http://h/c")
    assert world.site.pages == ["http://h/a"]
    assert close is not None
    assert (close.release, close.report.failed, close.report.block) == ((2, 3), "unavailable", 120)


def test_body_is_in_hand_until_its_page_is_with_the_writer(world: World) -> None:
    body = "<p>" + "a" * 5000
    world.site.answers["http://h/a"] = html(body)
    world.stores.room.clear()
    running = gevent.spawn(world.run, "http://h/a", "http://h/gone")
    gevent.sleep(0.01)
    assert world.memory_budget.bytes == 0, "nothing is asked for while there is no room"
    world.site.meanwhile = lambda url: world.stores.room.clear()
    world.stores.room.set()
    gevent.sleep(0.01)
    assert world.memory_budget.bytes == len(body), "it waits to be read"
    world.site.meanwhile = lambda url: None
    world.stores.room.set()
    assert running.get(timeout=5) is not None
    assert world.memory_budget.bytes == 0


def test_page_for_which_there_is_no_memory_waits_uncharged_and_its_host_rests(world: World) -> None:
    world.site.answers["http://h/b"] = MemoryTimeout("no memory")
    close = world.run("http://h/a", "http://h/b", "http://h/c")
    assert close is not None
    assert close.release == (2, 3)
    assert (close.report.failed, close.report.block) == ("", CROWDED_SECONDS)
    assert close.report.requests == 3, "robots.txt, and two pages"
    assert len(world.stores.results) == 1


def test_an_expired_lease_ends_the_session_without_a_close(world: World) -> None:
    world.site.answers["http://h/b"] = LeaseExpired("late")
    assert world.run("http://h/a", "http://h/b", "http://h/c") is None
    assert world.site.pages == ["http://h/a", "http://h/b"]
    assert len(world.stores.results) == 1


@pytest.mark.parametrize(("end", "closes"), [("stop", True), ("stale", False)])
def test_session_that_is_ended_sends_no_further_request(
    world: World, end: Any, closes: bool
) -> None:
    def lose(_: str) -> None:
        world.held.ended = end

    world.site.meanwhile = lose
    world.stores.robots_put("http://h", b"", 1)
    world.site.answers["http://h/robots.txt"] = status(404)
    close = world.run("http://h/a", "http://h/b")
    assert world.site.asked == ["http://h/robots.txt"]
    assert (close is not None) == closes
    assert close is None or close.release == (1, 2)


def test_tasks_of_a_host_that_is_down_for_good_become_dead_letters(world: World) -> None:
    world.site.answers["http://h/robots.txt"] = Failure(FailureKind.REFUSED, requests=0)
    close = world.run("http://h/a", "http://h/b", "http://h/c", failures=retry.GIVE_UP_FAILURES)
    assert close is not None
    assert close.release == ()
    assert (close.report.failed, close.report.block) == ("refused", retry.GIVEN_UP_BLOCK)
    first, *rest = world.stores.results
    assert isinstance(first.outcome, Retry), "the one that was tried has its own tries"
    assert [r.outcome for r in rest] == [Dead("refused")] * 2
    assert [(f.state, f.url) for r in rest for f in r.finals] == [
        ("dead", "http://h/b"),
        ("dead", "http://h/c"),
    ]


def test_a_host_is_not_given_up_for_a_login_that_the_operator_has_to_mend(world: World) -> None:
    class Unset(Anonymous):
        def get(self, visit: Visit, url: str, headers: Mapping[str, str], judge: Judge) -> Failure:
            return Failure(FailureKind.LOGIN, "auth shop: no hosts", 0, 60.0, 0, ours=True)

    world.errands = Unset()
    close = world.run("http://h/a", "http://h/b", failures=retry.GIVE_UP_FAILURES)
    assert close is not None
    assert not world.outcomes
    assert (close.report.failed, close.report.block, close.release) == ("login", 60.0, (1, 2))


def test_errand_of_a_login_is_done_and_is_no_page(world: World) -> None:
    """It comes before robots.txt, which does not apply to it, and before the check of the scope."""
    world.set(scope="host", exclude=("errand",))
    world.errands = Anonymous(["http://h/login"])
    close = world.run(Task(1, "http://h/.well-known/greencrawl-errand", kind=TaskKind.ERRAND))
    assert world.site.asked == ["http://h/login"]
    assert world.outcomes == [Done()]
    assert (world.result.page, world.result.attempts, world.result.finals) == (None, [], [])
    assert close is not None
    assert close.report.requests == 1
    world.run(Task(1, "http://h/.well-known/greencrawl-errand", kind=TaskKind.ERRAND))
    assert world.site.asked == ["http://h/login"], "another session was faster"


def test_errands_are_looked_for_before_each_task_of_a_crawl_that_logs_in(world: World) -> None:
    world.errands = Anonymous()
    world.run("http://h/a", "http://h/b")
    assert world.errands.looks == 0
    world.set(auth=(Form(name="shop", hosts=("http://h",), login_url="http://h/login"),))
    world.errands.waiting.append("http://h/login")
    world.run("http://h/a", "http://h/b")
    assert world.errands.looks == 2
    assert world.site.asked[-4:] == [
        "http://h/login",
        "http://h/robots.txt",
        "http://h/a",
        "http://h/b",
    ]


def test_pages_wait_uncharged_with_a_reason_while_the_login_at_their_host_is_refused(
    world: World,
) -> None:
    class Refused(Anonymous):
        def get(self, visit: Visit, url: str, headers: Mapping[str, str], judge: Judge) -> Failure:
            return Failure(FailureKind.LOGIN, "auth shop: no such name", 0, 3600.0, 0)

    world.errands = Refused()
    close = world.run("http://h/a", "http://h/b")
    assert close is not None
    assert (close.report.failed, close.report.block, close.release) == ("login", 3600.0, (1, 2))
    assert close.report.why == "auth shop: no such name"
    assert not world.outcomes
    close = world.run("http://h/a", "http://h/b", failures=retry.GIVE_UP_FAILURES)
    assert close is not None
    assert world.outcomes == [Dead("login")] * 2
    assert "auth shop: no such name" in world.stores.results[0].finals[0].detail


def test_a_host_that_fails_at_an_errand_gets_no_further_request(world: World) -> None:
    world.set(auth=(Form(name="shop", hosts=("http://h",), login_url="http://h/login"),))
    world.errands = Anonymous(["http://h/login"])
    world.site.answers["http://h/login"] = Failure(FailureKind.REFUSED)
    close = world.run("http://h/a", "http://h/b")
    assert close is not None
    assert (close.report.failed, close.release) == ("refused", (1, 2))
    assert world.site.asked == ["http://h/login"]
    assert not world.outcomes, "its tasks are not charged"


def test_questions_and_errands_of_a_host_that_is_given_up_leave_no_row(world: World) -> None:
    world.site.answers["http://h/robots.txt"] = Failure(FailureKind.REFUSED, requests=0)
    world.run(
        "http://h/a",
        Task(2, "http://h/.well-known/greencrawl-errand", kind=TaskKind.ERRAND),
        Task(3, "http://h/robots.txt", kind=TaskKind.ROBOTS),
        "http://h/b",
        failures=100,
    )
    assert [result.task for result in world.stores.results] == [1, 2, 3, 4]
    assert world.outcomes[1:3] == [Done(), Done()]
    rows = [bool(result.attempts or result.finals) for result in world.stores.results]
    assert rows == [True, False, False, True]


def test_host_that_asks_for_a_pause_is_never_given_up(world: World) -> None:
    world.site.answers["http://h/a"] = status(429)
    close = world.run("http://h/a", "http://h/b", failures=100)
    assert close is not None
    assert close.release == (2,)


def test_page_behind_a_forbidden_address_is_excluded_at_once(world: World) -> None:
    failure = Failure(FailureKind.ADDRESS_FORBIDDEN, "h is 10.0.0.1", requests=0)
    world.site.answers["http://h/robots.txt"] = failure
    world.run("http://h/a")
    (final,) = world.result.finals
    assert (final.state, final.kind, final.detail) == (
        "excluded",
        "address_forbidden",
        "h is 10.0.0.1",
    )


def test_stopping_worker_finishes_the_page_and_releases_the_rest(world: World) -> None:
    world.stores.robots["http://h"] = parser.pack("allow", b"", 0)
    world.site.meanwhile = lambda _: world.stopping.set()
    close = world.run("http://h/a", "http://h/b", delay=30)
    assert world.site.asked == ["http://h/a"]
    assert close is not None
    assert close.release == (2,)
    assert world.outcomes == [Done(kind="gone")]


def test_deleted_crawl_is_not_fetched(world: World) -> None:
    world.stores.deleted = True
    close = world.run("http://h/a", "http://h/b")
    assert world.site.asked == []
    assert close is not None, "its host is free for others at once"
    assert (close.release, close.report.requests) == ((1, 2), 0)


def test_page_excluded_since_it_was_queued_is_not_fetched(world: World) -> None:
    world.set(exclude=("secret",))
    world.run("http://h/secret")
    assert world.site.asked == []
    assert world.result.finals[0].state == "excluded"
    assert "exclude pattern 'secret'" in world.result.finals[0].detail


# -- redirects


def test_redirect_is_recorded_and_its_target_admitted_at_the_same_depth(world: World) -> None:
    world.site.answers["http://h/a"] = status(301, location="/b")
    world.run(Task(1, "http://h/a", depth=2, level=2))
    page = world.result.page
    assert page is not None
    assert (page.status, page.final_url) == (301, "http://h/b")
    assert [(a.url, a.depth, a.redirects) for a in page.links] == [("http://h/b", 2, 1)]
    assert world.outcomes == [Done(stored=False)]


def test_redirect_to_an_equivalent_spelling_is_followed_at_once(world: World) -> None:
    """As a task of its own it would be known already, and the page would be lost."""
    world.site.answers["http://h/%7Eme/"] = status(301, location="/~me/")
    world.site.answers["http://h/~me/"] = html('<a href="x">x</a>')
    world.run(Task(1, "http://h/%7Eme/", depth=2, level=2))
    assert world.site.pages == ["http://h/%7Eme/", "http://h/~me/"]
    page = world.result.page
    assert page is not None
    assert (page.url, page.final_url, page.status) == ("http://h/~me/", "http://h/~me/", 200)
    assert page.fingerprint == fingerprint("http://h/%7Eme/")
    assert [(link.url, link.depth) for link in page.links] == [("http://h/~me/x", 3)]
    assert [outcome.stored for outcome in world.outcomes] == [True]


def test_redirects_between_equivalent_spellings_end(world: World) -> None:
    world.site.answers["http://h/%7Eme"] = status(301, location="/~me")
    world.site.answers["http://h/~me"] = status(301, location="/%7Eme")
    world.run("http://h/%7Eme")
    assert len(world.site.pages) == MAX_REDIRECTS + 1
    assert world.outcomes == [Dead("redirect")]


def test_redirect_to_an_equivalent_spelling_is_a_task_in_a_frontier_of_the_first_version(
    world: World,
) -> None:
    world.stores.version = 1
    world.site.answers["http://h/%7Eme"] = status(301, location="/~me")
    world.run("http://h/%7Eme")
    assert world.site.pages == ["http://h/%7Eme"]
    page = world.result.page
    assert page is not None
    assert [link.url for link in page.links] == ["http://h/~me"]


def test_spelling_that_the_rules_of_the_crawl_exclude_is_not_asked_for(world: World) -> None:
    world.set(exclude=("~",))
    world.site.answers["http://h/%7Eme"] = status(301, location="/~me")
    world.run("http://h/%7Eme")
    assert world.site.pages == ["http://h/%7Eme"]
    assert [final.state for final in world.result.finals] == ["excluded"]


def test_links_that_the_rules_of_the_crawl_rewrite_are_counted(world: World) -> None:
    world.set(scope="host", normalise=("tracking",))
    world.site.answers["http://h/a"] = html('<a href="/b?utm_source=1">b</a><a href="/b">b</a>')
    world.run("http://h/a")
    page = world.result.page
    assert page is not None
    assert [link.url for link in page.links] == ["http://h/b"]
    assert [outcome.rewritten for outcome in world.outcomes] == [1]


def test_redirect_keeps_bytes_that_are_not_ascii(world: World) -> None:
    """Browsers keep them, too, in every encoding."""
    for path, raw in (("/u", "/é?é".encode()), ("/g", "/中?中".encode("gbk"))):
        world.site.answers[f"http://h{path}"] = status(302, location=raw.decode("latin-1"))
    world.run("http://h/u", "http://h/g")
    found = [result.page.final_url for result in world.stores.results if result.page]
    assert found == ["http://h/%C3%A9?%C3%A9", "http://h/%D6%D0?%D6%D0"]


def test_password_in_a_redirect_is_not_stored(world: World) -> None:
    world.site.answers["http://h/a"] = status(302, location="http://me:secret@h/b")
    world.run("http://h/a")
    page = world.result.page
    assert page is not None
    assert [link.url for link in page.links] == [page.final_url] == ["http://h/b"]
    assert "secret" not in repr(world.result)


@pytest.mark.parametrize(
    ("redirects", "location"), [(MAX_REDIRECTS, "/b"), (0, "/a"), (0, "mailto:x@h"), (0, "")]
)
def test_redirect_that_leads_nowhere_is_a_failure(
    world: World, redirects: int, location: str
) -> None:
    world.site.answers["http://h/a"] = status(302, location=location)
    world.run(Task(1, "http://h/a", redirects=redirects))
    assert world.outcomes == [Dead("redirect")]


def test_a_redirected_seed_widens_the_scope_within_its_domain(world: World) -> None:
    world.stores.crawl_ = msgspec.structs.replace(world.stores.crawl_, roots=("example.org",))
    target = "https://www.example.org/"
    world.site.answers["http://example.org/"] = status(301, location=target)
    world.run("http://example.org/", host="example.org")
    page = world.result.page
    assert page is not None
    assert [link.url for link in page.links] == [target]
    assert "www.example.org" in world.stores.crawl_.roots


def test_link_that_redirects_out_of_scope_is_not_followed(world: World) -> None:
    world.site.answers["http://h/a"] = status(301, location="http://elsewhere.example/")
    world.run(Task(1, "http://h/a", depth=1))
    page = world.result.page
    assert page is not None
    assert (page.links, page.final_url) == ([], "http://elsewhere.example/")


# -- content


@pytest.mark.parametrize("kind", ["text/plain", "text/markdown", ""])
def test_plain_text_is_read_and_all_of_it_is_main_text(world: World, kind: str) -> None:
    world.set(scope="host")
    url = "http://h/notes.txt"
    world.site.answers[url] = html("On ice\n\nIt froze.\nhttp://h/a", content_type=kind)
    world.run(url)
    page = world.result.page
    assert page is not None
    assert (page.title, page.text) == ("On ice", "On ice It froze. http://h/a")
    assert page.main == ("On ice\n\nIt froze.\nhttp://h/a" if available() else None)
    assert (page.encoding, page.links, page.body[:6]) == ("utf-8", [], b"On ice")


def test_text_is_kept_and_not_parsed_and_binaries_are_recorded(world: World) -> None:
    world.site.answers["http://h/t"] = html("<a href=/x>", content_type="text/plain")
    world.site.answers["http://h/p"] = html("%PDF <a href=/x>", content_type="application/pdf")
    world.run("http://h/t", "http://h/p")
    text, pdf = (result.page for result in world.stores.results)
    assert text is not None
    assert pdf is not None
    assert (text.body, text.links) == (b"<a href=/x>", [])
    assert (pdf.body, pdf.links, pdf.headers["content-type"]) == (b"", [], "application/pdf")
    assert pdf.digest not in (b"", text.digest)


@pytest.mark.parametrize(("bodies", "keep_all"), [("all", False), ("text", True)])
def test_bodies_of_every_type_are_kept_when_asked_for(
    world: World, bodies: str, keep_all: bool
) -> None:
    world.set(scope="host", bodies=bodies)
    world.keep_all = keep_all
    world.site.answers["http://h/p"] = html("%PDF <a href=/x>", content_type="application/pdf")
    world.run("http://h/p")
    assert world.result.page is not None
    assert (world.result.page.body, world.result.page.links) == (b"%PDF <a href=/x>", [])


def test_a_stored_page_has_its_request_headers_without_credentials(
    world: World, use: Callable[..., None]
) -> None:
    more = {"accept-language": "de", "authorization": "Basic x", "cookie": "a=b"}
    use(request=lambda task, headers: {**headers, **more})
    world.set(scope="host", user_agent="me/1", hook="mine")
    world.site.answers["http://h/"] = html("x")
    world.run("http://h/")
    assert world.result.page is not None
    assert world.result.page.request == {
        "user-agent": "me/1",
        "accept": crawl_headers(CrawlOptions())["accept"],
        "accept-language": "de",
    }


def test_cookies_are_not_kept(world: World) -> None:
    world.site.answers["http://h/"] = html("x", set_cookie="id=1", etag='"1"')
    world.run("http://h/")
    assert world.result.page is not None
    assert set(world.result.page.headers) == {"content-type", "etag"}


def json_answer(body: str, **headers: str) -> Fetched:
    return Fetched("", 200, {"content-type": "application/json", **headers}, body.encode())


LIST = Source(url="http://h/list?n=2", items="urls", next="more", cursor="after")


def test_page_of_a_source_names_pages_and_the_next_page(world: World) -> None:
    world.set(sources=(LIST,))
    world.site.answers["http://h/list?n=2"] = json_answer('{"urls": ["/a", "//o/b"], "more": 7}')
    world.run("http://h/list?n=2", Task(2, "http://h/other.json", 3))
    page = world.stores.results[0].page
    assert page is not None
    assert [(link.url, link.depth) for link in page.links] == [
        ("http://h/list?n=2&after=7", 0),
        ("http://h/a", 1),
    ]
    assert page.body
    assert world.site.headers[-2]["accept"] == "application/json,*/*;q=0.5"
    assert world.site.headers[-1]["accept"].startswith("text/html")


def test_page_of_a_source_that_cannot_be_read_is_a_dead_letter(world: World) -> None:
    world.set(sources=(LIST,))
    world.site.answers["http://h/list?n=2"] = html("<a href=/x>log in</a>")
    world.run("http://h/list?n=2", "http://h/list?n=2&after=1")
    assert world.outcomes == [Dead("parse"), Done(kind="gone")]
    final = world.stores.results[0].finals[0]
    assert "not JSON" in final.detail
    assert world.stores.results[0].page is None


def test_source_that_moved_is_a_dead_letter_and_its_list_may_redirect_within(world: World) -> None:
    world.set(sources=(LIST,))
    world.site.answers["http://h/list?n=2"] = status(301, location="https://h/list?n=2")
    within = "http://h/list?n=2&after=2"
    world.site.answers["http://h/list?n=2&after=1"] = status(302, location=within)
    world.run("http://h/list?n=2", "http://h/list?n=2&after=1")
    assert world.outcomes[0] == Dead("redirect")
    assert "elsewhere, at https://h/list?n=2" in world.stores.results[0].finals[0].detail
    page = world.stores.results[1].page
    assert page is not None
    assert [link.url for link in page.links] == [within]


@pytest.mark.parametrize("code", [200, 204])
def test_a_page_without_a_body_counts_as_stored(world: World, code: int) -> None:
    world.site.answers["http://h/a"] = status(code)
    world.run("http://h/a")
    assert world.outcomes == [Done(stored=True)]
    assert world.result.page is not None
    assert is_page(world.result.page.status)


def test_source_without_content_is_an_empty_page(world: World) -> None:
    world.set(sources=(LIST,))
    world.site.answers["http://h/list?n=2"] = status(204)
    world.run("http://h/list?n=2")
    assert world.outcomes == [Done(stored=True)]


def test_list_is_read_while_the_crash_record_names_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.set(sources=(LIST,))
    marked: list[object] = []
    monkeypatch.setattr(
        Listing, "read", lambda *_, **__: marked.append(world.crash_record.suspect())
    )
    world.site.answers["http://h/list?n=2"] = json_answer("{}")
    world.run("http://h/list?n=2")
    assert [type(one) for one in marked] == [Suspect]


def test_nofollow_header_is_honoured(world: World) -> None:
    world.site.answers["http://h/"] = html("<a href=/a>a</a>", x_robots_tag="nofollow")
    world.run("http://h/")
    assert world.result.page is not None
    assert world.result.page.links == []


def test_extraction_that_raises_is_charged_to_its_page_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outline(*_: Any, **__: Any) -> Any:
        raise RuntimeError("tree")

    monkeypatch.setattr("greencrawl.worker.kernels.http.outline", outline)
    world.site.answers["http://h/a"] = html("x")
    world.run("http://h/a", "http://h/b")
    first, second = world.stores.results
    assert first.outcome == Dead("parse")
    assert "RuntimeError: tree" in first.attempts[0].detail
    assert second.outcome == Done(kind="gone")


def test_the_crash_record_names_a_page_while_it_is_parsed(
    world: World, use: Callable[..., None]
) -> None:
    seen: list[Suspect | None] = []
    use(on_page=lambda page, fetched: seen.append(world.crash_record.suspect()))
    world.site.answers["http://h/a"] = html("x")
    world.run(Task(7, "http://h/a", depth=3, errors=1))
    assert seen == [Suspect("1/h", TOKEN, 7, 1, "http://h/a", 3, 0, 1)]
    assert world.crash_record.suspect() is None


# -- hooks and headers


def test_request_headers_name_the_crawler_and_its_contact(world: World) -> None:
    world.set(user_agent="bot/1", contact="mailto:me@h")
    world.run("http://h/")
    for headers in world.site.headers:
        assert headers["user-agent"] == "bot/1 (+mailto:me@h)"
        assert headers["accept"].startswith("text/html,")


def test_fields_of_a_hook_are_stored(world: World, use: Callable[..., None]) -> None:
    use(
        on_page=lambda page, fetched: {"t": page.title},
        items=lambda page: ({"to": to} for to in page.css("a::attr(href)").getall()),
        links=lambda page, links: links[1:],
    )
    world.site.answers["http://h/"] = html("<title>T</title><a href=/a>a</a><a href=/b>b</a>")
    world.run("http://h/")
    assert world.result.page is not None
    assert world.result.page.fields == {"t": "T"}
    assert world.result.page.items == b'[{"to":"/a"},{"to":"/b"}]'
    assert [link.url for link in world.result.page.links] == ["http://h/b"]


def test_error_in_a_hook_is_journalled_and_harms_nothing_else(
    world: World, use: Callable[..., None]
) -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("mine")

    use(on_page=broken, links=broken, request=broken)
    world.site.answers["http://h/"] = html("<a href=/a>a</a>")
    world.run("http://h/")
    page = world.result.page
    assert page is not None
    assert page.fields is None
    assert [link.url for link in page.links] == ["http://h/a"]
    notes = [a for a in world.result.attempts if a.kind != "ok"]
    assert [(a.kind, a.errors) for a in notes] == [("hook", 0)] * 3
    assert len({a.at_ms for a in notes}) == 3
    assert [a.detail.split(":")[0] for a in notes] == [
        "request",
        "on_page",
        "links",
    ]
    assert world.result.hooks == HookRun(
        crawl=page.crawl, fingerprint=page.fingerprint, url=page.url, at_ms=page.fetched_ms,
        failures=dict.fromkeys(("request", "on_page", "links"), "ValueError: mine"),
    )  # fmt: skip


def test_the_result_of_a_hook_is_reported_for_each_page(
    world: World, use: Callable[..., None]
) -> None:
    use(on_page=lambda page, fetched: {}[page.url] if page.url.endswith("b") else None)
    for name in "ab":
        world.site.answers[f"http://h/{name}"] = html("x")
    world.run("http://h/a", "http://h/b")
    failures = [result.hooks.failures for result in world.stores.results if result.hooks]
    assert failures == [{}, {"on_page": "KeyError: '…'"}]


def test_a_request_hook_that_failed_is_counted_though_no_page_came(
    world: World, use: Callable[..., None]
) -> None:
    use(request=lambda task, headers: 1 / 0)
    world.site.answers["http://h/"] = Failure(FailureKind.TIMEOUT, "late")
    world.run("http://h/")
    assert world.result.hooks is not None
    assert world.result.hooks.failures == {"request": "ZeroDivisionError: division by zero"}
    assert [a.kind for a in world.result.attempts] == ["hook", "timeout"]


def test_tasks_are_handed_back_unfetched_if_the_hook_of_their_crawl_cannot_be_loaded(
    world: World,
) -> None:
    world.set(hook="no.such.module")
    close = world.run("http://h/a", "http://h/b")
    assert close is not None
    assert close.release == (1, 2)
    assert close.report == HostReport()
    assert world.stores.results == world.site.asked == []


def test_newer_revision_of_a_crawl_is_loaded(world: World) -> None:
    world.run("http://h/a")
    world.set(exclude=("a",))
    world.run("http://h/a")
    assert world.outcomes == [Done(kind="scope")]


def test_a_lease_that_comes_after_its_crawl_was_slowed_is_given_back(world: World) -> None:
    pipeline, first = world.pipeline(), world.stores.crawl_
    world.run("http://h/a", pipeline=pipeline)
    slower = msgspec.structs.replace(first.options, delay=5.0)
    world.stores.crawl_ = msgspec.structs.replace(first, options=slower, revision=2)
    pipeline._crawls.renew(1)  # what an order does
    for away in (0, 1):
        world.stores.away = away
        close = world.run("http://h/b", "http://h/c", pipeline=pipeline)
        assert close is not None
        assert (close.release, close.report.requests) == ((1, 2), 0)
    world.run("http://h/b", delay=5.0, pipeline=pipeline)
    world.stores.crawl_ = first  # the store was put back to an older copy
    world.run("http://h/c", pipeline=pipeline)
    asked = [url for url in world.site.asked if "robots" not in url]
    assert asked == ["http://h/a", "http://h/b", "http://h/c"]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    def delays() -> Iterator[float]:
        while True:
            yield 0.001

    monkeypatch.setattr("greencrawl.worker.session.backoff.delays", delays)


def test_a_session_waits_for_a_store_that_is_away(world: World) -> None:
    world.stores.away = 3
    world.run("http://h/a")
    assert world.outcomes == [Done(kind="gone")]


SUSPECT = Task(1, "http://h/s", deliveries=4)


def test_suspect_is_read_in_quarantine_and_the_crash_record_names_nothing(
    world: World, use: Callable[..., None]
) -> None:
    seen: list[Suspect | None] = []
    use(
        on_page=lambda page, fetched: seen.append(world.crash_record.suspect()),
        request=lambda task, headers: {**headers, "x-own": "1"},
    )
    world.site.answers |= {url: html("<title>T</title>") for url in ("http://h/s", "http://h/b")}
    world.run(SUSPECT, "http://h/b")
    assert world.quarantine.read_ == ["http://h/s", "http://h/s"], "its headers, then its page"
    assert seen[0] is None
    assert seen[1] is not None
    assert world.site.headers[-1]["x-own"] == "1"
    assert [result.page.title for result in world.stores.results if result.page] == ["T", "T"]


@pytest.mark.parametrize("hook", [True, False])
def test_a_suspect_that_dies_in_quarantine_is_charged_and_the_session_goes_on(
    world: World, use: Callable[..., None], hook: bool
) -> None:
    if hook:
        use(request=lambda task, headers: headers)
    world.quarantine.error = DiedInQuarantine(
        FailureKind.STALLED, "read alone, it did not end within 30 s"
    )
    world.site.answers |= {url: html() for url in ("http://h/s", "http://h/b")}
    world.run(msgspec.structs.replace(SUSPECT, errors=2), Task(2, "http://h/b"))
    assert world.outcomes == [Dead("stalled"), Done(stored=True, bytes=0)]
    assert world.stores.results[0].finals[0].detail.startswith("read alone")
    assert world.site.pages == (["http://h/b"] if hook else ["http://h/s", "http://h/b"])


def test_suspect_goes_back_uncharged_when_there_is_no_process_to_read_it(world: World) -> None:
    world.quarantine.error = NoProcess("cannot be started")
    world.site.answers["http://h/s"] = html()
    close = world.run(SUSPECT, Task(2, "http://h/b"))
    assert world.outcomes == []
    assert close is not None
    assert close.release == (1, 2)


def test_a_page_that_is_costly_to_read_is_stored_counted_and_journalled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("kernels.http.BASE_SECONDS", "kernels.http.SECONDS_PER_WIRE_BYTE"):
        monkeypatch.setattr(f"greencrawl.worker.{name}", 0.0)
    monkeypatch.setattr("greencrawl.worker.process.costly.PARKED_SECONDS", 0.0)
    dear = html("<title>T</title>" + "<p>word" * 40_000)
    world.site.answers |= {f"http://h/{n}": dear for n in range(PARKED_AFTER + 1)}
    dear.wire_bytes = 10_000
    close = world.run(*sorted(world.site.answers))
    assert close is not None
    assert world.outcomes == [Done(stored=True, bytes=10_000, kind="costly")] * PARKED_AFTER
    assert close.release == (PARKED_AFTER + 1,)
    assert close.report.failed == "costly"
    assert close.report.why.startswith(f"reading {PARKED_AFTER} of its pages took ")
    assert close.report.delay > 0
    told = world.stores.results[0].attempts[0]
    assert told.kind == "costly"
    assert told.detail.startswith("reading it took 0.")
    assert world.quarantine.read_ == world.site.pages[1:], "from the second one on"


def test_a_page_whose_parse_does_not_end_is_given_up_in_quarantine(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_end(context: CrawlContext, task: Task, fetched: Fetched, kernel: str) -> Reading:
        return Reading(failure="its parse had not ended after 2.0 s of CPU", cpu=2.0)

    monkeypatch.setattr(world.quarantine, "read", without_end)
    world.site.answers |= {url: html() for url in ("http://h/s", "http://h/b")}
    world.run(SUSPECT)
    assert world.outcomes == [Dead("costly")]
    assert world.stores.results[0].finals[0].detail.startswith("its parse had not ended")


def test_patterns_are_searched_while_the_crash_record_names_the_page(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Suspect | None] = []
    search = scope.Rules.excluded_by

    def excluded_by(*args: Any, **named: Any) -> str | None:
        seen.append(world.crash_record.suspect())
        return search(*args, **named)

    monkeypatch.setattr(scope.Rules, "excluded_by", excluded_by)
    world.set(exclude=("(?=a)(a+)+$",))
    world.site.answers["http://h/r"] = status(302, location="/t")
    world.run("http://h/r")
    assert [suspect and suspect.url for suspect in seen] == ["http://h/r", "http://h/r"]
    assert world.result.page is not None
    assert [link.url for link in world.result.page.links] == ["http://h/t"]


def test_patterns_are_searched_for_a_suspect_only_in_quarantine(world: World) -> None:
    world.set(exclude=("(?=x)x",))
    world.quarantine.error = DiedInQuarantine(
        FailureKind.STALLED, "read alone, it did not end within 30 s"
    )
    world.run(msgspec.structs.replace(SUSPECT, errors=2), "http://h/b")
    assert world.quarantine.read_ == ["http://h/s"]
    assert world.outcomes == [Dead("stalled"), Done(kind="gone")]
