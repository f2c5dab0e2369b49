"""Following a crawl: the display while nothing can be fetched."""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import gevent
import pytest

from greencrawl.broker.client import BrokerClient
from greencrawl.cli.local.processes import Processes
from greencrawl.cli.local.stopping import Stop
from greencrawl.cli.ui import follow as module
from greencrawl.cli.ui.follow import ALL_REST, follow, last_look, round_text
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import Refused, Unavailable
from greencrawl.schema.records import (
    Attempt,
    CrawlStats,
    CreateCrawl,
    HookRefusal,
    HostPatch,
    HostState,
    Round,
    SeedRequest,
    Stats,
    UrlState,
)
from greencrawl.schema.records.auth import Form, Source

WANTED = CreateCrawl(name="x", seeds=("https://example.org/",))


def broker(*looks: dict[str, Any], workers: int | None = None) -> BrokerClient:
    """Return a broker that returns ``looks`` as its counters, one after the other."""
    rest: Iterable[dict[str, Any]] = iter(looks)

    def stats(name: str) -> Stats:
        try:
            look = next(rest)  # type: ignore[call-overload]
        except StopIteration:
            raise Unavailable("gone") from None
        return Stats((CrawlStats(crawl=name, **look),), workers=workers)

    made = SimpleNamespace(
        put_crawl=lambda _: SimpleNamespace(state="active", reason=""),
        url=lambda *_: [],
        rounds=lambda _: [],
        stats=stats,
    )
    return cast("BrokerClient", made)


@pytest.mark.parametrize(("in_flight", "said"), [(0, True), (1, False)])
def test_waiting_urls_are_explained_if_no_url_is_in_flight(
    in_flight: int, said: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.02)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.05)
    wait = {"state": "active", "waiting": 3, "leased": in_flight}
    end = follow(broker(wait, wait, {"state": "done"}), WANTED, Stop(), None, fresh=False)
    assert end is not None
    assert not end.stopped
    assert (ALL_REST in capsys.readouterr().err) is said


def test_a_crawl_that_no_worker_takes_is_not_said_to_rest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.02)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.05)
    wait = {"state": "active", "waiting": 3, "leased": 0}
    made = broker(wait, wait, {"state": "done"}, workers=0)
    url = "https://example.org/"
    why = "no worker takes URLs: none is running; waiting: number 1 of example.org's queue"
    state = UrlState(crawl="x", url=url, state="waiting", why=why)
    monkeypatch.setattr(made, "url", lambda *_: [state])
    follow(made, WANTED, Stop(), None, fresh=False)
    said = capsys.readouterr().err
    assert f"{url}: {why}. \n" in said
    assert ALL_REST not in said


def test_a_crawl_that_no_worker_can_take_says_so_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    refused = (HookRefusal("w-0", "one", "own", "no module named own"),)
    stuck = {"state": "active", "waiting": 1, "refused": refused, "stuck": True}
    follow(broker(stuck, stuck, {"state": "done"}), WANTED, Stop(), None, fresh=False)
    said = capsys.readouterr().err
    assert said.count("no worker can take the crawl") == 1
    assert said.count("worker w-0 on machine one does not take hook own: no module named own") == 1


SEED = {"seeds": ("https://example.org/",)}
LIST = {"sources": (Source(url="https://example.org/list", items="urls"),)}


@pytest.mark.parametrize("beginning", [SEED, LIST], ids=["seeds", "sources"])
def test_a_refused_login_is_named_once_and_its_block_is_lifted_at_the_start(
    beginning: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.02)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(module, "epoch_ms", lambda: now[0])
    wait = {"state": "active", "waiting": 3, "leased": 0}
    made = broker(wait, wait, wait, {"state": "done"})
    now = [0]  # in milliseconds
    patched: list[tuple[str, HostPatch]] = []

    def host(name: str) -> HostState:
        now[0] += 500
        left = (3_600_000 - now[0]) / 1000
        return HostState(host=name, partition=0, blocked_in=left, why="auth shop: no such name")

    made.host = host  # type: ignore[method-assign]
    made.patch_host = lambda *patch: patched.append(patch)  # type: ignore[assignment,method-assign]
    entry = Form(name="shop", hosts=("example.org",), login_url="https://example.org/login")
    wanted = CreateCrawl(name="x", auth=(entry,), **beginning)
    follow(made, wanted, Stop(), None, fresh=False)
    assert patched == [("example.org", HostPatch(block=0.0))]
    said = capsys.readouterr().err
    assert "example.org is blocked until 01:00 UTC: auth shop: no such name; correct that" in said
    assert said.count("blocked") == 1
    assert "`greencrawl login shop`" in said


def test_a_consent_that_is_missing_is_asked_for_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.02)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.05)
    wait = {"state": "active", "waiting": 1, "leased": 0}
    made = broker(wait, wait, {"state": "done"})
    why = "auth shop: nobody has given consent yet: run `greencrawl login shop`"
    state = HostState(host="example.org", partition=0, blocked_in=3590.0, why=why)
    monkeypatch.setattr(made, "host", lambda _: state, raising=False)
    monkeypatch.setattr(made, "patch_host", lambda *_: None, raising=False)
    entry = Form(name="shop", hosts=("example.org",), login_url="https://example.org/login")
    wanted = CreateCrawl(name="x", seeds=("https://example.org/",), auth=(entry,))
    follow(made, wanted, Stop(), None, fresh=False)
    assert capsys.readouterr().err.count("greencrawl login shop") == 1


@pytest.mark.parametrize("is_new", [True, False])
def test_fresh_of_a_new_crawl_says_in_a_line_that_nothing_is_fetched_again(
    is_new: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crawl(_name: str) -> SimpleNamespace:
        if is_new:
            raise Refused(404, {})
        return SimpleNamespace(state="done", reason="finished")

    made, rounds = broker({"state": "done"}), list[str]()
    monkeypatch.setattr(made, "crawl", crawl, raising=False)
    monkeypatch.setattr(made, "begin_round", rounds.append, raising=False)
    assert follow(made, WANTED, Stop(), None, fresh=True)
    line = "crawl x is new: --fresh has nothing to fetch again yet\n"
    assert capsys.readouterr().err.count(line) == is_new
    assert rounds == ([] if is_new else ["x"])


def test_a_rest_that_another_crash_prolongs_is_told_again_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    made, rests = broker(), iter((60.2, 59.9, 130.0, 129.8, 0.0))

    def stats(name: str) -> Stats:
        left = next(rests)
        one = CrawlStats(crawl=name, state="active" if left else "done")
        return Stats((one,), rest_hosts=1 if left else 0, rest_seconds=left)

    monkeypatch.setattr(made, "stats", stats)
    assert follow(made, WANTED, Stop(), None, fresh=False)
    said = re.findall("1 host rests for ([0-9]+) s after a crash", capsys.readouterr().err)
    assert said == ["60", "130"]


def test_a_silent_broker_is_named_and_left_soon_after_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.05)
    stop = Stop()
    made = broker({"state": "active"})
    made.stats = lambda _: gevent.sleep(60)  # type: ignore[assignment,method-assign]
    frozen = SimpleNamespace(restart_dead=lambda: [], frozen=lambda: [("broker", 42)])
    gevent.spawn_later(0.2, stop.signal, 2)
    began = monotonic()
    processes = cast("Processes", frozen)
    assert follow(made, WANTED, stop, processes, fresh=False) is None
    assert monotonic() - began < 10
    said = capsys.readouterr().err
    assert "has not answered for 0.05 s: the broker, process 42, was stopped by somebody" in said


def test_a_frozen_redis_is_named_while_the_broker_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    stop = Stop()
    stands = SimpleNamespace(restart_dead=lambda: [], frozen=lambda: [("embedded Redis", 7)])
    gevent.spawn_later(0.1, stop.signal, 2)
    follow(broker(), WANTED, stop, cast("Processes", stands), fresh=False)
    assert "the embedded Redis, process 7, was stopped by somebody" in capsys.readouterr().err


def test_the_next_try_is_announced_once_if_only_retries_are_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    waits = {"state": "active", "later": 1}
    made = broker(waits, waits, waits, {"state": "done"})
    attempt = Attempt(
        crawl=1, fingerprint=2, url="https://example.org/", code=0, kind="refused", errors=1,
        detail="Connection refused",
    )  # fmt: skip
    left = iter(range(60, 0, -1))

    def url(at: str, crawl: str) -> list[UrlState]:
        why = f"failed 1 time(s); the next try is due in {next(left)} s"
        return [UrlState(crawl=crawl, url=at, state="later", why=why, attempts=(attempt,))]

    monkeypatch.setattr(made, "url", url, raising=False)
    follow(made, WANTED, Stop(), None, fresh=False)
    said = capsys.readouterr().err
    wanted = (
        "https://example.org/: Connection refused; failed 1 time(s); the next try is due in 60 s"
    )
    assert wanted in said
    assert said.count("only retries are left") == 1


def test_urls_that_are_allowed_by_now_are_forced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    made, asked = broker({"state": "done"}), list[SeedRequest]()
    monkeypatch.setattr(made, "seed", lambda _, request: asked.append(request), raising=False)
    follow(made, WANTED, Stop(), None, fresh=False, again=["http://a/", "http://b/", "http://c/"])
    assert [one.urls for one in asked] == [("http://a/", "http://b/"), ("http://c/",)]
    assert all(one.force for one in asked)


def test_the_last_look_counts_pages_that_were_stored_meanwhile() -> None:
    end = follow(broker({"state": "done", "stored": 2}), WANTED, Stop(), None, fresh=False)
    assert end is not None
    later = broker({"state": "active", "stored": 3})
    assert last_look(later, end).last.stored == 3
    assert last_look(later, end) == end  # the broker is away


@pytest.mark.parametrize(
    ("total", "said"), [(-1, "pages are"), (1, "1 page is"), (1200, "1,200 pages are")]
)
def test_a_round_shows_its_number_of_pages_if_it_is_known(total: int, said: str) -> None:
    one = Round(kind="read", why="depth 1 → 3", started_ms=1, before_ms=1, total=total)
    assert round_text(one) == f"depth 1 → 3: {said} read again from what is stored"
