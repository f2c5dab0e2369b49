"""tdmrep.json from real servers: when it is fetched, what is kept, and what may go wrong."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from greencrawl.broker.frontier.scripts import partition
from greencrawl.schema.clock import monotonic
from greencrawl.schema.records import (
    CloseItem,
    Directives,
    Failure,
    FailureKind,
    Fetched,
    HostReport,
    StoredPage,
)
from greencrawl.worker.http.client import Downloader
from greencrawl.worker.pipeline import Pipeline
from greencrawl.worker.robots import reservations, tdmrep
from greencrawl.worker.robots.cache import RobotsRules
from greencrawl.worker.robots.reservations import SiteReservations
from tests.support.site_server import Answer, Request, SiteServer
from tests.worker.test_pipeline import World, html

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
FILE = json.dumps([{"location": "/closed/", "tdm-reservation": 1}]).encode()
JSON = {"Content-Type": "application/json"}
PAGE = b"<title>T</title><p>words<a href=/closed/b>b</a>"
RESERVED = Directives(tdm="reserved", withheld="tdm_reservation")


class Server:
    """A site whose answers can change while it serves."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.answers: dict[str, Answer] = {tdmrep.PATH: Answer(body=FILE, headers=JSON)}
        self.server = SiteServer(self.site)
        self.failures = 0
        """The number of sessions in a row in which the host failed, as the next one is told."""
        self.close: CloseItem | None = None

    def site(self, request: Request) -> Answer:
        if request.target == "/robots.txt":
            return self.answers.get(request.target, Answer(404))
        return self.answers.get(request.target, Answer(body=PAGE))

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def report(self) -> HostReport:
        """Return how the last session was closed."""
        assert self.close is not None
        return self.close.report

    @property
    def asked(self) -> list[str]:
        """Return the paths that were asked for, in order, without robots.txt."""
        return [hit.target for hit in self.server.hits if hit.target != "/robots.txt"]

    def run(self, *paths: str, pipeline: Pipeline | None = None) -> list[StoredPage]:
        """Run a session; return its pages."""
        before = len(self.world.stores.results)
        self.close = self.world.run(
            *map(self.server.url, paths), host=self.host, failures=self.failures, pipeline=pipeline
        )
        pages = [result.page for result in self.world.stores.results[before:]]
        assert None not in pages
        return [page for page in pages if page is not None]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    world = World(tmp_path)
    world.set(tdm="obey", scope="any")
    downloader = Downloader(LOOPBACK, 5)
    world.site = downloader  # type: ignore[assignment]
    made = Server(world)
    with made.server:
        yield made
    downloader.close()


def test_tdmrep_json_is_requested_once_and_before_the_first_page(server: Server) -> None:
    closed, open_ = server.run("/closed/a", "/open")
    assert server.asked == [tdmrep.PATH, "/closed/a", "/open"]
    assert closed.directives == RESERVED
    assert (closed.title, closed.text, closed.body) == ("", "", b"")
    assert closed.links
    assert open_.directives is None
    assert open_.text
    pipeline = server.world.pipeline()
    server.run("/closed/c", pipeline=pipeline)
    server.run("/closed/d", pipeline=pipeline)
    assert server.asked.count(tdmrep.PATH) == 1, "another process has it from the shared cache"


def test_tdmrep_json_is_not_requested_if_signals_are_only_recorded(server: Server) -> None:
    server.world.set(scope="any")
    server.answers["/a"] = Answer(
        body=PAGE, headers={"Content-Type": "text/html", "tdm-reservation": "1"}
    )
    (page,) = server.run("/a")
    assert server.asked == ["/a"]
    assert page.directives == Directives(tdm="reserved")
    assert page.text


def test_the_reservation_of_a_page_counts_more_than_tdmrep_json(server: Server) -> None:
    server.answers["/closed/a"] = Answer(body=PAGE + b"<meta name=tdm-reservation content=0>")
    (page,) = server.run("/closed/a")
    assert page.directives == Directives(tdm="open")
    assert page.text


def test_tdmrep_json_is_not_requested_if_robots_txt_forbids_it(server: Server) -> None:
    server.answers["/robots.txt"] = Answer(body=b"User-agent: *\nDisallow: /.well-known/")
    (page,) = server.run("/closed/a")
    assert server.asked == ["/closed/a"]
    assert page.directives is None


@pytest.mark.parametrize("status", [404, 403, 410])
def test_no_rights_are_reserved_if_tdmrep_json_does_not_exist(server: Server, status: int) -> None:
    server.answers[tdmrep.PATH] = Answer(status)
    (page,) = server.run("/closed/a")
    assert page.directives is None
    server.run("/closed/b", pipeline=server.world.pipeline())
    assert server.asked.count(tdmrep.PATH) == 1


def test_tdmrep_json_is_requested_again_later_after_a_failure(server: Server) -> None:
    server.answers[tdmrep.PATH] = Answer(500)
    now = 0.0
    pipeline = server.world.pipeline()
    pipeline._reservations = SiteReservations(
        server.world.stores, RobotsRules(server.world.stores), lambda: now
    )
    (page,) = server.run("/closed/a", pipeline=pipeline)
    assert page.directives is None
    assert not server.report.failed, "the table says that of the URL, not of its host"
    server.world.stores.robots.clear()  # Redis forgets it
    server.answers[tdmrep.PATH] = Answer(body=FILE, headers=JSON)
    now = reservations.AGAIN_SECONDS - 1
    assert [one.directives for one in server.run("/closed/b", pipeline=pipeline)] == [None]
    now = reservations.AGAIN_SECONDS + 1
    assert [one.directives for one in server.run("/closed/c", pipeline=pipeline)] == [RESERVED]
    assert server.asked.count(tdmrep.PATH) == 2
    now += reservations.LOCAL_SECONDS + 1
    server.run("/closed/d", pipeline=pipeline)
    assert server.asked.count(tdmrep.PATH) == 2, "it is in the shared cache"


def _blocked(server: Server, *paths: str, pipeline: Pipeline | None = None) -> HostReport:
    """Run a session that stores nothing and returns all its tasks; return how it ended."""
    assert server.run(*paths, pipeline=pipeline) == []
    assert server.world.outcomes == [], "nobody is charged"
    assert server.close is not None
    assert server.close.release == tuple(range(1, len(paths) + 1))
    return server.report


@pytest.mark.parametrize(
    ("status", "headers", "kind", "block"),
    [
        (503, {"Retry-After": "20"}, "unavailable", 20),
        (429, {"Retry-After": "3600"}, "rate_limited", 3600),
        (503, {}, "unavailable", 0),
        (429, {}, "rate_limited", 0),
    ],
)
def test_a_host_whose_tdmrep_json_answers_429_or_503_rests_before_its_pages(
    server: Server, status: int, headers: dict[str, str], kind: str, block: int
) -> None:
    server.answers[tdmrep.PATH] = Answer(status, headers=headers)
    now = 0.0
    pipeline = server.world.pipeline()
    pipeline._reservations = SiteReservations(
        server.world.stores, RobotsRules(server.world.stores), lambda: now
    )
    report = _blocked(server, "/closed/a", "/b", pipeline=pipeline)
    assert (report.failed, report.block, report.requests) == (kind, block, 2)
    assert report.why == f"tdmrep.json: HTTP {status}"
    assert server.asked == [tdmrep.PATH]
    server.failures = 1
    now = block + 1
    for process in (pipeline, server.world.pipeline()):
        pages = server.run("/closed/a", pipeline=process)
        assert [page.directives for page in pages] == [None], "pages speak for themselves"
    assert server.asked.count(tdmrep.PATH) == 1, "or a host that always says so has no page fetched"


@pytest.mark.parametrize("failures", [0, 3, 9, 10_000])
def test_tdmrep_json_is_not_requested_again_before_the_hosts_back_off_is_over(
    server: Server, failures: int
) -> None:
    server.answers[tdmrep.PATH] = Answer(503)
    server.failures = failures
    pipeline = server.world.pipeline()
    _blocked(server, "/a", pipeline=pipeline)
    back_off = min(partition.FIRST_BACKOFF_SECONDS * 2.0 ** min(failures, 20), 3600)
    (kept,) = pipeline._reservations._local.values()
    assert kept.until - monotonic() > back_off + reservations.AGAIN_SECONDS / 2


@pytest.mark.parametrize(
    ("kind", "ends"), [(FailureKind.CONNECT_TIMEOUT, True), (FailureKind.RESET, False)]
)
def test_a_failure_at_tdmrep_json_that_concerns_the_host_ends_the_session(
    tmp_path: Path, kind: FailureKind, ends: bool
) -> None:
    world = World(tmp_path)
    world.set(tdm="obey", scope="any")
    world.site.answers = {f"http://h{tdmrep.PATH}": Failure(kind), "http://h/": html("<p>words")}
    close = world.run("http://h/")
    assert close is not None
    assert close.report.failed == (str(kind) if ends else "")
    assert close.release == ((1,) if ends else ())
    assert ("http://h/" in world.site.asked) != ends
    world.run("http://h/")
    assert world.site.asked.count(f"http://h{tdmrep.PATH}") == 1, "pages are tried, and charged"
    assert world.site.asked[-1] == "http://h/"


def test_tdmrep_json_that_another_process_failed_to_get_is_looked_up_again_soon(
    server: Server,
) -> None:
    server.answers[tdmrep.PATH] = Answer(500)
    server.run("/closed/a")
    now = 0.0
    pipeline = server.world.pipeline()
    pipeline._reservations = SiteReservations(
        server.world.stores, RobotsRules(server.world.stores), lambda: now
    )
    server.run("/closed/b", pipeline=pipeline)
    server.answers[tdmrep.PATH] = Answer(body=FILE, headers=JSON)
    server.world.stores.robots.clear()
    server.run("/closed/c", pipeline=pipeline)
    assert server.asked.count(tdmrep.PATH) == 1
    now = 61.0
    assert [one.directives for one in server.run("/closed/d", pipeline=pipeline)] == [RESERVED]


@pytest.mark.parametrize("location", ["/private/tdmrep.json", "/open/tdmrep.json"])
def test_robots_txt_is_obeyed_at_each_redirect_of_tdmrep_json(
    server: Server, location: str
) -> None:
    server.answers["/robots.txt"] = Answer(body=b"User-agent: *\nDisallow: /private/")
    server.answers["/open/tdmrep.json"] = Answer(302, headers={"Location": "/private/tdmrep.json"})
    server.answers[tdmrep.PATH] = Answer(302, headers={"Location": location})
    server.answers["/private/tdmrep.json"] = Answer(body=FILE, headers=JSON)
    pages = server.run("/closed/a", "/closed/b")
    assert [page.directives for page in pages] == [None, None]
    assert "/private/tdmrep.json" not in server.asked
    assert server.asked.count(tdmrep.PATH) == 1
    assert server.server.url(tdmrep.PATH) not in server.world.stores.robots, (
        "to another name robots.txt may say something else"
    )


@pytest.mark.parametrize(
    ("status", "body", "fetched"),
    [(200, b"User-agent: *\nDisallow: /.well-known/", False), (404, b"", True), (503, b"", False)],
)
def test_a_redirect_of_tdmrep_json_to_another_origin_obeys_the_robots_txt_there(
    tmp_path: Path, status: int, body: bytes, fetched: bool
) -> None:
    world = World(tmp_path)
    world.set(tdm="obey", scope="any")
    there = f"https://h{tdmrep.PATH}"
    world.site.answers = {
        "http://h/closed/a": html("<p>words"),
        f"http://h{tdmrep.PATH}": Fetched("", 301, {"location": there}, b""),
        "https://h/robots.txt": Fetched("", status, {}, body),
        there: Fetched("", 200, {}, FILE),
    }
    close = world.run("http://h/closed/a")
    assert (there in world.site.asked) == fetched
    assert close is not None
    assert close.report.failed == ("robots_unreachable" if status == 503 else "")
    pages = [result.page for result in world.stores.results]
    assert [page and page.directives for page in pages] == (
        [] if status == 503 else [RESERVED if fetched else None]
    )


def test_two_redirects_of_tdmrep_json_are_followed_at_most(server: Server) -> None:
    ways = [tdmrep.PATH, *(f"/{n}/tdmrep.json" for n in range(1, 4))]
    for way, after in pairwise(ways):
        server.answers[way] = Answer(302, headers={"Location": after})
    server.answers[ways[2]] = Answer(body=FILE, headers=JSON)
    (page,) = server.run("/closed/a")
    assert page.directives == RESERVED
    server.answers[ways[2]] = Answer(302, headers={"Location": ways[3]})
    server.answers[ways[3]] = Answer(body=FILE, headers=JSON)
    server.world.stores.robots.clear()
    server.server.hits.clear()
    (page,) = server.run("/closed/a")
    assert page.directives is None
    assert server.asked == [*ways[:3], "/closed/a"]


@pytest.mark.parametrize(
    ("location", "reserved"),
    [
        ("/policies/tdmrep.json?v=1", True),
        ("/other.json", False),
        ("http://other.example/.well-known/tdmrep.json", False),
        ("http://[", False),
        ("/.well-known/tdmrep.json", False),
    ],
)
def test_redirects_of_tdmrep_json_are_followed_only_to_that_name_on_its_host(
    server: Server, location: str, reserved: bool
) -> None:
    server.answers[tdmrep.PATH] = Answer(302, headers={"Location": location})
    server.answers["/policies/tdmrep.json?v=1"] = Answer(body=FILE, headers=JSON)
    server.answers["/other.json"] = Answer(body=FILE, headers=JSON)
    (page,) = server.run("/closed/a")
    assert (page.directives == RESERVED) == reserved
    assert len(server.asked) <= 1 + reservations.MAX_REDIRECTS + 1


@pytest.mark.parametrize("state", ["away", "full"])
def test_each_process_requests_tdmrep_json_once_without_the_shared_cache(
    server: Server, state: str
) -> None:
    server.world.stores.refuses = state
    pipeline = server.world.pipeline()
    for path in ("/closed/a", "/closed/b"):
        assert [one.directives for one in server.run(path, pipeline=pipeline)] == [RESERVED]
    assert server.asked.count(tdmrep.PATH) == 1


def test_tdmrep_json_is_fetched_anew_if_its_cached_record_is_damaged(server: Server) -> None:
    where = server.server.url(tdmrep.PATH)
    server.world.stores.robots[where] = b"no record"
    assert [one.directives for one in server.run("/closed/a")] == [RESERVED]
    assert server.asked[0] == tdmrep.PATH


def test_tdmrep_files_of_many_origins_are_not_all_kept_in_memory(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = [{"location": f"/{n}", "tdm-reservation": 1} for n in range(100)]
    server.answers[tdmrep.PATH] = Answer(body=json.dumps(rules).encode(), headers=JSON)
    monkeypatch.setattr(reservations, "_BYTES", 50_000)
    pipeline = server.world.pipeline()
    kept = pipeline._reservations
    for n in range(1, 5):
        with SiteServer(server.site, (f"127.0.0.{n}",)) as one:
            host = f"127.0.0.{n}:{one.port}"
            server.world.run(f"http://{host}/x", host=host, pipeline=pipeline)
    assert len(kept._local) == 1
    assert kept._bytes < 50_000


@pytest.mark.parametrize(
    ("head", "headers", "withheld"),
    [
        ("<meta name=robots content=noai>", {}, "noai"),
        ("<meta name=robots content='noimageai'>", {}, ""),
        ("", {"X-Robots-Tag": "noai"}, "noai"),
        ("", {"X-Robots-Tag": "noimageai", "Content-Type": "image/png"}, "noimageai"),
        ("", {"tdm-reservation": "1", "Content-Type": "image/png"}, "tdm_reservation"),
        ("<meta name=tdm-reservation content=1>", {"tdm-reservation": "0"}, "tdm_reservation"),
        ("<meta name=robots content='noai, noindex'>", {}, "noindex"),
    ],
)
def test_noai_and_reservations_of_pages_are_obeyed_too(
    server: Server, head: str, headers: dict[str, str], withheld: str
) -> None:
    server.world.set(tdm="obey", scope="any", bodies="all")
    server.answers["/a"] = Answer(
        body=head.encode() + PAGE, headers={"Content-Type": "text/html", **headers}
    )
    (page,) = server.run("/a")
    assert page.directives is not None
    assert page.directives.withheld == withheld
    assert (page.body == b"") == bool(withheld)
