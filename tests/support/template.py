"""Processes forked from one that has imported what others wrote: to import that takes a broker or a
command most of its start, and the tests start hundreds.

Each imports all of ours itself, and runs as by ``python -m``: its arguments, environment, folder
and standard streams are its own, and it is the caller's child. Only where :func:`allow` was called;
by night, and where a variable beside ours differs that Python or the loader might read at a start,
a process is executed as any other.
"""

from __future__ import annotations

import _socket
import atexit
import ctypes
import json
import os
import random
import runpy
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import gevent
from gevent import monkey
from gevent.os import fork_and_watch

from tests.support.checkout import ROOT

MODULES = ("greencrawl.broker", "greencrawl.cli")
"""What can be run: such as let gevent patch all first."""
_PR_SET_CHILD_SUBREAPER = 36
_FREE = ("GREENCRAWL_", "PYTEST_", "PYTHONPATH=", "TMPDIR=", "TESTS_")
"""Variables that may differ: nothing reads them before ours is imported."""
_MOST_BYTES = 1 << 20

_allowed = False
_templates: dict[int, _Template] = {}
"""That of this process, by its id: one that was forked needs another."""


def allow() -> None:
    """Have :func:`popen` fork from now on. gevent must have patched this process."""
    global _allowed
    _allowed = True


def popen(command: list[str], **options: Any) -> subprocess.Popen[Any]:
    """``subprocess.Popen`` of ``[python, ("-P",) "-m", module, *arguments]``, which may fork."""
    environment = options.get("env") or dict(os.environ)
    at = command.index("-m")
    forks = (
        _allowed
        and command[0] == sys.executable
        and command[1:at] in ([], ["-P"])
        and command[at + 1] in MODULES
        and _fixed(environment) == _fixed(dict(os.environ))
        and _paths(environment) <= _paths(dict(os.environ))
    )
    return _Forked(command, **options) if forks else subprocess.Popen(command, **options)


def _fixed(environment: dict[str, str]) -> set[str]:
    entries = {f"{name}={value}" for name, value in environment.items()}
    return {entry for entry in entries if not entry.startswith(_FREE)}


def _paths(environment: dict[str, str]) -> set[Path]:
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    return {Path(path).resolve() for path in paths}


class _Forked(subprocess.Popen[Any]):
    """``_execute_child`` is what gevent's Popen calls to have a process."""

    def _execute_child(self, *given: Any) -> None:
        own: Any = self
        *_, close = _without_gevent()
        command, cwd, environment = given[0], given[5], given[6]
        reads, writes, errors = given[11], given[14], given[16]
        streams = [n if end == -1 else end for n, end in enumerate((reads, writes, errors))]
        at = command.index("-m")
        request = {
            "module": command[at + 1],
            "arguments": command[at + 2 :],
            "safe": "-P" in command[:at],
            "cwd": str(cwd or Path.cwd()),
            "environment": dict(os.environ if environment is None else environment),
        }
        own._loop.install_sigchld()
        own.pid = fork_and_watch(
            own._on_child,
            own._loop,
            True,
            lambda: _template().fork(request, streams),
        )
        for end, other in ((reads, given[12]), (writes, given[13]), (errors, given[15])):
            if other != -1:  # of a pipe
                close(end)
        if (devnull := getattr(own, "_devnull", None)) is not None:
            close(devnull)
        own._closed_child_pipe_fds = True


def _template() -> _Template:
    if os.getpid() not in _templates:
        _templates.clear()
        _templates[os.getpid()] = _Template()
    return _templates[os.getpid()]


class _Template:
    def __init__(self) -> None:
        ours, theirs = _socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = _blocking(ours.detach())
        self._pid = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        atexit.register(self.stop)

    def fork(self, request: dict[str, Any], streams: list[int]) -> int:
        """The process id of a child of this process."""
        _adopt(True)
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], streams)
            return int(self._socket.recv(100))
        finally:
            _adopt(False)

    def stop(self) -> None:
        """At this process's end."""
        self._socket.close()
        if os.getpid() == self._pid:
            self._process.wait(10)


def _adopt(wanted: bool) -> None:
    """Whether what the template leaves behind becomes our child."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _blocking(descriptor: int) -> socket.socket:
    """A socket as it is without gevent: all greenlets wait for what takes some milliseconds."""
    made: socket.socket = monkey.get_original("socket", "socket")(fileno=descriptor)
    return made


def _without_gevent() -> list[Any]:
    """``os.fork``, ``os.waitpid`` and ``os.close``: gevent's close only when its hub runs."""
    return [monkey.get_original("os", name) for name in ("fork", "waitpid", "close")]


# -- in the template


def _serve(asked: socket.socket) -> dict[str, Any] | None:
    """Returns in each process that is forked with what it is to run; None at the end."""
    fork, waitpid, close = _without_gevent()
    while True:
        content, streams, *_ = socket.recv_fds(asked, _MOST_BYTES, 3)
        if not content:
            return None
        told, tells = os.pipe()
        middle = fork()
        if middle == 0:
            if (pid := fork()) != 0:
                os.write(tells, str(pid).encode())
                os._exit(0)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            for descriptor in (*streams, told, tells, asked.detach()):
                close(descriptor)
            request: dict[str, Any] = json.loads(content)
            return request
        for descriptor in (*streams, tells):
            close(descriptor)
        waitpid(middle, 0)  # from now on the other one is the caller's child
        asked.send(os.read(told, 100))
        close(told)


def _run(request: dict[str, Any], rest: list[str]) -> None:
    gevent.reinit()  # what was imported made a hub: its epoll would be that of all
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*([] if request["safe"] else [request["cwd"]]), *paths, *rest]
    sys.argv[1:] = request["arguments"]
    random.seed()
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


def _prepare() -> list[str]:
    """Import all, and forget what is ours; returns where others' modules are."""
    from greencrawl.schema.greenlets import patch_all

    patch_all()
    import greencrawl.broker.__main__
    import greencrawl.cli.__main__
    import greencrawl.cli.reach  # noqa: F401

    sys.excepthook = sys.__excepthook__  # each sets its own, as it does with Ctrl-C
    for name in [name for name in sys.modules if name.partition(".")[0] == "greencrawl"]:
        del sys.modules[name]
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return [path for path in sys.path[1:] if path not in paths]  # the first is the folder


def main() -> None:
    rest = _prepare()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C comes to the whole group
    if (request := _serve(_blocking(int(sys.argv[1])))) is not None:
        _run(request, rest)


if __name__ == "__main__":
    main()
