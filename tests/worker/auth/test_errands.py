"""Requests of logins that lead over several hosts, with real hosts, a real Redis and sessions."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gevent
import pytest
from cryptography.fernet import Fernet, InvalidToken
from gevent.event import Event

from greencrawl.broker.frontier import Frontier
from greencrawl.schema.clock import monotonic
from greencrawl.schema.records import (
    Crawl,
    CrawlOptions,
    Failure,
    FailureKind,
    Fetched,
    LeaseRequest,
    Session,
    TaskKind,
)
from greencrawl.store import open_store
from greencrawl.worker.auth import errands
from greencrawl.worker.auth.errands import ASK_AGAIN_SECONDS, Errands
from greencrawl.worker.auth.transport import session_over
from greencrawl.worker.crawls import CrawlContext, context_of
from greencrawl.worker.http.client import Downloader
from greencrawl.worker.session.backoff import AWAY_PATIENCE_SECONDS
from greencrawl.worker.session.fetcher import Visit, VisitOver
from greencrawl.worker.session.held import HeldSession
from tests.support.raw_server import RawServer, answer
from tests.support.redis_server import RedisServer

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
KEY = Fernet.generate_key()


def unsealer(fernet: Fernet) -> Callable[[bytes], bytes]:
    def unseal(sealed: bytes) -> bytes:
        try:
            return fernet.decrypt(sealed)
        except InvalidToken as error:
            raise ValueError("another key") from error

    return unseal


@dataclass
class Rig:
    """Two processes' views of one frontier, and visits of its hosts."""

    mine: Frontier
    theirs: Frontier
    context: CrawlContext
    downloader: Downloader
    now: float = 1000.0
    stopping: Event = field(default_factory=Event)

    def errands(self, frontier: Frontier, key: bytes = KEY) -> Errands:
        fernet = Fernet(key)
        return Errands(frontier, fernet.encrypt, unsealer(fernet), clock=lambda: self.now)

    def visit(self, server: RawServer, stopping: Event | None = None, delay: float = 0.0) -> Visit:
        session = Session(
            session="1/h", token="0" * 16, crawl=self.context.crawl.id, revision=1,
            host=server.url("").removeprefix("http://"), ttl=60, delay=delay, floor=delay,
            robots_known=True, tasks=(),
        )  # fmt: skip
        held = HeldSession(session, monotonic() + 60)
        return Visit(held, self.context, self.downloader, stopping or self.stopping)


@pytest.fixture
def rig(redis_server: RedisServer, tmp_path: Path) -> Iterator[Rig]:
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    mine = Frontier([redis_server.url], store, partitions=8, create=True)
    mine.start()
    theirs = Frontier([redis_server.url], store, partitions=8)
    crawl: Crawl = store.put_crawl("a", CrawlOptions(delay=0), [])
    mine.put_crawl(crawl)
    downloader = Downloader(LOOPBACK, 5)
    yield Rig(mine, theirs, context_of(crawl), downloader)
    downloader.close()
    for frontier in (theirs, mine):
        frontier.stop()
    store.close()


def until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    limit = monotonic() + seconds
    while not (found := condition()):
        assert monotonic() < limit, "did not happen in time"
        gevent.sleep(0.01)
    return found


def ask(rig: Rig, visit: Visit, url: str, **more: Any) -> gevent.Greenlet[..., Any]:
    """Start a POST to ``url`` by ``visit``."""
    asked = rig.errands(rig.mine, **more)
    body = b"password=sesame"
    return gevent.spawn(asked.send, visit, "POST", url, {"x-csrf": "7"}, body)


def other_host(behaviour: Any) -> RawServer:
    return RawServer(behaviour, host="127.0.0.2")


def test_request_to_another_host_is_sent_by_the_session_of_that_host(
    rig: Rig, redis_server: RedisServer
) -> None:
    with RawServer(answer()) as home, other_host(answer(b"in", Set_Cookie="sid=s3")) as away:
        asker = rig.visit(home)
        job = ask(rig, asker, away.url("/login"))
        until(lambda: redis_server.client.keys("gc:{*}:eq:*"))
        host = away.url("").removeprefix("http://")
        request = LeaseRequest(worker="w", incarnation=1, sequence=1, wait=5)
        (session,) = rig.mine.lease(request).sessions
        assert session.host == host
        assert [(t.url, t.kind) for t in session.tasks] == [
            (away.url("/.well-known/greencrawl-errand"), TaskKind.ERRAND)
        ]
        everything = b"".join(_values(redis_server))
        assert b"sesame" not in everything
        holder = rig.visit(away)
        assert rig.errands(rig.theirs).serve(holder) == 1
        found = job.get(timeout=5)
        assert isinstance(found, Fetched), found
        assert (found.status, found.body, found.cookies) == (200, b"in", ("sid=s3",))
        assert found.url == away.url("/login")
        assert home.requests == []
        (head,) = away.requests
        assert head.startswith("POST /login HTTP/1.1\r\n")
        assert "x-csrf: 7\r\n" in head
        assert away.bodies == [b"password=sesame"]
        assert (holder.report().requests, asker.report().requests) == (1, 0)
        assert not redis_server.client.keys("gc:{*}:e*"), "nothing is left behind"
        assert rig.errands(rig.theirs).serve(holder) == 0


def _values(server: RedisServer) -> Iterator[bytes]:
    import redis

    raw = redis.Redis(port=server.port)
    for key in raw.keys("*"):
        yield key + raw.dump(key)


def test_request_of_a_login_to_its_own_host_is_sent_at_once(rig: Rig) -> None:
    with RawServer(answer(b"in")) as home:
        visit = rig.visit(home)
        found = rig.errands(rig.mine).send(visit, "GET", home.url("/"), {}, b"")
        assert isinstance(found, Fetched)
        assert visit.report().requests == 1


def test_login_that_leads_over_two_hosts_succeeds(rig: Rig) -> None:
    """Another host has the form and sends the login back; each host sees only its own requests."""
    with RawServer({"/back?t=1": answer(b"welcome", Set_Cookie="in=1")}) as home:
        back = answer(b"", "302 Found", Location=home.url("/back?t=1"))
        with other_host({"/form": answer(b"<form>", Set_Cookie="csrf=1"), "/go": back}) as away:
            visit = rig.visit(home)
            mine = rig.errands(rig.mine)
            session = session_over(lambda *asked: mine.send(visit, *asked), {"user-agent": "t"})

            def log_in() -> str:
                session.get(away.url("/form"))
                return str(session.post(away.url("/go"), data={"password": "sesame"}).text)

            job = gevent.spawn(log_in)
            holder, theirs = rig.visit(away), rig.errands(rig.theirs)
            served = 0
            while not job.ready():  # one call may find both
                served += theirs.serve(holder)
                gevent.sleep(0.01)
            assert served == 2
            assert job.get() == "welcome"
            assert [head.partition(" HTTP")[0] for head in away.requests] == [
                "GET /form",
                "POST /go",
            ]
            assert "Cookie: csrf=1\r\n" in away.requests[1]
            assert [head.partition(" HTTP")[0] for head in home.requests] == ["GET /back?t=1"]
            assert session.cookies.get("in") == "1"


def test_two_hosts_that_need_each_other_do_not_wait_for_ever(rig: Rig) -> None:
    with RawServer(answer(b"one")) as one, other_host(answer(b"two")) as two:
        visits = [rig.visit(one), rig.visit(two)]
        jobs = [ask(rig, visits[0], two.url("/")), ask(rig, visits[1], one.url("/"))]
        # the first one to finish goes on with its session, which looks before each task
        first = gevent.wait(jobs, timeout=5, count=1)[0]
        rig.errands(rig.mine).serve(visits[jobs.index(first)])
        gevent.joinall(jobs, timeout=5)
        assert [job.value.body for job in jobs if job.ready()] == [b"two", b"one"]


def test_login_fails_for_now_if_its_errand_is_not_answered_in_time(
    rig: Rig, redis_server: RedisServer
) -> None:
    with RawServer(answer()) as home, other_host(answer()) as away:
        job = ask(rig, rig.visit(home), away.url("/"))
        until(lambda: redis_server.client.keys("gc:{*}:eq:*"))
        taken = rig.theirs.errand_take(away.url("").removeprefix("http://"))
        assert taken is not None, "by a worker that dies with it"
        rig.now += errands.ASK_SECONDS - 1
        gevent.sleep(0.3)
        assert not job.ready()

        def over() -> bool:
            rig.now += 1
            gevent.sleep(0.05)
            return job.ready()

        until(over)
        failure = job.get()
        assert isinstance(failure, Failure)
        assert (failure.kind, failure.retry_after) == (FailureKind.LOGIN, 30)
        assert "did not answer yet" in failure.detail
        assert away.requests == []


def test_errand_is_withdrawn_if_its_asker_stops_before_it_was_taken(rig: Rig) -> None:
    with RawServer(answer()) as home, other_host(answer()) as away:
        stopping = Event()
        job = ask(rig, rig.visit(home, stopping), away.url("/"))
        gevent.sleep(0.2)
        stopping.set()
        with pytest.raises(VisitOver):
            job.get(timeout=5)
        assert rig.errands(rig.theirs).serve(rig.visit(away)) == 0
        assert away.requests == []


def test_stopping_asker_waits_for_the_answer_if_its_errand_was_taken(rig: Rig) -> None:
    """The answer may hold a refresh token that replaces the one that was sent."""
    with RawServer(answer()) as home, other_host(answer(b"late")) as away:
        stopping = Event()
        job = ask(rig, rig.visit(home, stopping), away.url("/"))
        slow = rig.visit(away, delay=1.0)
        assert isinstance(slow.get(away.url("/first"), {}, 1000), Fetched)
        serving = gevent.spawn(lambda: until(lambda: rig.errands(rig.theirs).serve(slow) == 1))
        gevent.sleep(0.4)  # taken; it waits for the host's pace
        stopping.set()
        assert job.get(timeout=5).body == b"late"
        serving.get(timeout=5)


def test_stopping_asker_does_not_wait_if_its_errand_came_back_unsent(rig: Rig) -> None:
    with RawServer(answer()) as home, other_host(answer()) as away:
        asker, server = Event(), Event()
        job = ask(rig, rig.visit(home, asker), away.url("/"))
        slow = rig.visit(away, server, delay=30.0)
        assert isinstance(slow.get(away.url("/first"), {}, 1000), Fetched)
        serving = gevent.spawn(lambda: until(lambda: rig.errands(rig.theirs).serve(slow) == 1))
        gevent.sleep(0.4)
        asker.set()
        gevent.sleep(0.3)
        assert not job.ready()
        server.set()
        with pytest.raises(VisitOver):
            serving.get(timeout=5)
        with pytest.raises(VisitOver):
            job.get(timeout=5)
        assert len(away.requests) == 1


def test_session_that_ends_before_it_sent_leaves_the_errand_to_the_next(rig: Rig) -> None:
    with RawServer(answer()) as home, other_host(answer(b"late")) as away:
        job = ask(rig, rig.visit(home), away.url("/"))
        ended = Event()
        ended.set()
        ending = rig.visit(away, ended)

        def left() -> bool:
            try:
                rig.errands(rig.theirs).serve(ending)
            except VisitOver:
                return True
            return False

        until(left)
        assert away.requests == []
        assert rig.errands(rig.theirs).serve(rig.visit(away)) == 1
        assert job.get(timeout=5).body == b"late"


def test_failure_of_the_other_host_answers_the_errand_and_ends_the_session_there(rig: Rig) -> None:
    with RawServer(answer()) as home, other_host(answer(b"", "429 Slow", Retry_After="90")) as away:
        jobs = [ask(rig, rig.visit(home), away.url(f"/{n}")) for n in range(2)]
        holder, theirs = rig.visit(away), rig.errands(rig.theirs)
        until(lambda: theirs.serve(holder))
        assert len(away.requests) == 1, "told to slow down, it is not asked again"
        assert theirs.serve(holder) == 0
        assert (holder.failed, holder.failure, holder.report().block) == (True, "rate_limited", 90)
        until(lambda: any(job.ready() for job in jobs))
        (found,) = [job.value for job in jobs if job.ready()]
        assert (found.status, found.headers["retry-after"]) == (429, "90")
        gevent.killall(jobs)
    with RawServer(answer()) as home:
        away = other_host(answer())
        away.__exit__(None, None, None)  # nothing listens there any more
        job = ask(rig, rig.visit(home), away.url("/"))
        holder = rig.visit(away)
        until(lambda: theirs.serve(holder))
        assert job.get(timeout=5).kind is FailureKind.REFUSED
        assert holder.failure == "refused"


def test_workers_with_different_keys_say_what_to_do(rig: Rig) -> None:
    with RawServer(answer()) as home, other_host(answer()) as away:
        job = ask(rig, rig.visit(home), away.url("/"))
        theirs = rig.errands(rig.theirs, Fernet.generate_key())
        until(lambda: theirs.serve(rig.visit(away)))
        failure = job.get(timeout=5)
        assert failure.kind is FailureKind.LOGIN
        assert "set GREENCRAWL_SESSION_KEY alike" in failure.detail
        assert away.requests == []


def test_session_does_not_send_an_errand_that_is_for_another_host(
    rig: Rig, redis_server: RedisServer
) -> None:
    """Somebody who can write to Redis cannot send a login elsewhere."""
    with RawServer(answer()) as home, other_host(answer()) as away:
        job = ask(rig, rig.visit(home), away.url("/"))
        until(lambda: redis_server.client.keys("gc:{*}:eq:*"))
        taken = rig.theirs.errand_take(away.url("").removeprefix("http://"))
        assert taken is not None
        with RawServer(answer(), host="127.0.0.3") as third:
            name = third.url("").removeprefix("http://")
            for sealed in (taken[1], Fernet(KEY).encrypt(b"\x93no errand"), b"no seal"):
                rig.theirs.errand_put(name, taken[0], sealed, 60)
                assert rig.errands(rig.theirs).serve(rig.visit(third)) == 1
            assert third.requests == away.requests == []
        job.kill()


def test_errands_keep_the_delay_of_their_host(rig: Rig) -> None:
    with RawServer(answer()) as home, other_host(answer()) as away:
        jobs = [ask(rig, rig.visit(home), away.url(f"/{n}")) for n in range(3)]
        holder, theirs = rig.visit(away, delay=0.3), rig.errands(rig.theirs)
        began = monotonic()
        until(lambda: theirs.serve(holder) + len(away.requests) >= 3 and len(away.requests) == 3)
        assert monotonic() - began >= 0.6
        gevent.joinall(jobs, timeout=5, raise_error=True)
        assert [job.value.status for job in jobs] == [200] * 3


def test_errand_is_answered_once_even_if_connections_to_redis_break(
    rig: Rig, redis_server: RedisServer
) -> None:
    with RawServer(answer()) as home, other_host(answer(b"in")) as away:
        job = ask(rig, rig.visit(home), away.url("/"))
        holder, theirs = rig.visit(away), rig.errands(rig.theirs)
        for _ in range(5):
            gevent.sleep(0.1)
            redis_server.client.client_kill_filter(_type="normal")
        until(lambda: theirs.serve(holder))
        redis_server.client.client_kill_filter(_type="normal")
        assert job.get(timeout=5).body == b"in"
        assert len(away.requests) == 1


def test_a_login_is_put_off_if_the_redis_of_the_other_host_is_away(
    rig: Rig, redis_server: RedisServer
) -> None:
    """The asker is on another node, so its lease goes on."""
    with RawServer(answer()) as home, other_host(answer()) as away:
        redis_server.kill()
        visit = rig.visit(home)
        job = ask(rig, visit, away.url("/"))
        gevent.sleep(0.2)
        assert not job.ready(), "it may be back soon"
        rig.now += AWAY_PATIENCE_SECONDS
        with pytest.raises(VisitOver, match="cannot be asked"):
            job.get(timeout=5)
        redis_server.start()
    report = visit.report()
    assert (report.failed, report.block) == ("", ASK_AGAIN_SECONDS), "no fault of the host's"


def test_a_session_ends_before_its_lease_if_its_redis_stays_away(
    rig: Rig, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.worker.session.fetcher.AWAY_PATIENCE_SECONDS", 0.3)
    with RawServer(answer()) as home:
        redis_server.kill()
        visit, began = rig.visit(home), monotonic()
        with pytest.raises(VisitOver, match="is away"):
            rig.errands(rig.mine).serve(visit)
        assert 0.2 < monotonic() - began < 4
        assert visit.held.deadline > monotonic() + 50, "its lease is not over"
        redis_server.start()


def test_a_session_waits_for_its_redis_until_its_lease_ends(
    rig: Rig, redis_server: RedisServer
) -> None:
    with RawServer(answer()) as home:
        redis_server.kill()
        visit = rig.visit(home)
        visit.held.deadline = monotonic() + 0.5
        began = monotonic()
        with pytest.raises(VisitOver, match="is away"):
            visit.until_available(lambda: rig.mine.robots_get("http://h"))
        assert 0.4 < monotonic() - began < 4
        redis_server.start()
        visit.held.deadline = monotonic() + 20
        assert visit.until_available(lambda: rig.mine.robots_get("http://h")) is None
