"""Kernels of a user that misbehave depending on the URL, and one that behaves."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import gevent

from greencrawl.schema.records import Failure, FailureKind, Fetched, Link, Task
from greencrawl.worker.crawls import CrawlContext
from greencrawl.worker.kernels import Kernel
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.kernels.visit import TaskVisit

FetchResult = Fetched | Failure


class Plain(Kernel):
    """Reads lines: a title, then URLs; ``>`` stands before further pages."""

    name = "lines"

    def read(self, context: CrawlContext, task: Task, fetched: Fetched) -> Reading:
        title, *lines = fetched.body.decode().split("\n")
        return Reading(
            title=title,
            text=f"of {title}",
            fields={"lines": len(lines)},
            records=[{"url": line} for line in lines],
            found=[Link(line, score=0.5) for line in lines if not line.startswith(">")],
            further=[line[1:] for line in lines if line.startswith(">")],
        )


class Hostile(Kernel):
    """``read`` does what the URL says."""

    name = "hostile"

    def read(self, context: CrawlContext, task: Task, fetched: Fetched) -> Reading:
        done = _READ.get(task.url.rpartition("/")[2])
        return Reading(title="read") if done is None else done()


class Asking(Kernel):
    """``fetch`` does what the URL says."""

    name = "asking"
    answers: ClassVar[list[FetchResult]] = []

    def fetch(self, visit: TaskVisit, task: Task, headers: Mapping[str, str]) -> FetchResult:
        word = task.url.partition("?")[0].rpartition("/")[2]
        first = visit.get(task.url, headers)
        if word in _HARM:
            _HARM[word]()
        made: Any = _FETCH[word](visit, task, headers, first) if word in _FETCH else first
        return made

    def read(self, context: CrawlContext, task: Task, fetched: Fetched) -> Reading:
        return Reading(title=fetched.body.decode(), fields={"pid": os.getpid()})


class Nameless(Kernel):
    """A kernel without a name."""


class Greedy(Kernel):
    """A kernel with the name of the default kernel."""

    name = "http"


class Twin(Plain):
    """A kernel with the name of another."""


class Unmade(Plain):
    """A kernel that cannot be made."""

    def __init__(self) -> None:
        raise OSError("no browser here")


class Narrow:
    """A kernel whose ``read`` takes too few arguments, and without ``fetch``."""

    name = "narrow"

    def read(self, fetched: Fetched) -> Reading:
        return Reading()


def _hang() -> Any:
    while True:
        continue


def _kill() -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def _raise() -> Any:
    raise ValueError("not as it was")


def _exit() -> Any:
    raise SystemExit(3)


def _sleep() -> Any:
    while True:
        time.sleep(1)


_HARM: dict[str, Callable[[], Any]] = {
    "raise": _raise, "exit": _exit, "hang": _hang, "kill": _kill, "sleep": _sleep,
}  # fmt: skip
_READ: dict[str, Callable[[], Any]] = {
    **_HARM,
    "none": lambda: None,
    "dict": lambda: {"title": "x"},
    "number": lambda: Reading(title=3),  # type: ignore[arg-type]
    "surrogate": lambda: Reading(text="\ud800"),
    "fields": lambda: Reading(fields={"x": object()}),
    "records": lambda: Reading(records=["x"]),  # type: ignore[list-item]
    "many": lambda: Reading(records=[{}] * 5001),
    "links": lambda: Reading(found=[f"/{n}" for n in range(1_000_000)]),
    "endless": lambda: Reading(found=iter(lambda: "/x", "")),  # type: ignore[arg-type]
    "things": lambda: Reading(found=[3]),  # type: ignore[list-item]
    "long": lambda: Reading(text="x" * 40_000_000),
    "own-links": lambda: Reading(
        links=[_admission("http://other/"), _admission("http://h/deep")], items=b"no JSON",
        cpu=9.0, costly="never",
    ),
    "refuses": lambda: Reading(failure="not a list of ours"),
}  # fmt: skip


def _admission(url: str) -> Any:
    from greencrawl.schema.records import Admission

    return Admission(url, 0, 0)


def _foreign(
    visit: TaskVisit, task: Task, headers: Mapping[str, str], first: FetchResult
) -> FetchResult:
    return visit.get("http://169.254.169.254/latest/meta-data/", headers)


def _other(
    visit: TaskVisit, task: Task, headers: Mapping[str, str], first: FetchResult
) -> FetchResult:
    asked = task.url.partition("?")[2]
    method, _, url = asked.partition("=")
    return visit.send(method.upper(), url, headers, b"x" if method == "post" else b"")


def _many(
    visit: TaskVisit, task: Task, headers: Mapping[str, str], first: FetchResult
) -> FetchResult:
    while True:
        first = visit.get(task.url, headers)
        if isinstance(first, Failure):
            return first


def _caught(
    visit: TaskVisit, task: Task, headers: Mapping[str, str], first: FetchResult
) -> FetchResult:
    with contextlib.suppress(Exception):
        visit.get("/over", headers)
    return Fetched(task.url, 200, {}, b"made up")


def _unread(
    visit: TaskVisit, task: Task, headers: Mapping[str, str], first: FetchResult
) -> FetchResult:
    for number in range(5):
        Asking.answers.append(visit.get(f"/part-{number}", headers))
    return Failure(FailureKind.TIMEOUT, "it is not wanted any more")


def _parallel(
    visit: TaskVisit, task: Task, headers: Mapping[str, str], first: FetchResult
) -> FetchResult:
    jobs = [gevent.spawn(visit.get, f"/part-{number}", headers) for number in range(3)]
    gevent.joinall(jobs)
    Asking.answers += [job.value for job in jobs]
    return first


def _left(
    visit: TaskVisit, task: Task, headers: Mapping[str, str], first: FetchResult
) -> FetchResult:
    def later() -> None:
        Asking.answers.append(visit.get("/part-0", headers))
        Asking.answers.append(visit.get("/part-1", headers))

    gevent.spawn(later)
    gevent.sleep(0)  # its first request is under way
    return first


def _joined(
    visit: TaskVisit, task: Task, headers: Mapping[str, str], first: FetchResult
) -> FetchResult:
    more = visit.get("/more", {**headers, "x-part": "2"})
    assert isinstance(first, Fetched)
    assert isinstance(more, Fetched)
    first.body += more.body
    first.headers["X-Made"] = "here"
    return first


_FETCH: dict[str, Callable[[TaskVisit, Task, Mapping[str, str], FetchResult], Any]] = {
    "foreign": _foreign,
    "other": _other,
    "many": _many,
    "caught": _caught,
    "unread": _unread,
    "joined": _joined,
    "parallel": _parallel,
    "left": _left,
    "none": lambda *_: None,
    "text": lambda *_: "<html>",
    "body": lambda *_: Fetched("", 200, {}, "text"),  # type: ignore[arg-type]
    "status": lambda *_: Fetched("", 0, {}, b""),
    "header": lambda visit, task, *_: visit.get(task.url, {"x": "a\r\nb: c"}),
    "long": lambda *_: Fetched("", 200, {}, b"x" * 4096),
}
