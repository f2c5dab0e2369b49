"""Named points at which a test makes a process die, as a power cut would: no clean-up runs.

Without ``GREENCRAWL_FAULT`` a point costs one comparison.
"""

from __future__ import annotations

import os
import signal

_armed = ""
_left = 0


def arm(spec: str) -> None:
    """Arm ``POINT`` or ``POINT:N``: the Nth pass of that point kills the process. "" disarms."""
    global _armed, _left
    _armed, _, count = spec.partition(":")
    _left = int(count or 1)


def point(name: str) -> None:
    """Die here by SIGKILL if this point is armed and its count is up."""
    global _left
    if name != _armed:
        return
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
