"""The light client of ``bench.frontier.speed``: prepared requests over raw keep-alive connections.

It is a process of its own on Redis' core, with a lower priority than Redis, so that the broker has
the other core. It reads one JSON object from its command line, prints ``ready``, waits for a line
on standard input, and prints its figures as JSON. It only checks that answers are correct.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import msgspec

from bench.frontier.urls import url_of

STALLED_SECONDS = 30.0
FINISH_BATCH = 256
"""The same size as that of the worker's outbox."""

Talk = Generator[bytes, bytes, None]
"""The generator of a connection: it yields requests, and is sent the answers' bodies."""


def post(path: str, body: bytes) -> bytes:
    """Return one HTTP/1.1 request."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def body_of(data: bytearray) -> bytes | None:
    """Return the body of an answer once it is complete. Raises AssertionError unless it is a
    200."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    assert data.startswith(b"HTTP/1.1 200"), bytes(data[:2000])
    at = data.lower().index(b"content-length:", 0, end) + 15
    length = int(data[at : data.index(b"\r\n", at)])
    return bytes(data[end + 4 :]) if len(data) >= end + 4 + length else None


def converse(port: int, talks: list[Talk]) -> None:
    """Let every talk run on a connection of its own until it ends."""
    selector = selectors.DefaultSelector()
    for talk in talks:
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection, selectors.EVENT_READ, (connection, talk, bytearray()))
        connection.sendall(next(talk))
    while selector.get_map():
        ready = selector.select(STALLED_SECONDS)
        assert ready, f"no answer for {STALLED_SECONDS} s"
        for key, _ in ready:
            connection, talk, data = key.data
            received = connection.recv(1 << 20)
            assert received, "the broker closed the connection"
            data += received
            body = body_of(data)
            if body is None:
                continue
            data.clear()
            try:
                connection.sendall(talk.send(body))
            except StopIteration:
                selector.unregister(connection)
                connection.close()


# -- ingest


def seed_requests(task: dict[str, Any]) -> list[bytes]:
    """Return all requests of an ingest, made beforehand."""
    first, count, size = task["first"], task["count"], task["batch"]
    requests = []
    for start in range(first, first + count, size):
        urls = [url_of(n, task["hosts"], 1) for n in range(start, min(start + size, first + count))]
        body = json.dumps({"urls": urls}, separators=(",", ":")).encode()
        requests.append(post(f"/v1/crawls/{task['crawl']}/urls", body))
    return requests


def ingest(task: dict[str, Any]) -> tuple[list[Talk], Callable[[], int]]:
    """Return the requests that seed URLs, one after the other on each connection, and a function
    that counts the new ones."""
    requests = seed_requests(task)
    requests.reverse()
    added = 0

    def talk() -> Talk:
        nonlocal added
        while requests:
            body = yield requests.pop()
            start = body.index(b'"added":') + 8
            added += int(body[start : body.index(b",", start)])

    return [talk() for _ in range(task["connections"])], lambda: added


# -- lease, close, finish


class Leased(msgspec.Struct):
    """The fields of a session that the client needs."""

    session: str
    token: str
    tasks: list[msgspec.Raw]


class Reply(msgspec.Struct):
    """The part of a lease's answer that is read here."""

    sessions: list[Leased]


def lease(task: dict[str, Any]) -> tuple[list[Talk], Callable[[], int]]:
    """Return workers that lease, close and finish until they have leased ``count`` tasks
    together."""
    wanted, leased, done = task["count"], 0, 0
    decode = msgspec.json.Decoder(Reply).decode

    def talk(number: int) -> Talk:
        nonlocal leased, done
        sequence = 0
        while leased < wanted:
            sequence += 1
            request = {
                "worker": f"bench{task['round']}-{number}",
                "incarnation": 1,
                "sequence": sequence,
                "max_sessions": task["sessions"],
                "tasks_per_session": task["tasks"],
                "wait": 5,
            }
            sessions = decode((yield post("/v1/lease", json.dumps(request).encode()))).sessions
            got = sum(len(session.tasks) for session in sessions)
            leased += got
            if not got:
                continue
            closing = b",".join(_closing(sessions))
            body = yield post("/v1/sessions/close", b'{"items":[' + closing + b"]}")
            assert body.count(b'"ok"') == len(sessions), body[:2000]
            items = list(_finishing(sessions))
            for start in range(0, len(items), FINISH_BATCH):
                batch = items[start : start + FINISH_BATCH]
                body = yield post("/v1/finish", b'{"items":[' + b",".join(batch) + b"]}")
                assert body.count(b'"ok"') == len(batch), body[:2000]
                done += len(batch)

    return [talk(number) for number in range(task["connections"])], lambda: done


def _closing(sessions: list[Leased]) -> Iterator[bytes]:
    for held in sessions:
        report = b'{"latency":0.05,"robots":true,"requests":%d}' % len(held.tasks)
        yield (
            b'{"session":"%b","token":"%b","report":%b}'
            % (held.session.encode(), held.token.encode(), report)
        )


_OUTCOME = b',"outcome":{"type":"done","stored":true,"bytes":18000}}'


def _finishing(sessions: list[Leased]) -> Iterator[bytes]:
    for held in sessions:
        head = b'{"session":"%b","token":"%b","task":' % (
            held.session.encode(),
            held.token.encode(),
        )
        for number in range(1, len(held.tasks) + 1):
            yield b"%b%d%b" % (head, number, _OUTCOME)


def main() -> None:
    """Do the task of the first argument, and print its figures."""
    os.nice(19)  # otherwise it would interrupt Redis in scripts, whose times are measured
    task = json.loads(sys.argv[1])
    talks, done = (ingest if task["do"] == "ingest" else lease)(task)
    print("ready", flush=True)
    sys.stdin.readline()
    began, cpu = time.monotonic(), time.process_time()
    converse(task["port"], talks)
    figures = {
        "done": done(),
        "seconds": time.monotonic() - began,
        "cpu": time.process_time() - cpu,
    }
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
