"""Unknown hosts that send nothing, with a real server, downloader and visits."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import gevent
import pytest
from gevent.event import Event

from greencrawl.schema.clock import monotonic
from greencrawl.schema.records import Crawl, CrawlOptions, Fetched, Session
from greencrawl.worker.crawls import context_of
from greencrawl.worker.http.client import Downloader
from greencrawl.worker.session import slow_hosts
from greencrawl.worker.session.fetcher import Visit, VisitOver
from greencrawl.worker.session.held import HeldSession, Sessions
from greencrawl.worker.session.slow_hosts import SLOW_SHARE, SlowHosts
from tests.support.raw_server import RawServer, answer, drip, send_then_stall

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
CONTEXT = context_of(Crawl(id=1, name="t", state="active", options=CrawlOptions(), roots=("h",)))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n"
GREENLETS = 3


class Rig:
    """One process's sessions; each asks for one page at ``server``."""

    def __init__(self, server: RawServer) -> None:
        self.server = server
        self.hosts = SlowHosts(GREENLETS)
        self.sessions = Sessions()
        self.downloader = Downloader(LOOPBACK, 20)
        self.visits: list[Visit] = []

    def begin(self, host: str, path: str, *, known: bool = False) -> gevent.Greenlet | None:
        """Start a session, if there is room; return its greenlet."""
        session = Session(
            session=f"1/{host}", token=host, crawl=1, revision=1, host=host, ttl=60,
            delay=0.0, floor=0.0, robots_known=known, tasks=(),
        )  # fmt: skip
        held = self.sessions.hold(session, monotonic() + 60)
        assert held is not None
        if not self.hosts.admits(held):
            return None
        visit = Visit(held, CONTEXT, self.downloader, Event())
        self.visits.append(visit)
        return gevent.spawn(self._ask, visit, held, path)

    def _ask(self, visit: Visit, held: HeldSession, path: str) -> str:
        try:
            found = visit.get(self.server.url(path), {}, 100_000)
        except VisitOver as error:
            return str(error)
        finally:
            self.hosts.ended(held, None)
        return "fetched" if isinstance(found, Fetched) else found.detail

    def look(self) -> None:
        self.hosts.look(self.sessions.holding(), monotonic())


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr(slow_hosts, "SLOW_SECONDS", 0.2)
    monkeypatch.setattr(slow_hosts, "SILENT_SECONDS", 0.1)
    paths = {
        "/silent": send_then_stall(b"", 60),
        "/slow": drip(HEAD + b"x" * 600, 0.05),
        "/good": answer(b"hello"),
    }
    with RawServer(paths) as server:
        made = Rig(server)
        yield made
        made.downloader.close()


def test_an_unknown_host_takes_the_place_of_a_silent_one(rig: Rig) -> None:
    most = SLOW_SHARE * GREENLETS
    silent = [rig.begin(f"silent-{i}", "/silent") for i in range(most)]
    assert all(silent)
    assert rig.begin("early", "/good") is None, "nobody is known to be silent yet"
    gevent.sleep(0.3)
    rig.look()
    good = rig.begin("good", "/good")
    assert good is not None
    assert good.get(timeout=2) == "fetched"
    assert silent[0] is not None
    assert silent[0].get(timeout=2) == "it had sent nothing, and others waited for its place"
    assert rig.visits[0].failure == "timeout"
    assert rig.visits[0].report().failed == "timeout"
    assert not any(one.ready() for one in silent[1:] if one is not None), "one for one"


def test_slow_hosts_that_send_something_or_are_known_keep_their_places(rig: Rig) -> None:
    most = SLOW_SHARE * GREENLETS
    begun = [rig.begin(f"slow-{i}", "/slow") for i in range(most - 1)]
    begun.append(rig.begin("known", "/silent", known=True))
    begun.append(rig.begin("last", "/slow"))
    gevent.sleep(0.4)
    rig.look()
    assert rig.hosts.slow == most + 1
    assert rig.begin("good", "/good") is None
    assert not any(one.ready() for one in begun if one is not None)


def test_silent_unknown_hosts_count_as_slow_soon_and_until_their_sessions_end(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_hosts, "SLOW_SECONDS", 60.0)
    for number in range(GREENLETS):
        assert rig.begin(f"silent-{number}", "/silent")
    assert rig.begin("known", "/silent", known=True)
    rig.look()
    assert rig.hosts.slow == 0, "they have just begun"
    gevent.sleep(0.15)
    rig.look()
    assert rig.hosts.slow == GREENLETS
    sessions = rig.sessions.holding()
    rig.downloader.close()
    for held in sessions:
        rig.hosts.ended(held, None)
    assert rig.hosts.slow == 0
