"""A real broker process with its embedded Redis and SQLite: start, serve, stop, and come back."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest

from greencrawl.broker.api.messages import DeadLetter
from greencrawl.broker.client import BrokerClient
from greencrawl.schema.errors import Refused, Unavailable
from greencrawl.schema.records import (
    CloseItem,
    CloseRequest,
    Commit,
    CreateCrawl,
    Dead,
    Done,
    ExtendItem,
    ExtendRequest,
    Final,
    FinishItem,
    FinishRequest,
    HostPatch,
    HostReport,
    LeaseRequest,
    ReconcileRequest,
    ReleaseItem,
    ReleaseRequest,
    SeedRequest,
    Session,
)
from greencrawl.store import open_store
from tests.support.broker_process import BrokerProcess
from tests.support.effort import cases
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer
from tests.support.system import wait_until


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "broker").start()
    yield process
    process.stop()


def lease(client: BrokerClient, sequence: int = 1, wait: float = 2.0) -> tuple[Session, ...]:
    request = LeaseRequest(worker="w", incarnation=1, sequence=sequence, wait=wait)
    return client.lease(request).sessions


def held(session: Session) -> dict[str, Any]:
    return {"session": session.session, "token": session.token}


def finish_all(client: BrokerClient, session: Session, outcome: Done | Dead) -> list[str]:
    items = tuple(
        FinishItem(**held(session), task=t.number, outcome=outcome) for t in session.tasks
    )
    return list(client.finish(FinishRequest(items)).results)


def settle(client: BrokerClient, session: Session, stored: bool = True) -> None:
    assert set(finish_all(client, session, Done(stored=stored, bytes=100))) == {"ok"}
    client.close(CloseRequest((CloseItem(**held(session), report=HostReport(robots=True)),)))


def test_a_crawl_runs_from_its_seeds_to_its_end(broker: BrokerProcess) -> None:
    client = broker.client()
    made = client.put_crawl(CreateCrawl(name="t", seeds=("https://a.example/",), delay=0.0))
    assert made.roots == ("a.example",)
    reply = client.seed("t", SeedRequest(urls=("https://a.example/1", "https://b.example/")))
    assert (reply.added, reply.rejected) == (1, 1)
    [session] = lease(client)
    assert {task.url for task in session.tasks} == {"https://a.example/", "https://a.example/1"}
    [state] = client.url("https://A.example/1")
    assert (state.state, state.crawl) == ("leased", "t")
    assert "worker w" in state.why
    assert client.extend(ExtendRequest((ExtendItem(**held(session)),))).results == ("ok",)
    assert client.stats("t").crawls[0].leased == 2
    settle(client, session)
    assert finish_all(client, session, Done()) == ["stale", "stale"]
    wait_until(lambda: client.crawl("t").state == "done", 10, "the end of the crawl")
    stats = client.stats("t").crawls[0]
    assert (stats.finished, stats.stored, stats.bytes) == (2, 2, 200)
    assert client.crawl("t").reason == "finished"


def redis_of(broker: BrokerProcess) -> int:
    """Return the process id of the embedded server, 0 while none answers."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(broker.folder / "redis" / "redis.sock"))
            connection.sendall(b"INFO server\r\n")
            said = connection.recv(65536).decode()
        except OSError:
            return 0
    found = said.partition("process_id:")[2].split()
    return int(found[0]) if found else 0


def test_an_embedded_redis_that_is_killed_is_started_again(broker: BrokerProcess) -> None:
    client = broker.client()
    client.put_crawl(CreateCrawl(name="t", seeds=("https://a.example/",), delay=0.0))
    killed = redis_of(broker)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: redis_of(broker) not in (0, killed), 20, "another Redis")
    revived = redis_of(broker)
    wait_until(client.ready, 20, "the broker to be ready")
    wait_until(lambda: client.stats("t").crawls[0].waiting == 1, 20, "the seed, from SQL or AOF")
    broker.stop()
    assert not Path(f"/proc/{revived}").exists()


def test_a_seed_wakes_a_waiting_lease_at_once(broker: BrokerProcess) -> None:
    client = broker.client()
    client.put_crawl(CreateCrawl(name="t"))
    poll = gevent.spawn(lease, client, wait=20.0)
    gevent.sleep(0.3)
    began = time.monotonic()
    client.seed("t", SeedRequest(urls=("https://a.example/",)))
    [session] = poll.get(timeout=5)
    assert session.host == "a.example"
    assert time.monotonic() - began < 1.0


def test_a_crawl_does_not_end_while_a_task_is_leased(
    broker: BrokerProcess,
) -> None:
    client = broker.client()
    client.put_crawl(CreateCrawl(name="t", seeds=("https://a.example/",), delay=0.0))
    [session] = lease(client)
    gevent.sleep(1.2)  # several scans
    assert client.crawl("t").state == "active"
    assert client.release(ReleaseRequest((ReleaseItem(**held(session)),))).results == ("ok",)
    client.close(CloseRequest((CloseItem(**held(session)),)))
    [again] = lease(client, 2)
    assert [task.url for task in again.tasks] == ["https://a.example/"]


def test_a_page_limit_ends_the_crawl_and_is_named_as_the_reason(broker: BrokerProcess) -> None:
    client = broker.client()
    seeds = tuple(f"https://a.example/{i}" for i in range(10))
    client.put_crawl(CreateCrawl(name="t", seeds=seeds, delay=0.0, max_pages=3))
    [session] = lease(client)
    assert len(session.tasks) == 3
    settle(client, session)
    wait_until(lambda: client.crawl("t").state == "done", 10, "the limit")
    assert client.crawl("t").reason == "max_pages"
    assert lease(client, 2, wait=0.5) == ()
    assert client.stats("t").crawls[0].waiting == 7


def test_a_limit_that_was_raised_lets_the_crawl_go_on(broker: BrokerProcess) -> None:
    client = broker.client()
    seeds = tuple(f"https://a.example/{i}" for i in range(4))
    wanted = CreateCrawl(name="t", seeds=seeds, delay=0.0, max_pages=2)
    client.put_crawl(wanted)
    settle(client, lease(client)[0])
    wait_until(lambda: client.crawl("t").state == "done", 10, "the limit")
    client.put_crawl(CreateCrawl(name="t", delay=0.0, max_pages=10))
    assert client.resume("t").state == "active"
    [session] = lease(client, 2)
    assert len(session.tasks) == 2
    settle(client, session)
    wait_until(lambda: client.crawl("t").state == "done", 10, "the end")
    assert client.crawl("t").reason == "finished"


def test_a_paused_crawl_is_not_leased_until_resumed(broker: BrokerProcess) -> None:
    client = broker.client()
    client.put_crawl(CreateCrawl(name="t", seeds=("https://a.example/",)))
    client.pause("t")
    assert lease(client, wait=0.5) == ()
    [state] = client.url("https://a.example/")
    assert state.why.startswith("the crawl is paused; waiting")
    client.resume("t")
    assert len(lease(client, 2)) == 1


def test_a_reconcile_releases_sessions_that_the_worker_does_not_hold(broker: BrokerProcess) -> None:
    client = broker.client()
    client.put_crawl(CreateCrawl(name="t", seeds=("https://a.example/", "https://b.example/")))
    assert len(lease(client)) + len(lease(client, 2, wait=0.2)) == 2
    reply = client.reconcile(ReconcileRequest(worker="w", incarnation=1, sequence=2))
    assert (reply.sessions, reply.tasks) == (2, 2)


def test_dead_letters_are_listed_by_page_and_requeued(broker: BrokerProcess) -> None:
    client = broker.client()
    seeds = tuple(f"https://a.example/{i}" for i in range(3))
    crawl = client.put_crawl(CreateCrawl(name="t", seeds=seeds, delay=0.0))
    [session] = lease(client)
    store = open_store(f"sqlite:///{broker.folder / 'content.sqlite'}")
    finals = [
        Final(crawl=crawl.id, fingerprint=i, url=task.url, state="dead", kind="timeout", at_ms=1)
        for i, task in enumerate(session.tasks)
    ]
    store.commit(Commit(finals=finals))
    store.close()
    finish_all(client, session, Dead("timeout"))
    client.close(CloseRequest((CloseItem(**held(session)),)))
    pages: list[DeadLetter] = []
    after = ""
    while True:
        reply = client.dead("t", limit=2, after=after)
        pages += reply.items
        after = reply.next
        if not after:
            break
    assert [item.letter.url for item in pages] == list(seeds)
    assert client.requeue("t").added == 3
    assert client.dead("t").items == ()
    [again] = lease(client, 2)
    assert {task.url for task in again.tasks} == set(seeds)
    assert client.requeue("t").added == 0


def test_a_host_is_slowed_and_blocked_by_hand(broker: BrokerProcess) -> None:
    client = broker.client()
    client.put_crawl(CreateCrawl(name="t", seeds=("https://a.example/",)))
    state = client.patch_host("a.example", HostPatch(delay=7.0, block=100.0))
    assert (state.delay, round(state.blocked_in, -1)) == (7.0, 100.0)
    assert lease(client, wait=0.5) == ()
    assert client.host("a.example").waiting == 1


def test_a_deleted_crawl_is_gone_and_may_be_made_again(broker: BrokerProcess) -> None:
    client = broker.client()
    old = client.put_crawl(CreateCrawl(name="t", seeds=("https://a.example/",)))
    client.delete("t")
    with pytest.raises(Refused) as refused:
        client.crawl("t")
    assert refused.value.status == 404
    wait_until(lambda: client.purges() == [], 10, "nothing is left of it")
    assert lease(client, wait=0.3) == ()
    new = client.put_crawl(CreateCrawl(name="t", seeds=("https://a.example/",)))
    assert new.id != old.id
    assert len(lease(client, 2)) == 1


# --- starting and stopping


def test_sigterm_ends_long_polls_and_loses_nothing(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker").start()
    client = broker.client()
    client.put_crawl(CreateCrawl(name="t", seeds=("https://a.example/",)))
    client.pause("t")
    poll = gevent.spawn(lease, client, wait=30.0)
    gevent.sleep(0.3)
    began = time.monotonic()
    assert broker.stop() == 0
    assert time.monotonic() - began < 14.0  # less than the poll, and than the drain's limit
    with pytest.raises(Unavailable):
        poll.get(timeout=5)
    assert "Traceback" not in broker.log()
    broker.start()
    try:
        broker.client().resume("t")
        assert len(lease(broker.client(), 2)) == 1
    finally:
        broker.stop()


@pytest.mark.parametrize("point", cases(["broker.after_seed_admit:2"], ["broker.after_seed_log:2"]))
def test_seeds_survive_a_broker_that_dies_while_taking_them(tmp_path: Path, point: str) -> None:
    redis = RedisServer(tmp_path / "redis").start()
    broker = BrokerProcess(tmp_path / "broker", redis=redis.url, fault=point).start()
    try:
        client = broker.client()
        client.put_crawl(CreateCrawl(name="t", seeds=("https://a.example/",), delay=0.0))
        with pytest.raises(Unavailable):
            client.seed("t", SeedRequest(urls=("https://a.example/1", "https://a.example/2")))
        assert broker.process is not None
        assert broker.process.wait(5) == -9
        broker.settings["fault"] = ""
        broker.start()
        wait_until(lambda: client.stats("t").crawls[0].admitted == 3, 10, "pending seeds admitted")
        [session] = lease(client)
        assert len(session.tasks) == 3
    finally:
        broker.stop()
        redis.stop()


def test_calls_get_a_503_while_redis_is_away(tmp_path: Path) -> None:
    redis = RedisServer(tmp_path / "redis").start()
    broker = BrokerProcess(tmp_path / "broker", redis=redis.url).start()
    try:
        client = broker.client()
        client.put_crawl(CreateCrawl(name="t", scope="any"))
        redis.kill()
        assert not client.ready()
        with pytest.raises(Unavailable, match="503"):
            client.seed("t", SeedRequest(urls=("https://a.example/",)))
        redis.start()
        wait_until(client.ready, 10, "ready again")
        wait_until(lambda: client.stats("t").crawls[0].admitted == 1, 15, "pending seeds admitted")
    finally:
        broker.stop()
        redis.stop()


def run_to_its_end(folder: Path, **settings: str) -> tuple[int, str]:
    broker = BrokerProcess(folder, **settings)
    code = broker.spawn().wait(15)
    return code, broker.log()


def test_wrong_settings_end_the_start_with_one_line(tmp_path: Path) -> None:
    code, said = run_to_its_end(tmp_path, bind="0.0.0.0:8765")
    assert code == 2
    assert "is not loopback: set GREENCRAWL_WORKER_TOKEN" in said.splitlines()[-1]
    assert "Traceback" not in said


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, said = run_to_its_end(tmp_path, bind=f"127.0.0.1:{port}")
    assert code == 2
    assert said.splitlines()[-1] == (
        f"broker: GREENCRAWL_BIND: 127.0.0.1:{port}: Address already in use"
    )


def test_redis_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    address = f"redis://127.0.0.1:{free_port()}"
    code, said = run_to_its_end(tmp_path, redis=address)
    assert code == 1
    assert address.removeprefix("redis://") in said.splitlines()[-1]
    assert "Traceback" not in said


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    code, said = run_to_its_end(tmp_path, tls_cert="/nowhere/a", tls_key="/nowhere/b")
    assert code == 2
    assert "GREENCRAWL_TLS_CERT" in said.splitlines()[-1]


def test_tls_and_tokens_guard_a_broker_and_its_log_hides_them(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "1", "-keyout", str(key), "-out", str(cert), "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    tokens = {"worker_token": "worker-secret", "admin_token": "admin-secret"}
    broker = BrokerProcess(tmp_path / "b", tls_cert=str(cert), tls_key=str(key), **tokens).start()
    try:
        client = broker.client()
        assert client.put_crawl(CreateCrawl(name="t")).name == "t"
        worker = BrokerClient([broker.url], "worker-secret", ca=str(cert))
        assert lease(worker, wait=0.0) == ()
        with pytest.raises(Refused) as refused:
            worker.put_crawl(CreateCrawl(name="u"))
        assert refused.value.status == 403
        with pytest.raises(Unavailable, match="certificate"):
            BrokerClient([broker.url], "worker-secret").crawls()
    finally:
        broker.stop()
    assert "secret" not in broker.log()


def test_bodies_beyond_the_limit_are_refused_before_they_are_read(broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=5) as connection:
        connection.sendall(
            b"POST /v1/crawls HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 16777217\r\n\r\n"
        )
        status = connection.makefile("rb").readline()
    assert b" 413 " in status
    chunks = (b" " * 65536 for _ in range(257))
    connection2 = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=10)
    connection2.request("POST", "/v1/crawls", body=chunks, encode_chunked=True,
                        headers={"Transfer-Encoding": "chunked", "Host": "localhost"})  # fmt: skip
    response = connection2.getresponse()
    assert response.status == 413
    assert json.load(response)["title"]
    connection2.close()


def test_plain_curl_seeds_a_crawl(broker: BrokerProcess, tmp_path: Path) -> None:
    def curl(*arguments: str) -> dict[str, object]:
        done = subprocess.run(["curl", "-sS", *arguments], capture_output=True, check=True)
        reply: dict[str, object] = json.loads(done.stdout)
        return reply

    crawls = f"{broker.url}/v1/crawls"
    assert curl("-d", '{"name": "t", "scope": "any"}', crawls)["state"] == "active"
    seeds = curl("-d", '{"urls": ["https://a.example/", "https://b.example/"]}', f"{crawls}/t/urls")
    assert seeds["added"] == 2
    lines = tmp_path / "urls.ndjson"
    lines.write_text('https://a.example/1\n{"url": "https://a.example/2", "depth": 1}\n')
    assert curl("--data-binary", f"@{lines}", f"{crawls}/t/urls")["added"] == 2


def test_small_answers_do_not_wait_for_delayed_acknowledgements(broker: BrokerProcess) -> None:
    client = broker.client()
    times: list[float] = []
    for _ in range(50):
        began = time.monotonic()
        client.crawls()
        times.append(time.monotonic() - began)
    assert statistics.median(times) < 0.03  # 40 ms and more without TCP_NODELAY


def test_the_clients_context_verifies_certificates() -> None:
    pool = BrokerClient(["https://127.0.0.1:1"])._addresses[0].pool
    context: ssl.SSLContext = pool.ssl_context  # type: ignore[attr-defined]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
