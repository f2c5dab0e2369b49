"""The messages between a worker and the process that reads its suspects: msgpack after a length."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from greencrawl.schema.net.urls import host_of
from greencrawl.schema.records import Crawl, Failure, FailureKind, Fetched, Task
from greencrawl.worker.auth.base import Grant, Verdict
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.kernels.visit import TaskVisit

_LENGTH = struct.Struct("<Q")


class ReadRequest(Struct, frozen=True, tag="read"):
    """Read a page by a kernel."""

    crawl: Crawl
    task: Task
    fetched: Fetched
    kernel: str


class FetchRequest(Struct, frozen=True, tag="fetch"):
    """Ask for a page by a user's own kernel; the worker answers each :class:`SendRequest` of it."""

    crawl: Crawl
    task: Task
    kernel: str
    headers: dict[str, str]


class HeadersRequest(Struct, frozen=True, tag="headers"):
    """Ask the user's ``request`` for headers."""

    crawl: Crawl
    task: Task
    headers: dict[str, str]


class JudgeRequest(Struct, frozen=True, tag="judge"):
    """Ask the crawl's patterns whether ``url`` is fetched; ``link`` as for ``Rules.judge``."""

    crawl: Crawl
    task: Task
    url: str
    link: bool


class VerdictRequest(Struct, frozen=True, tag="verdict"):
    """Ask an entry of the crawl's ``auth`` whether an answer shows that we are in."""

    crawl: Crawl
    task: Task
    entry: str
    fetched: Fetched
    grant: Grant | None


class SendRequest(Struct, frozen=True, tag="send"):
    """A request that a user's own kernel wants to send; its :class:`FetchAnswer` comes later."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes


class SendAnswer(Struct, frozen=True):
    """The result of a :class:`SendRequest`: a page or a failure."""

    fetched: Fetched | None = None
    failure: Failure | None = None

    @property
    def result(self) -> Fetched | Failure:
        """Return the page or the failure."""
        found = self.fetched or self.failure
        assert found is not None
        return found


class FetchAnswer(Struct, frozen=True, tag="fetch"):
    """The answer to a :class:`FetchRequest`."""

    answer: SendAnswer


class ReadAnswer(Struct, frozen=True, tag="read"):
    """The answer to a :class:`ReadRequest`."""

    reading: Reading


class HeadersAnswer(Struct, frozen=True, tag="headers"):
    """Headers; ``problem`` is the user's function's error, or ""."""

    headers: dict[str, str]
    problem: str = ""


class JudgeAnswer(Struct, frozen=True, tag="judge"):
    """Why ``url`` is excluded; None if it is fetched."""

    reason: str | None


class VerdictAnswer(Struct, frozen=True, tag="verdict"):
    """A verdict or a failure: one of the two is set."""

    verdict: Verdict | None = None
    failure: Failure | None = None


class Raised(Struct, frozen=True, tag="raised"):
    """An unforeseen error: its type and message."""

    what: str


Request = ReadRequest | FetchRequest | HeadersRequest | JudgeRequest | VerdictRequest
Answer = (
    ReadAnswer | FetchAnswer | HeadersAnswer | JudgeAnswer | VerdictAnswer | Raised | SendRequest
)
REQUEST: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
ANSWER: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
SEND_ANSWER: msgspec.msgpack.Decoder[SendAnswer] = msgspec.msgpack.Decoder(SendAnswer)


def send_answer(result: Fetched | Failure) -> SendAnswer:
    """Return the message with the result of a :class:`SendRequest`."""
    return SendAnswer(result) if isinstance(result, Fetched) else SendAnswer(failure=result)


def send(sock: socket.socket, data: bytes) -> None:
    """Send a message. Raises OSError."""
    sock.sendall(_LENGTH.pack(len(data)))
    sock.sendall(data)


def receive(sock: socket.socket) -> bytes | None:
    """Return the next message, or None when the other end has gone. Raises OSError."""
    head = _exactly(sock, _LENGTH.size)
    return None if head is None else _exactly(sock, _LENGTH.unpack(head)[0])


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        some = sock.recv(min(size - len(data), 1 << 20))
        if not some:
            return None
        data += some
    return bytes(data)


class RemoteVisit(TaskVisit):
    """The visit of a suspect's task, as this process sees it: the worker sends its requests."""

    __slots__ = ("_busy", "_most", "_sock")

    def __init__(self, sock: socket.socket, task: Task, most: int) -> None:
        self.task = task
        self.over = None
        self._sock = sock
        self._most = most
        self._busy = False

    @property
    def host(self) -> str:
        """See ``TaskVisit.host``."""
        return host_of(self.task.url)

    @property
    def max_body_bytes(self) -> int:
        """See ``TaskVisit.max_body_bytes``."""
        return self._most

    def get(self, url: str, headers: Mapping[str, str]) -> Fetched | Failure:
        """See ``TaskVisit.get``."""
        return self.send("GET", url, headers)

    def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Fetched | Failure:
        """See ``TaskVisit.send``. Raises EOFError when the worker has gone, and ValidationError."""
        if self._busy:
            return Failure(FailureKind.KERNEL, "one request at a time", requests=0)
        asked = msgspec.msgpack.encode(SendRequest(method, url, dict(headers), body))
        ANSWER.decode(asked)  # what the worker could not read is the kernel's error
        self._busy = True
        send(self._sock, asked)
        data = receive(self._sock)
        self._busy = False
        if data is None:
            raise EOFError("the worker has gone")
        return SEND_ANSWER.decode(data).result
