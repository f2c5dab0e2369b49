"""Hosts whose pages take too much CPU, with a real server, downloader, pages and separate
reader."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import brotli
import gevent
import pytest
from gevent.event import Event

from greencrawl.schema.clock import monotonic
from greencrawl.schema.records import (
    Crawl,
    CrawlOptions,
    Failure,
    FailureKind,
    Fetched,
    Session,
    Task,
)
from greencrawl.schema.records.auth import Form
from greencrawl.worker.auth.base import Grant
from greencrawl.worker.auth.kinds import form_page
from greencrawl.worker.auth.kinds.registry import make
from greencrawl.worker.crawls import context_of
from greencrawl.worker.http.client import Downloader
from greencrawl.worker.kernels import http as reading
from greencrawl.worker.process import costly, guarded
from greencrawl.worker.process.costly import (
    CHEAP_AGAIN,
    PARKED_AFTER,
    REST,
    UNPACKING_SECONDS,
    CostlyHosts,
    unpacking,
)
from greencrawl.worker.process.crash_record import CrashRecord
from greencrawl.worker.process.guarded import Guarded
from greencrawl.worker.process.quarantine import Quarantine
from greencrawl.worker.session.fetcher import Visit
from greencrawl.worker.session.held import HeldSession
from tests.support.checkout import ROOT
from tests.support.raw_server import RawServer, answer

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
HTML = {"content-type": "text/html"}
CONTEXT = context_of(Crawl(id=1, name="t", state="active", options=CrawlOptions(), roots=("h",)))

DEAR = b"<b><i><u><p>x" * 40_000
"""Half a megabyte from a few dozen bytes; it takes about 60 ms."""
CHEAP = b"<title>cheap</title>" + b"<p>word" * 3_000


class Worker:
    """It reads the pages of hosts; a host is only a name, of one server or of none."""

    def __init__(self, folder: Path) -> None:
        self.alone = Quarantine(60.0)
        self.guarded = Guarded(CrashRecord(folder / "crash"), self.alone)
        self.downloader = Downloader(LOOPBACK, 20)

    def visit(self, host: str) -> Visit:
        session = Session(
            session=f"1/{host}", token="t", crawl=1, revision=1, host=host, ttl=60,
            delay=0.0, floor=0.0, robots_known=True, tasks=(),
        )  # fmt: skip
        return Visit(HeldSession(session, 1e12), CONTEXT, self.downloader, Event())

    def read(self, visit: Visit, body: bytes, address: str = "", wire: int = 100) -> str:
        """Return how a page went beyond its grant, or "" if it did not."""
        fetched = Fetched("http://h/", 200, HTML, body, wire_bytes=wire, address=address)
        return self.guarded.read(visit, Task(1, "http://h/"), fetched).costly


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    monkeypatch.chdir(ROOT)
    # Otherwise each page would have to take that long.
    monkeypatch.setattr(reading, "BASE_SECONDS", 0.005)
    monkeypatch.setattr(guarded, "stops", lambda: True)  # as if the reader were compiled
    monkeypatch.setattr(costly, "PARKED_SECONDS", 0.05)
    made = Worker(tmp_path)
    yield made
    made.alone.close()
    made.downloader.close()


def test_a_host_is_charged_for_a_page_beyond_its_grant_and_no_other_host(worker: Worker) -> None:
    bad, good = worker.visit("bad"), worker.visit("good")
    assert "s were granted" in worker.read(bad, DEAR, wire=len(DEAR) // 40)
    assert 0.005 * REST < bad.report().delay < 60
    assert not bad.failed
    assert worker.alone.pid is None, "nobody knew"
    worker.read(good, CHEAP)
    assert worker.alone.pid is None
    worker.read(bad, CHEAP)
    assert worker.alone.pid is not None
    assert good.report().delay == 0


@pytest.mark.parametrize(
    "addresses",
    [
        ("192.0.2.1",) * 4,
        ("2001:db8:1:2::1", "2001:db8:1:2::2", "2001:db8:1:2:3::", "2001:db8:1:2:ff::4"),
    ],
)
def test_other_domains_of_a_machine_with_some_costly_ones_are_read_alone_uncharged(
    worker: Worker, addresses: tuple[str, ...]
) -> None:
    """One bad domain is not enough: a platform's machine has thousands of honest ones."""
    *bad, last = addresses
    for n, address in enumerate(bad):
        worker.read(worker.visit(f"good{n}.example"), CHEAP, address=address)
        assert worker.alone.pid is None
        worker.read(worker.visit(f"bad{n}.example"), DEAR, address=address, wire=len(DEAR) // 40)
    other = worker.visit("other.example")
    worker.read(other, CHEAP, address=last)
    assert worker.alone.pid is not None
    assert other.report().delay == 0


def test_other_hosts_of_a_costly_domain_are_read_alone_at_any_address(worker: Worker) -> None:
    bad = worker.visit("a.example.org")
    worker.read(bad, DEAR, address="192.0.2.1", wire=len(DEAR) // 40)
    worker.read(worker.visit("good.example"), CHEAP, address="192.0.2.1")
    assert worker.alone.pid is None
    other = worker.visit("b.example.org")
    worker.read(other, CHEAP, address="192.0.2.2")
    assert worker.alone.pid is not None
    assert other.report().delay == 0


def test_a_host_is_parked_with_a_reason_after_some_costly_pages(worker: Worker) -> None:
    for _ in range(PARKED_AFTER):
        visit = worker.visit("bad")
        worker.read(visit, DEAR)
    report = visit.report()
    assert report.failed == "costly"
    assert report.block == 0, "its own back-off"
    assert report.why.startswith(f"reading {PARKED_AFTER} of its pages took 0.")
    again = worker.visit("bad")
    worker.read(again, DEAR)
    assert again.failed, "at once, when it comes back"


def test_a_host_is_not_parked_for_costly_pages_that_took_little_together(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costly, "PARKED_SECONDS", 60.0)
    for _ in range(PARKED_AFTER):
        visit = worker.visit("bad")
        worker.read(visit, DEAR)
    assert not visit.failed
    assert visit.report().delay > 0


def test_a_long_page_that_was_highly_compressed_is_read_alone_at_once(worker: Worker) -> None:
    worker.read(worker.visit("h"), b"<p>word" * 20_000, wire=2_000)
    assert worker.alone.pid is not None


def test_pages_in_doubt_are_read_alone_if_no_parse_can_be_ended(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded, "stops", lambda: False)
    worker.read(worker.visit("h"), CHEAP, wire=len(CHEAP))
    assert worker.alone.pid is None
    worker.read(worker.visit("h"), DEAR, wire=len(DEAR))
    assert worker.alone.pid is not None


def test_an_answer_that_may_ask_for_a_login_is_judged_alone_if_it_is_in_doubt(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {"username": "ann", "password": "1", "hosts": "http://h"}
    for name, value in secrets.items():
        monkeypatch.setenv(f"GREENCRAWL_AUTH_SHOP_{name.upper()}", value)
    entry = Form(name="shop", hosts=("http://h",), login_url="http://h/login")
    options = CrawlOptions(auth=(entry,))
    crawl = Crawl(id=5, name="t", state="active", options=options, roots=("h",))
    visit = worker.visit("h")
    visit.context = context_of(crawl)
    kind, grant = make(entry, secrets), Grant(account="ann", generation=1, made_ms=0)
    form = b"<form method=post action=/login><input name=u><input type=password name=p></form>"
    for body, verdict in ((CHEAP, "in"), (CHEAP + form, "out")):
        fetched = Fetched("http://h/a", 200, HTML, body)
        assert worker.guarded.verdict(visit, Task(1, "http://h/a"), kind, fetched, grant) == verdict
    assert worker.alone.pid is None
    monkeypatch.setattr(form_page, "HUB_SECONDS", 0.005)  # every machine takes longer
    monkeypatch.setattr(form_page, "_own_process", False)
    fetched = Fetched("http://h/a", 200, HTML, b"<p>x" * 60_000 + form)
    assert worker.guarded.verdict(visit, Task(1, "http://h/a"), kind, fetched, grant) == "out"
    assert worker.alone.pid is not None


def test_the_cpu_time_of_a_hook_is_not_charged_to_the_host(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = CrawlOptions(hook="tests.worker.process.test_costly")
    given = context_of(Crawl(id=2, name="t", state="active", options=options, roots=("h",)))
    fetched = Fetched("http://h/", 200, HTML, DEAR[:40_000])
    read = reading.read(given, Task(1, "http://h/"), fetched)
    assert read.fields == {"spun": True}
    assert 0 < read.cpu < 0.15


def on_page(page: object, fetched: object) -> dict[str, bool]:
    """A slow hook."""
    from time import thread_time

    until = thread_time() + 0.2
    while thread_time() < until:
        pass
    return {"spun": True}


def test_bombs_that_hit_the_bound_are_charged_whatever_their_type(worker: Worker) -> None:
    """A bomb of 27 bytes takes 30 ms of CPU; others are honest."""
    zeros, page = brotli.compress(bytes(12_000_000)), brotli.compress(CHEAP * 30)
    kinds = {"Content_Encoding": "br", "Content_Type": "image/png"}
    pages = {"/": answer(zeros, **kinds), "/honest": answer(page, **kinds)}
    with RawServer(pages) as server:
        visit, said = worker.visit("bad"), ""
        for _ in range(2 * PARKED_AFTER):
            got = visit.get(server.url("/honest"), {}, 10_000_000)
            assert worker.guarded.unpacked(visit, got) == ""
        assert visit.report().delay == 0
        for _ in range(PARKED_AFTER):
            assert not visit.failed
            said = worker.guarded.unpacked(visit, visit.get(server.url("/"), {}, 10_000_000))
            assert said.endswith("bytes was cut at 10,000,000, its content-encoding undone")
        assert visit.failure == "costly"
        assert said in visit.why


def test_the_cpu_time_of_undoing_a_broken_content_encoding_is_charged() -> None:
    failure = Failure(FailureKind.DECODE, "br: wrong", unpacking=2 * UNPACKING_SECONDS)
    assert unpacking(failure) == "undoing a broken content-encoding took 0.10 s of CPU"
    assert unpacking(Failure(FailureKind.DECODE, "br: wrong", unpacking=0.001)) == ""
    dear = Fetched("http://h/", 200, {}, b"x" * 99, wire_bytes=9, unpacking=2 * UNPACKING_SECONDS)
    assert unpacking(dear) == "undoing the content-encoding of 9 bytes took 0.10 s of CPU"


def test_a_costly_host_is_forgiven_after_some_cheap_pages() -> None:
    hosts = CostlyHosts()
    page = Fetched("http://h/", 200, {}, b"")
    hosts.charge("h", "", 1.0, 0.25)
    for _ in range(CHEAP_AGAIN):
        assert hosts.suspects("h", page.address)
        hosts.cheap("h", "")
    assert not hosts.suspects("h", page.address)


def test_a_page_with_a_bomb_of_attributes_is_read_and_holds_up_no_other(worker: Worker) -> None:
    """About 100 KB on the wire become one tag that takes 20 s of CPU.

    Nothing stops the parse here, so the look finds it and leaves it to the separate reader.
    """
    names = (b" a%x%s" % (n, b"='>'" if n % 500 == 0 else b"") for n in range(150_000))
    body = b"<title>T</title><p" + b"".join(names) + b">end"
    headers = {"Content-Type": "text/html", "Content-Encoding": "br"}
    turns = [monotonic()]

    def turn() -> None:
        while True:
            gevent.sleep(0.01)
            turns.append(monotonic())

    with RawServer(answer(brotli.compress(body, quality=3), **headers)) as server:
        visit = worker.visit("h")
        fetched = visit.get(server.url("/"), {}, 10_000_000)
        assert isinstance(fetched, Fetched), fetched
        turning = gevent.spawn(turn)
        gevent.sleep(0.02)
        found = worker.guarded.read(visit, Task(1, server.url("/")), fetched)
        gevent.sleep(0.02)
        turning.kill()
    assert (found.title, found.text) == ("T", "end")
    assert max(b - a for a, b in pairwise(turns)) < 2
