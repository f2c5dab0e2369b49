"""Child processes that do not outlive their parent, and how they ended.

All our processes start their children here, and keep the ``Popen`` of each child. Each process
decides when to start a dead child again.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import IO

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
if sys.platform == "linux":  # found now: a forked child must not look a symbol up
    _PRCTL = ctypes.CDLL(None).prctl
    _PRCTL.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)


def spawn(
    command: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    output: IO[bytes] | None = None,
    keep: Sequence[int] = (),
    orphaned: signal.Signals = signal.SIGKILL,
    ignored: Sequence[signal.Signals] = (),
) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own: a terminal's Ctrl-C does not reach it.

    No signal is blocked in it, its input is empty, and it inherits only the descriptors in
    ``keep``. ``environ`` is its environment, ``output`` is where it writes; None means ours. When
    the thread that called this dies, the kernel sends the child the signal ``orphaned`` (only Linux
    does). From its start on the child ignores the signals ``ignored``. Raises OSError.
    """
    return subprocess.Popen(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=keep,
        start_new_session=True,
        # This runs between fork and exec: it takes no lock that another thread may hold.
        preexec_fn=partial(_begin, os.getpid(), orphaned, ignored),
    )


def _begin(parent: int, orphaned: signal.Signals, ignored: Sequence[signal.Signals]) -> None:
    if sys.platform == "linux":
        _PRCTL(_PR_SET_PDEATHSIG, orphaned, 0, 0, 0)
        if os.getppid() != parent:  # it died before the kernel was told
            os._exit(1)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def stop(process: subprocess.Popen[bytes] | None) -> None:
    """Ask a child, if there is one, to end in order, even if SIGSTOP has stopped it."""
    if process is not None:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)


def end(process: subprocess.Popen[bytes] | None) -> None:
    """Kill a child, if there is one, and wait until it is gone."""
    if process is not None:
        process.kill()
        process.wait()


def end_of(status: int) -> str:
    """Return the name of the signal that ended a process, or ``status N``."""
    if status >= 0:
        return f"status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
