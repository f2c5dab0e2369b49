"""Workers that die while they wait for hosts: hosts that become due go to the others at once."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest

from greencrawl.broker.api.app import HttpApp, Server, listener
from greencrawl.broker.api.security import Guard
from greencrawl.broker.frontier import Frontier
from greencrawl.broker.service.service import Service
from greencrawl.schema.records import Admission, Crawl, CrawlOptions, LeaseRequest
from greencrawl.store import open_store
from tests.support.certificates import authority, signed
from tests.support.redis_server import RedisServer

HOSTS = 20

# A program that asks for hosts and waits for the answer for ever.
ASKER = """
import socket, ssl, sys, time
port, trust, message, how = int(sys.argv[1]), sys.argv[2], sys.argv[3].encode(), sys.argv[4]
one = socket.create_connection(("127.0.0.1", port))
if trust:
    context = ssl.create_default_context(cafile=trust)
    one = context.wrap_socket(one, server_hostname="127.0.0.1")
one.sendall(message)
print("asked", flush=True)
if how:
    sys.stdin.readline()
    one.sendall(b"GET / HTTP/1.1\\r\\n")  # it stays unread
    if trust:
        one.setblocking(False)
        try:
            one.unwrap()
        except ssl.SSLWantReadError:
            pass
    one.close()
    print("closed", flush=True)
    sys.stdin.readline()
one.recv(1)
"""


class Broker:
    """A frontier on a real Redis behind the real server."""

    def __init__(self, folder: Path, redis: RedisServer, *, tls: bool) -> None:
        self.store = open_store(f"sqlite:///{folder / 'c.sqlite'}")
        self.frontier = Frontier(
            [redis.url], self.store, partitions=8, request_seconds=5, create=True
        )
        self.frontier.start()
        self.crawl: Crawl = self.store.put_crawl("a", CrawlOptions(delay=0), [])
        self.frontier.put_crawl(self.crawl)
        self.service = Service(self.frontier, self.store)
        context, self.trust = None, ""
        if tls:
            ca = authority(folder / "ca")
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*signed(ca, "broker", address="127.0.0.1"))
            self.trust = str(ca)
        self.server = Server(
            HttpApp(self.service, Guard("", "")), listener(("127.0.0.1", 0)), context
        )
        self.server.start()

    def stop(self) -> None:
        self.service.stop()
        self.server.stop()
        self.frontier.stop()
        self.store.close()

    def until_waiting(self, calls: int) -> None:
        with gevent.Timeout(10):
            while self.frontier.leasing.waiting != calls:
                gevent.sleep(0.005)

    def seed(self) -> None:
        found = [Admission(f"http://h{n}.example/") for n in range(HOSTS)]
        self.frontier.admit(self.crawl.id, found)


@pytest.fixture(params=[False, True], ids=["plain", "TLS"])
def broker(
    request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer
) -> Iterator[Broker]:
    made = Broker(tmp_path, redis_server, tls=request.param)
    yield made
    made.stop()


def asker(broker: Broker, how: str = "") -> subprocess.Popen[str]:
    """Return a process that waits for hosts. It has the most room, so it would be served first.

    With ``how`` it closes the connection on request, after data that the broker does not read.
    """
    body = json.dumps(
        {"worker": "dead", "incarnation": 1, "sequence": 1, "max_sessions": 1000, "wait": 20}
    )
    head = (
        "POST /v1/lease HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", ASKER, str(broker.server.port), broker.trust, head + body, how],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout
    assert process.stdout.readline() == "asked\n"
    broker.until_waiting(1)
    return process


@pytest.mark.parametrize("how", ["", "close"])
def test_hosts_are_leased_to_a_living_worker_after_another_died_while_it_waited(
    broker: Broker, how: str
) -> None:
    process = asker(broker, how)
    if how:
        assert process.stdin
        assert process.stdout
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "closed\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    broker.seed()
    request = LeaseRequest(worker="alive", incarnation=1, sequence=1, max_sessions=100, wait=5)
    found: set[str] = set()
    with gevent.Timeout(5):
        while len(found) < HOSTS:
            reply = broker.frontier.lease(request)
            found |= {session.host for session in reply.sessions}
    assert broker.frontier.leasing.waiting == 0


def test_a_living_worker_that_waits_gets_an_answer(broker: Broker) -> None:
    process = asker(broker)
    broker.seed()
    with gevent.Timeout(10):
        process.communicate()
    assert process.returncode == 0, "it has had an answer"


def test_a_worker_that_closed_its_half_of_the_connection_gets_no_session(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    broker = Broker(tmp_path, redis_server, tls=False)
    body = b'{"worker": "half", "incarnation": 1, "sequence": 1, "wait": 20}'
    with socket.create_connection(("127.0.0.1", broker.server.port), timeout=10) as one:
        one.sendall(
            b"POST /v1/lease HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        broker.until_waiting(1)
        one.shutdown(socket.SHUT_WR)
        broker.seed()
        said = one.recv(65536)
    assert b'"sessions":[]' in said
    broker.stop()
