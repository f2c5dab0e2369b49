"""A process of its own for suspects: pages that may kill or hang whoever reads them.

A task is a suspect once its page was being read when a process died or stood still, or when it was
handed out several times without an outcome. From then on its page is read here. Here too the
crawl's patterns are asked about its URL, and the user's module for its request's headers. If this
process dies or stands still, the worker goes on and charges that task alone. A page that is
harmless costs a process for a minute. Pages of costly hosts (``costly.py``) are read here, too.

The worker starts the process at the first suspect and ends it when it has had none for a while. It
serves one suspect at a time, at a lower priority than the crawl's. Requests and answers
(``messages.py``) go over a socket pair, so that what a user's function prints goes where it always
does. The kernel kills it with its worker (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

import gevent
import msgspec
from gevent.lock import BoundedSemaphore

from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.log import logger
from greencrawl.schema.net.permits import Permits
from greencrawl.schema.records import Failure, FailureKind, Fetched, Task
from greencrawl.schema.settings import load
from greencrawl.worker.auth.base import Grant, Verdict
from greencrawl.worker.auth.kinds import form_page
from greencrawl.worker.auth.kinds.registry import make
from greencrawl.worker.auth.state.secrets import Secrets
from greencrawl.worker.crawls import CrawlContext, context_of
from greencrawl.worker.extract import pool_trees
from greencrawl.worker.hooks import HookError
from greencrawl.worker.kernels.choosing import read_alone
from greencrawl.worker.kernels.http import HTTP
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.kernels.visit import TaskVisit
from greencrawl.worker.process.messages import (
    ANSWER,
    REQUEST,
    Answer,
    Asked,
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
    Told,
    VerdictAnswer,
    VerdictRequest,
    receive,
    send,
    told,
)

IDLE_SECONDS = 60.0
START_SECONDS = 120.0
STEPS = 8
"""In which the time is counted that a page may take."""
NICENESS = 10
"""A page that spins must not take half of a core from the crawl."""

_PR_SET_PDEATHSIG = 1

log = logger("alone")


class DiedInQuarantine(GreencrawlError):
    """Raised when a task killed the idle process that read it, or hung it for ``seconds``."""

    def __init__(self, kind: FailureKind, detail: str, seconds: float = 0.0) -> None:
        super().__init__(detail)
        self.kind = kind
        self.seconds = seconds


class NoProcess(GreencrawlError):
    """Raised when the process does not come up: no task is to blame."""


class RaisedInQuarantine(GreencrawlError):
    """Raised when reading raised there what nobody foresaw; the message is the error's own."""


class Quarantine:
    """The worker's side. Safe for many greenlets: they take turns.

    A request may take ``stall_seconds`` there, like a page in the worker itself. ``environ`` is the
    process's environment, ours if it is left out.
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
        """The process that is there now, if any."""
        return self._process.pid if self._process else None

    def read(
        self, context: CrawlContext, task: Task, fetched: Fetched, kernel: str = HTTP.name
    ) -> Reading:
        """``Kernel.read`` of that name there.

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
        """``Kernel.fetch`` of that name there; its requests are made here, by ``visit``.

        Raises DiedInQuarantine, NoProcess, RaisedInQuarantine, and what ``visit`` raises.
        """
        request = FetchRequest(context.crawl, task, kernel, dict(headers))
        answer = self._ask(
            request, lambda one: visit.send(one.method, one.url, one.headers, one.body)
        )
        assert isinstance(answer, FetchAnswer)
        return answer.told.said

    def request_headers(
        self, context: CrawlContext, task: Task, headers: dict[str, str]
    ) -> dict[str, str]:
        """``Hooks.request_headers`` there.

        Raises HookError, DiedInQuarantine, NoProcess, RaisedInQuarantine.
        """
        answer = self._ask(HeadersRequest(context.crawl, task, headers))
        assert isinstance(answer, HeadersAnswer)
        if answer.problem:
            raise HookError("request", answer.problem)
        return answer.headers

    def excluded_by(self, context: CrawlContext, task: Task, url: str, link: bool) -> str | None:
        """``Rules.judge`` there. Raises DiedInQuarantine, NoProcess, RaisedInQuarantine."""
        answer = self._ask(JudgeRequest(context.crawl, task, url, link))
        assert isinstance(answer, JudgeAnswer)
        return answer.reason

    def verdict(
        self, context: CrawlContext, task: Task, entry: str, fetched: Fetched, grant: Grant | None
    ) -> Verdict | Failure:
        """``Kind.judge`` of an entry there; raises as :meth:`read` does."""
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
        self, request: Request, sends: Callable[[Asked], Fetched | Failure] | None = None
    ) -> Answer:
        with self._turn:
            if self._ending is not None:
                self._ending.kill(block=False)
                self._ending = None
            sock = self._peer()
            try:
                answer = self._exchange(sock, request)
                while isinstance(answer, Asked):
                    assert sends is not None
                    answer = self._exchange(sock, told(sends(answer)))
            except BaseException:  # whatever it was, nobody knows what would be read next
                self._end()
                raise
            self._ending = gevent.spawn_later(self._idle_seconds, self._idle)
        if isinstance(answer, Raised):
            raise RaisedInQuarantine(answer.what)
        return answer

    def _exchange(self, sock: socket.socket, request: Request | Told) -> Answer:
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
        """Until the answer begins. Raises TimeoutError.

        The time is counted in steps: one for which we stood still ourselves counts for no more than
        another, since whatever froze us may have frozen the process as well.
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
        """How the process ended that has just closed its end of the socket."""
        assert self._process
        try:
            status = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return "nothing said"
        return signal.Signals(-status).name if status < 0 else f"status {status}"

    def _peer(self) -> socket.socket:
        """A socket whose other end is ready. One that died while idle is nobody's fault."""
        if self._socket is not None and self._process and self._process.poll() is None:
            return self._socket
        self._end()
        ours, theirs = socket.socketpair()
        arguments = (str(theirs.fileno()), str(os.getpid()))
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [*self._command, *arguments],
                    stdin=subprocess.DEVNULL,
                    env=self._environ,
                    pass_fds=(theirs.fileno(),),
                )
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
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


# -- the process itself


def main(descriptor: int, parent: int) -> int:
    """Body of ``greencrawl.worker --quarantine DESCRIPTOR PARENT``, until the worker hangs up."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel was told
        return 1
    os.nice(NICENESS)
    pool_trees()  # without which no parse can be ended
    form_page.read_alone()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker says when it is over
    contexts: dict[int, CrawlContext] = {}
    with socket.socket(fileno=descriptor) as sock:
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
            return ReadAnswer(read_alone(context, request.kernel, request.task, request.fetched))
        if isinstance(request, FetchRequest):
            visit = RemoteVisit(sock, request.task, context.options.max_body_bytes)
            kernel = context.kernels.by_name[request.kernel]
            return FetchAnswer(told(kernel.fetch(visit, request.task, request.headers)))
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
