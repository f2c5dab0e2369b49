"""robots.txt from real servers that ask to wait, redirect, or send long files."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import msgspec
import pytest

from greencrawl.schema.records import Admission, Dead, Retry, Task, TaskKind
from greencrawl.worker.http.client import Downloader
from greencrawl.worker.process.turns import in_turns
from greencrawl.worker.retry import GIVE_UP_FAILURES, PATIENCE, TABLE
from greencrawl.worker.robots import cache, parser
from greencrawl.worker.robots.cache import RobotsRules
from tests.support.raw_server import Behaviour, RawServer, answer
from tests.worker.test_pipeline import World

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
PAGE = answer(b"<title>T</title>", Content_Type="text/html")
TRIES = 5


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world that fetches pages and robots.txt over the network, as from any host."""
    made = World(tmp_path)
    made.set(tries=TRIES)
    downloader = Downloader(LOOPBACK, 5)
    made.site = downloader  # type: ignore[assignment]
    yield made
    downloader.close()


def host_of(server: RawServer) -> str:
    return f"127.0.0.1:{server.port}"


def crawl(world: World, server: RawServer, **more: Any) -> None:
    """Run a session of the server's host with one task."""
    crawl = world.stores.crawl_
    host = host_of(server)
    world.stores.crawl_ = msgspec.structs.replace(crawl, roots=(*crawl.roots, host))
    world.run(Task(1, server.url("/a"), errors=more.pop("errors", 0)), host=host, **more)


# --- 429 and 503 -----------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["503 Service Unavailable", "429 Too Many Requests"])
def test_a_seed_is_not_given_up_while_its_robots_txt_answers_with_retry_after(
    world: World, status: str
) -> None:
    """For example, a server starts up and asks to wait a second more often than there are tries."""
    left = TRIES + 3

    def starting(sock: Any) -> object:
        nonlocal left
        left -= 1
        late: Behaviour = answer(b"", status, Retry_After="1") if left >= 0 else answer(b"")
        return late(sock)

    with RawServer({"/robots.txt": starting, "/a": PAGE}) as server:
        for errors in range(TRIES + 3):
            crawl(world, server, errors=errors, failures=errors)
            outcome = world.stores.results[-1].outcome
            assert outcome == Retry(1.0, "robots_unreachable")
        crawl(world, server, errors=TRIES + 3, failures=TRIES + 3)
    assert world.stores.results[-1].page is not None


def test_a_seed_is_given_up_if_its_robots_txt_stays_unavailable(world: World) -> None:
    patient = TABLE[cache._KIND].tries * PATIENCE
    with RawServer(answer(b"", "503 Service Unavailable", Retry_After="1")) as server:
        crawl(world, server, errors=patient - 1)
    assert world.result.outcome == Dead("robots_unreachable")


@pytest.mark.parametrize(("told", "kept"), [({"Retry_After": "1"}, True), ({}, False)])
def test_a_host_that_sends_retry_after_is_not_given_up(
    world: World, told: dict[str, str], kept: bool
) -> None:
    with RawServer(answer(b"", "503 Service Unavailable", **told)) as server:
        crawl = world.stores.crawl_
        world.stores.crawl_ = msgspec.structs.replace(crawl, roots=(host_of(server),))
        urls = [server.url(path) for path in ("/a", "/b", "/c")]
        close = world.run(*urls, host=host_of(server), failures=GIVE_UP_FAILURES)
    assert close is not None
    assert close.release == ((2, 3) if kept else ())


# --- redirects -------------------------------------------------------------------------------


def moved(location: str) -> Behaviour:
    return answer(b"", "302 Found", Location=location)


@pytest.mark.parametrize("path", ["/", "/logout", "/a?/robots.txt", "/login?next=/robots.txt"])
def test_a_robots_txt_that_redirects_to_a_page_counts_as_no_rules_and_fetches_nothing(
    world: World, path: str
) -> None:
    with RawServer(PAGE) as other:
        target = other.url(path)
        with RawServer({"/robots.txt": moved(target), "/a": PAGE}) as server:
            crawl(world, server)
            assert server.paths == ["/robots.txt", "/a"]
    assert world.stores.asked == []
    assert other.paths == []
    assert world.result.page is not None


@pytest.mark.parametrize(
    "path",
    ["/robots.txt?q=1", "/robots.html", "/robots.txt/x", "/ROBOTS/7.TXT", "/?robots=1", "/a.txt"],
)
def test_a_redirect_of_robots_txt_to_a_file_that_is_not_fetched_forbids_all_for_now(
    world: World, path: str
) -> None:
    """A redirect leads to another host; the URL may have rules but does not look like
    robots.txt."""
    with RawServer(PAGE) as other:
        target = other.url(path)
        with RawServer({"/robots.txt": moved(target), "/a": PAGE}) as server:
            crawl(world, server)
            assert server.paths == ["/robots.txt"]
    assert world.stores.asked == []
    assert other.paths == []
    outcome = world.result.outcome
    assert isinstance(outcome, Retry)
    assert outcome.kind == "robots_unreachable"
    assert "is redirected to" in world.result.attempts[0].detail


def test_a_home_page_is_not_taken_for_robots_txt_by_the_name_of_its_host() -> None:
    for target in ("http://robots.txt/", "http://robots.example", "http://a.example/"):
        assert not cache._wanted(target, True)
        assert not cache._may_rule(target)


@pytest.mark.parametrize("path", ["/robots.txt", "/sites/7/Robots.txt", "/robots.txt/"])
def test_a_redirect_to_robots_txt_of_another_host_is_asked_of_that_hosts_session(
    world: World, path: str
) -> None:
    rules = answer(b"User-agent: *\nDisallow: /a")
    with RawServer({path: rules}) as other:

        def answered(question: Admission) -> None:
            mine, world.stores.answer = world.held, None
            world.run(Task(1, question.url, redirects=1, kind=question.kind), host=host_of(other))
            world.held = mine

        world.stores.answer = answered
        with RawServer({"/robots.txt": moved(other.url(path)), "/a": PAGE}) as server:
            crawl(world, server)
            assert server.paths == ["/robots.txt"]
    assert other.paths == [path]
    assert world.stores.results[-1].finals[0].kind == "robots"
    of_its_own = f"http://{host_of(other)}" in world.stores.robots
    assert of_its_own == (path == "/robots.txt"), "other paths say nothing of that host's pages"


@pytest.mark.parametrize(
    "path", ["/seo/robots", "/robots.php?v=2", "/crawlers.txt", "/robots.txt/", "/r/robots//"]
)
def test_a_redirect_of_robots_txt_on_its_own_host_may_lead_to_other_names(
    world: World, path: str
) -> None:
    rules = answer(b"User-agent: *\nDisallow: /a")
    with RawServer({"/robots.txt": moved(path), path: rules, "/a": PAGE}) as server:
        crawl(world, server)
        assert server.paths == ["/robots.txt", path]


def test_a_redirect_of_robots_txt_on_its_own_host_fetches_no_page(world: World) -> None:
    with RawServer({"/robots.txt": moved("/login"), "/login": PAGE, "/a": PAGE}) as server:
        crawl(world, server)
        assert server.paths == ["/robots.txt", "/a"]


@pytest.mark.parametrize("redirects", [1, 3])
def test_redirects_of_robots_txt_lead_to_two_other_hosts_at_most(
    world: World, redirects: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each host has a server of its own; a host before them asks the first question."""
    monkeypatch.setattr(cache, "ASK_SECONDS", 0.0)
    with (
        RawServer(answer(b"User-agent: *\nDisallow: /")) as third,
        RawServer(moved(third.url("/robots.txt"))) as second,
        RawServer(moved(second.url("/robots.txt"))) as first,
    ):
        servers = {host_of(server): server for server in (first, second, third)}

        def answered(question: Admission) -> None:
            mine = world.held
            ask(question.url, question.redirects)
            world.held = mine

        def ask(url: str, redirects: int) -> None:
            task = Task(1, url, redirects=redirects, kind=TaskKind.ROBOTS)
            world.run(task, host=url.split("/")[2])

        world.stores.answer = answered
        ask(first.url("/robots.txt"), redirects)
        assert [len(server.paths) for server in servers.values()] == [1, 1, 0]
    assert world.stores.robots == {}, "the third may have rules"


# --- long files ------------------------------------------------------------------------------

LONG = b"User-agent: *\n" + b"".join(b"Disallow: /*a%d*b\n" % n for n in range(25_000))


def test_other_greenlets_run_while_a_long_robots_txt_is_compiled(world: World) -> None:
    gate = RobotsRules(world.stores)
    world.stores.robots["http://h"] = parser.pack("rules", LONG, 0)
    compiled = gevent.spawn(lambda: gate._known("http://h"))
    turns = 0
    while not compiled.ready():
        turns += 1
        gevent.sleep(0)
    rules = compiled.get()
    before = turns
    made = gevent.spawn(lambda: in_turns(rules.of_steps("bot")))
    while not made.ready():
        turns += 1
        gevent.sleep(0)
    assert before > 2
    assert turns > before + 2


def test_a_host_rests_after_a_robots_txt_that_is_costly_to_compile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_DEAR_SECONDS", 0.001)
    with RawServer({"/robots.txt": answer(LONG[:100_000]), "/a": PAGE}) as server:
        host = host_of(server)
        world.stores.crawl_ = msgspec.structs.replace(world.stores.crawl_, roots=(host,))
        rested: list[float] = []
        world.stopping.wait = rested.append  # type: ignore[method-assign,assignment]
        world.run(server.url("/a"), host=host)
    assert rested
    assert rested[0] >= 0.001 / cache._SHARE
