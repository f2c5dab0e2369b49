"""tdmrep.json from real servers: when it is asked for, what is kept of it, what may go wrong."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from greencrawl.schema.records import Directives, StoredPage
from greencrawl.worker.http.client import Downloader
from greencrawl.worker.pipeline import Pipeline
from greencrawl.worker.robots import reservations, tdmrep
from greencrawl.worker.robots.reservations import SiteReservations
from tests.support.site_server import Answer, Request, SiteServer
from tests.worker.test_pipeline import World

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
FILE = json.dumps([{"location": "/closed/", "tdm-reservation": 1}]).encode()
JSON = {"Content-Type": "application/json"}
PAGE = b"<title>T</title><p>words<a href=/closed/b>b</a>"
RESERVED = Directives(tdm="reserved", withheld="tdm_reservation")


class Server:
    """A site whose answers can be changed while it serves."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.answers: dict[str, Answer] = {tdmrep.PATH: Answer(body=FILE, headers=JSON)}
        self.server = SiteServer(self.site)

    def site(self, request: Request) -> Answer:
        if request.target == "/robots.txt":
            return self.answers.get(request.target, Answer(404))
        return self.answers.get(request.target, Answer(body=PAGE))

    @property
    def asked(self) -> list[str]:
        """Paths, in order, robots.txt apart."""
        return [hit.target for hit in self.server.hits if hit.target != "/robots.txt"]

    def run(self, *paths: str, pipeline: Pipeline | None = None) -> list[StoredPage]:
        """Pages of a session."""
        before = len(self.world.stores.results)
        host = f"127.0.0.1:{self.server.port}"
        self.world.run(*map(self.server.url, paths), host=host, pipeline=pipeline)
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


def test_the_file_is_asked_for_once_and_before_the_first_page(server: Server) -> None:
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


def test_it_is_not_asked_for_where_signals_are_recorded_only(server: Server) -> None:
    server.world.set(scope="any")
    server.answers["/a"] = Answer(
        body=PAGE, headers={"Content-Type": "text/html", "tdm-reservation": "1"}
    )
    (page,) = server.run("/a")
    assert server.asked == ["/a"]
    assert page.directives == Directives(tdm="reserved")
    assert page.text


def test_a_page_that_says_otherwise_counts_more(server: Server) -> None:
    server.answers["/closed/a"] = Answer(body=PAGE + b"<meta name=tdm-reservation content=0>")
    (page,) = server.run("/closed/a")
    assert page.directives == Directives(tdm="open")
    assert page.text


def test_robots_that_forbid_it_are_obeyed(server: Server) -> None:
    server.answers["/robots.txt"] = Answer(body=b"User-agent: *\nDisallow: /.well-known/")
    (page,) = server.run("/closed/a")
    assert server.asked == ["/closed/a"]
    assert page.directives is None


@pytest.mark.parametrize("status", [404, 403, 410])
def test_where_there_is_none_nothing_is_reserved(server: Server, status: int) -> None:
    server.answers[tdmrep.PATH] = Answer(status)
    (page,) = server.run("/closed/a")
    assert page.directives is None
    server.run("/closed/b", pipeline=server.world.pipeline())
    assert server.asked.count(tdmrep.PATH) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_one_that_cannot_be_had_is_asked_for_again_later(server: Server, status: int) -> None:
    server.answers[tdmrep.PATH] = Answer(status)
    now = 0.0
    pipeline = server.world.pipeline()
    pipeline._reservations = SiteReservations(server.world.stores, lambda: now)
    (page,) = server.run("/closed/a", pipeline=pipeline)
    assert page.directives is None
    server.answers[tdmrep.PATH] = Answer(body=FILE, headers=JSON)
    now = reservations.AGAIN_SECONDS - 1
    assert [one.directives for one in server.run("/closed/b", pipeline=pipeline)] == [None]
    now = reservations.AGAIN_SECONDS + 1
    assert [one.directives for one in server.run("/closed/c", pipeline=pipeline)] == [RESERVED]
    assert server.asked.count(tdmrep.PATH) == 2
    now += reservations.LOCAL_SECONDS + 1
    server.run("/closed/d", pipeline=pipeline)
    assert server.asked.count(tdmrep.PATH) == 2, "it is in the shared cache"


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
def test_redirects_are_followed_on_the_host_to_a_file_of_its_name(
    server: Server, location: str, reserved: bool
) -> None:
    server.answers[tdmrep.PATH] = Answer(302, headers={"Location": location})
    server.answers["/policies/tdmrep.json?v=1"] = Answer(body=FILE, headers=JSON)
    server.answers["/other.json"] = Answer(body=FILE, headers=JSON)
    (page,) = server.run("/closed/a")
    assert (page.directives == RESERVED) == reserved
    assert len(server.asked) <= 7


@pytest.mark.parametrize("state", ["away", "full"])
def test_without_the_shared_cache_each_process_asks_once(server: Server, state: str) -> None:
    server.world.stores.refuses = state
    pipeline = server.world.pipeline()
    for path in ("/closed/a", "/closed/b"):
        assert [one.directives for one in server.run(path, pipeline=pipeline)] == [RESERVED]
    assert server.asked.count(tdmrep.PATH) == 1


def test_a_record_that_is_damaged_is_fetched_anew(server: Server) -> None:
    where = server.server.url(tdmrep.PATH)
    server.world.stores.robots[where] = b"no record"
    assert [one.directives for one in server.run("/closed/a")] == [RESERVED]
    assert server.asked[0] == tdmrep.PATH


def test_files_of_many_origins_are_not_all_kept_in_memory(
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
def test_other_signals_are_obeyed_as_well(
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
