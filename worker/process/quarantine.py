"""A process of its own for suspects: pages that may kill or hang the process that reads them.

A task is a suspect once a process died or hung while reading its page, or when it was leased
several times without an outcome. From then on its page is read here. The crawl's patterns are asked
about its URL here, too, and the user's module for its request's headers. If this process dies or
hangs, the worker goes on and charges that task alone. A harmless page costs a process for a minute.
Pages of costly hosts (``costly.py``) are read here, too.

The worker starts the process at the first suspect and ends it when it has had none for a while. It
serves one suspect at a time, at a lower priority than the crawl's. Requests and answers
(``messages.py``) go over a socket pair, so that what a user's function prints goes where it always
does. The kernel kills it with its worker.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import gevent
import msgspec
from gevent.lock import BoundedSemaphore

from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.log import logger
from greencrawl.schema.net.permits import Permits
from greencrawl.schema.process.child import end, end_of, spawn
from greencrawl.schema.records import Failure, FailureKind, Fetched, Task
from greencrawl.schema.settings import load
from greencrawl.worker.auth.base import Grant, Verdict
from greencrawl.worker.auth.kinds import form_page
from greencrawl.worker.auth.kinds.registry import make
from greencrawl.worker.auth.state.secrets import Secrets
from greencrawl.worker.crawls import CrawlContext, context_of
from greencrawl.worker.extract import bound_parses
from greencrawl.worker.hooks import HookError
from greencrawl.worker.kernels.choosing import read_in_quarantine
from greencrawl.worker.kernels.http import HTTP
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.kernels.visit import TaskVisit
from greencrawl.worker.process.messages import (
    ANSWER,
    REQUEST,
    Answer,
    FetchAnswer,
    FetchRequest,
    HeadersAnswer,
    HeadersRequest,
    JudgeAnswer,
    JudgeRequest,
    Raised,
    ReadAnswer,
    ReadRequest,
    RemoteVisit,
    Request,
    SendAnswer,
    SendRequest,
    VerdictAnswer,
    VerdictRequest,
    receive,
    send,
    send_answer,
)

IDLE_SECONDS = 60.0
START_SECONDS = 120.0
STEPS = 8
"""Steps in which the time of a page is counted."""
NICENESS = 10
"""A page that loops must not take half of a core from the crawl."""

log = logger("quarantine")


class DiedInQuarantine(GreencrawlError):
    """Raised when a task killed the otherwise idle process that read it, or hung it for
    ``seconds``."""

    def __init__(self, kind: FailureKind, detail: str, seconds: float = 0.0) -> None:
        super().__init__(detail)
        self.kind = kind
        self.seconds = seconds


class NoProcess(GreencrawlError):
    """Raised when the process does not start: no task counts a failure."""


class RaisedInQuarantine(GreencrawlError):
    """Raised when reading raised an unforeseen error there; the message is the error's own."""


class Quarantine:
    """The worker's side of the quarantine. Safe for many greenlets: they take turns.

    A request may take ``stall_seconds`` there, like a page in the worker itself. ``environ`` is the
    process's environment, by default ours.
    """

    def __init__(
        self,
        stall_seconds: float,
        *,
        idle_seconds: float = IDLE_SECONDS,
        command: Sequence[str] = (sys.executable, "-P", "-m", "greencrawl.worker", "--quarantine"),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._stall_seconds = stall_seconds
        self._idle_seconds = idle_seconds
        self._command = tuple(command)
        self._environ = environ
        self._turn = BoundedSemaphore(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._ending: gevent.Greenlet[[], None] | None = None

    @property
    def pid(self) -> int | None:
        """Return the id of the present process, if any."""
        return self._process.pid if self._process else None

    def read(
        self, context: CrawlContext, task: Task, fetched: Fetched, kernel: str = HTTP.name
    ) -> Reading:
        """Run ``Kernel.read`` of that name there.

        Raises DiedInQuarantine, NoProcess and RaisedInQuarantine.
        """
        answer = self._ask(ReadRequest(context.crawl, task, fetched, kernel))
        assert isinstance(answer, ReadAnswer)
        return answer.reading

    def fetch(
        self,
        context: CrawlContext,
        visit: TaskVisit,
        task: Task,
        kernel: str,
        headers: Mapping[str, str],
    ) -> Fetched | Failure:
        """Run ``Kernel.fetch`` of that name there; ``visit`` sends its requests here.

        Raises DiedInQuarantine, NoProcess, RaisedInQuarantine, and what ``visit`` raises.
        """
        request = FetchRequest(context.crawl, task, kernel, dict(headers))
        answer = self._ask(
            request, lambda one: visit.send(one.method, one.url, one.headers, one.body)
        )
        assert isinstance(answer, FetchAnswer)
        return answer.answer.result

    def request_headers(
        self, context: CrawlContext, task: Task, headers: dict[str, str]
    ) -> dict[str, str]:
        """Run ``Hooks.request_headers`` there.

        Raises HookError, DiedInQuarantine, NoProcess, RaisedInQuarantine.
        """
        answer = self._ask(HeadersRequest(context.crawl, task, headers))
        assert isinstance(answer, HeadersAnswer)
        if answer.problem:
            raise HookError("request", answer.problem)
        return answer.headers

    def excluded_by(self, context: CrawlContext, task: Task, url: str, link: bool) -> str | None:
        """Run ``Rules.judge`` there. Raises DiedInQuarantine, NoProcess, RaisedInQuarantine."""
        answer = self._ask(JudgeRequest(context.crawl, task, url, link))
        assert isinstance(answer, JudgeAnswer)
        return answer.reason

    def verdict(
        self, context: CrawlContext, task: Task, entry: str, fetched: Fetched, grant: Grant | None
    ) -> Verdict | Failure:
        """Run ``Kind.judge`` of an entry there; raises like :meth:`read`."""
        answer = self._ask(VerdictRequest(context.crawl, task, entry, fetched, grant))
        assert isinstance(answer, VerdictAnswer)
        said = answer.verdict or answer.failure
        assert said is not None
        return said

    def close(self) -> None:
        """End the process, if there is one."""
        if self._ending is not None:
            self._ending.kill(block=False)
            self._ending = None
        self._end()

    def _ask(
        self, request: Request, sends: Callable[[SendRequest], Fetched | Failure] | None = None
    ) -> Answer:
        with self._turn:
            if self._ending is not None:
                self._ending.kill(block=False)
                self._ending = None
            sock = self._peer()
            try:
                answer = self._exchange(sock, request)
                while isinstance(answer, SendRequest):
                    assert sends is not None
                    answer = self._exchange(sock, send_answer(sends(answer)))
            except BaseException:  # after any error it is not known what would be read next
                self._end()
                raise
            self._ending = gevent.spawn_later(self._idle_seconds, self._idle)
        if isinstance(answer, Raised):
            raise RaisedInQuarantine(answer.what)
        return answer

    def _exchange(self, sock: socket.socket, request: Request | SendAnswer) -> Answer:
        try:
            sock.settimeout(self._stall_seconds)
            send(sock, msgspec.msgpack.encode(request))
            self._await(sock)
            data = receive(sock)
        except TimeoutError:
            detail = f"read alone, it did not end within {self._stall_seconds:g} s"
            raise DiedInQuarantine(FailureKind.STALLED, detail, self._stall_seconds) from None
        except OSError:
            data = None
        if data is None:
            raise DiedInQuarantine(
                FailureKind.PROCESS_DEATH, f"read alone, it ended with {self._last()}"
            )
        return ANSWER.decode(data)

    def _await(self, sock: socket.socket) -> None:
        """Wait until the answer begins. Raises TimeoutError.

        The time is counted in steps. A step in which this process was frozen itself counts like any
        other, since the same cause may have frozen the other process as well.
        """
        sock.settimeout(self._stall_seconds / STEPS)
        for step in range(STEPS):
            try:
                sock.recv(1, socket.MSG_PEEK)
                break
            except TimeoutError:
                if step == STEPS - 1:
                    raise
        sock.settimeout(self._stall_seconds)

    def _last(self) -> str:
        """Say how the process ended that has just closed its end of the socket."""
        assert self._process
        try:
            return end_of(self._process.wait(5))
        except subprocess.TimeoutExpired:
            return "nothing said"

    def _peer(self) -> socket.socket:
        """Return a socket whose other end is ready.

        If a process died while idle, no task counts a failure.
        """
        if self._socket is not None and self._process and self._process.poll() is None:
            return self._socket
        self._end()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                command = (*self._command, str(theirs.fileno()))
                self._process = spawn(command, environ=self._environ, keep=(theirs.fileno(),))
            self._socket = ours
            ours.settimeout(START_SECONDS)
            if receive(ours) is not None:
                log.info("quarantine_started", pid=self._process.pid)
                return ours
        except OSError as error:
            ours.close()
            self._end()
            raise NoProcess(f"cannot be started: {error}") from error
        except BaseException:
            ours.close()
            self._end()
            raise
        self._end()
        raise NoProcess("did not come up")

    def _idle(self) -> None:
        with self._turn:
            self._ending = None
            self._end()

    def _end(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        end(self._process)
        self._process = None


# -- the process itself


def main(descriptor: int) -> int:
    """Run ``greencrawl.worker --quarantine DESCRIPTOR``, until the worker closes the socket or
    dies."""
    os.nice(NICENESS)
    bound_parses()  # without it no parse can be stopped
    form_page.in_own_process()
    contexts: dict[int, CrawlContext] = {}
    with socket.socket(fileno=descriptor) as sock, suppress(ConnectionError):
        send(sock, b"")
        while (data := receive(sock)) is not None:
            send(sock, _encoded(_serve(contexts, REQUEST.decode(data), sock)))
    return 0


def _serve(contexts: dict[int, CrawlContext], request: Request, sock: socket.socket) -> Answer:
    try:
        crawl = request.crawl
        context = contexts.get(crawl.id)
        if context is None or context.crawl != crawl:
            context = contexts[crawl.id] = context_of(crawl)
        if isinstance(request, ReadRequest):
            return ReadAnswer(
                read_in_quarantine(context, request.kernel, request.task, request.fetched)
            )
        if isinstance(request, FetchRequest):
            visit = RemoteVisit(sock, request.task, context.options.max_body_bytes)
            kernel = context.kernels.by_name[request.kernel]
            return FetchAnswer(send_answer(kernel.fetch(visit, request.task, request.headers)))
        if isinstance(request, JudgeRequest):
            return JudgeAnswer(context.rules.judge(request.task, request.url, request.link))
        if isinstance(request, VerdictRequest):
            return _verdict(request)
        try:
            return HeadersAnswer(context.hooks.request_headers(request.task, request.headers))
        except HookError as error:
            return HeadersAnswer({}, error.what)
    except Exception as error:
        log.exception("page_failed", url=request.task.url)
        return Raised(f"{type(error).__name__}: {error}")


def _verdict(request: VerdictRequest) -> VerdictAnswer:
    entry = next(one for one in request.crawl.options.auth if one.name == request.entry)
    settings = load()
    kind = make(entry, Secrets(settings.credentials_file).of(entry), Permits.of(settings))
    said = kind.judge(request.fetched, request.grant)
    return VerdictAnswer(failure=said) if isinstance(said, Failure) else VerdictAnswer(said)


def _encoded(answer: Answer) -> bytes:
    try:
        return msgspec.msgpack.encode(answer)
    except (TypeError, ValueError, OverflowError) as error:
        return msgspec.msgpack.encode(Raised(f"{type(error).__name__}: {error}"))
