"""gevent's names on real threads, so that the crawler's own modules run without greenlets.

``install()`` must come before those modules are imported. What they take from gevent – ``spawn``,
``sleep``, events, semaphores, queues, sockets, a pool of threads – has a twin in the standard
library with the same meaning, and nothing is patched: a socket blocks its thread, and the kernel
switches.

Code that is safe between greenlets because it does not yield is not safe between threads.
``bench.models.model_process`` guards the classes where that would break something. A crawler that
is written for threads would need more locks, so the comparison favours threads in this.
"""

from __future__ import annotations

import importlib
import queue
import select
import socket
import ssl
import sys
import threading
import time
import types
from collections.abc import Callable
from itertools import count
from math import inf
from typing import Any


class Greenlet:
    """A thread with the interface of a greenlet. It cannot be killed: ``kill`` only forgets it."""

    def __init__(self, body: Callable[..., Any], *args: Any, **named: Any) -> None:
        self._body = body
        self._args, self._named = args, named
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._body(*self._args, **self._named)
        except BaseException as error:  # noqa: BLE001 - `get` raises it, as gevent's does
            self._error = error

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread's end, at most for ``timeout`` seconds."""
        self._thread.join(timeout)

    def ready(self) -> bool:
        """Return whether the thread has ended."""
        return not self._thread.is_alive()

    def get(self) -> Any:
        """Return the thread's value, or raise its exception."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value

    def kill(self, *_: object, **__: object) -> None:
        """Do nothing: a thread cannot be killed."""
        return


class GreenletExit(BaseException):
    """The value of a killed greenlet; no thread has it."""


class Timeout(BaseException):
    """``greencrawl.worker.hooks`` names it as an exception of a user's function; it is not raised
    here."""


class ThreadPool:
    """gevent's pool: ``apply`` runs a call in one of ``size`` threads and waits for it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._calls: queue.SimpleQueue[Greenlet | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def spawn(self, body: Callable[..., Any], *args: Any, **named: Any) -> Greenlet:
        """Begin a call in one of the threads."""
        call = Greenlet(body, *args, **named)
        done = threading.Event()
        call.join = lambda timeout=None: done.wait(timeout)  # type: ignore[method-assign,assignment]
        call.ready = done.is_set  # type: ignore[method-assign]
        self._calls.put((call, done))  # type: ignore[arg-type]
        if len(self._threads) < self._size:
            self._threads.append(threading.Thread(target=self._work, daemon=True))
            self._threads[-1].start()
        return call

    def apply(self, body: Callable[..., Any], args: Any = (), named: Any = None) -> Any:
        """Return a call's value, or raise its exception."""
        call = self.spawn(body, *args, **(named or {}))
        call.join()
        if call._error is not None:
            raise call._error
        return call._value

    def kill(self) -> None:
        """End the threads when they have done what they were given."""
        for _ in self._threads:
            self._calls.put(None)

    join = kill

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            call, done = item  # type: ignore[misc]
            call._run()
            done.set()


class Io:
    """The event for which a connection waits: its descriptor becomes readable (1) or writable
    (2)."""

    def __init__(self, descriptor: int, events: int) -> None:
        self._poller = select.poll()
        self._poller.register(descriptor, {1: select.POLLIN, 2: select.POLLOUT}[events])

    def wait(self, until: float) -> None:
        """Block the thread. Raises TimeoutError at ``until``, a value of the monotonic clock."""
        if not self._poller.poll(max(0.0, until - time.monotonic()) * 1000):
            raise TimeoutError

    def close(self) -> None:
        """Do nothing: a poller holds no descriptor."""
        return


class Loop:
    """The part of gevent's loop that is used, except for its watchers."""

    io = Io
    now = staticmethod(time.time)

    def __init__(self) -> None:
        self._turns = count(1)

    @property
    def iteration(self) -> int:
        """Return a new number each time: a busy thread does not keep the others from running."""
        return next(self._turns)

    @staticmethod
    def run_callback(call: Callable[[], Any]) -> None:
        """Call the function at once."""
        call()


class Hub:
    """The one hub of all threads."""

    loop = Loop()


_hub = Hub()


def spawn(body: Callable[..., Any], *args: Any, **named: Any) -> Greenlet:
    """Start ``body`` in a thread."""
    started = Greenlet(body, *args, **named)
    started.start()
    return started


def joinall(many: list[Greenlet], timeout: float | None = None) -> None:
    """Wait for all, at most for ``timeout`` seconds."""
    until = None if timeout is None else time.monotonic() + timeout
    for one in many:
        one.join(None if until is None else max(0.0, until - time.monotonic()))


def wait(
    many: list[Greenlet | threading.Event], timeout: float | None = None, count: int = 1
) -> list[Greenlet | threading.Event]:
    """Return those of ``many`` that are ready, once there are ``count`` or the time is over."""
    until = inf if timeout is None else time.monotonic() + timeout
    while True:
        ready = [one for one in many if (one.ready if isinstance(one, Greenlet) else one.is_set)()]
        if len(ready) >= count or time.monotonic() > until:
            return ready
        time.sleep(0.01)


def install() -> None:
    """Put the twins in gevent's place. Raises RuntimeError when gevent is loaded already."""
    if "gevent" in sys.modules:
        raise RuntimeError("gevent is loaded already")

    def module(name: str, **names: Any) -> None:
        made = types.ModuleType(name)
        made.__dict__.update(names)
        sys.modules[name] = made
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, made)

    module(
        "gevent",
        Greenlet=Greenlet,
        GreenletExit=GreenletExit,
        Timeout=Timeout,
        spawn=spawn,
        sleep=time.sleep,
        joinall=joinall,
        wait=wait,
        killall=lambda many: None,
        getcurrent=threading.current_thread,
        config=types.SimpleNamespace(),
        get_hub=lambda: _hub,
    )
    sys.modules["gevent"].__path__ = []  # type: ignore[attr-defined]
    module(
        "gevent.monkey",
        get_original=lambda name, item: getattr(importlib.import_module(name), item),
    )
    module("gevent.event", Event=threading.Event)
    module(
        "gevent.lock",
        BoundedSemaphore=threading.BoundedSemaphore,
        Semaphore=threading.Semaphore,
        RLock=threading.RLock,
    )
    module("gevent.threadpool", ThreadPool=ThreadPool)
    module("gevent.queue", **{n: getattr(queue, n) for n in ("Empty", "Full", "Queue")})
    sys.modules["gevent.queue"].LifoQueue = queue.LifoQueue  # type: ignore[attr-defined]
    for name, real in (("select", select), ("socket", socket), ("ssl", ssl)):
        sys.modules[f"gevent.{name}"] = real
        setattr(sys.modules["gevent"], name, real)
