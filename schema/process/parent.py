"""Children that do not outlive their parent, and how they ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_LIBC = ctypes.CDLL(None)  # before any fork


def die_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Let the kernel send this child a signal when its parent, of that id, dies.

    The child ends here if that has happened already. Only Linux can do that.
    """
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it died before the kernel was told
            os._exit(1)


def end_of(status: int) -> str:
    """Return what an exit status says: the name of a signal, or ``status N``."""
    if status >= 0:
        return f"status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
