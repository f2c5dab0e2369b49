"""Child processes that do not outlive their parent, and how they ended.

All our processes that start others do it here, and keep the process by its ``Popen``. Each of them
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
_LIBC = ctypes.CDLL(None)  # before any fork


def spawn(
    command: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    output: IO[bytes] | None = None,
    keep: Sequence[int] = (),
    orphaned: signal.Signals = signal.SIGKILL,
) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own: a terminal's Ctrl-C does not reach it.

    No signal is blocked in it, its input is empty, and it inherits only the descriptors in
    ``keep``. ``environ`` is its environment, ``output`` what it writes to; None: ours. When the
    thread that called this dies, the kernel sends it the signal ``orphaned`` (only Linux does).
    Raises OSError.
    """
    return subprocess.Popen(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=keep,
        start_new_session=True,
        # Between fork and exec: it takes no lock that another thread may hold.
        preexec_fn=partial(_begin, os.getpid(), orphaned),
    )


def _begin(parent: int, orphaned: signal.Signals) -> None:
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, orphaned, 0, 0, 0)
        if os.getppid() != parent:  # it died before the kernel was told
            os._exit(1)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


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
