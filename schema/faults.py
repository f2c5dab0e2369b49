"""Named points at which a test makes a process die, as a power cut would: no clean-up runs.

Without ``GREENCRAWL_FAULT`` a point costs one comparison.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

_armed = ""
_left = 0
_while = ""


def arm(spec: str) -> None:
    """Arm ``POINT[:N][@FILE]``: the Nth pass of that point kills the process. "" disarms.

    Passes count only while FILE exists: whoever creates it chooses the moment.
    """
    global _armed, _left, _while
    place, _, _while = spec.partition("@")
    _armed, _, count = place.partition(":")
    _left = int(count or 1)


def point(name: str) -> None:
    """Die here by SIGKILL if this point is armed and its count is up."""
    global _left
    if name != _armed or (_while and not Path(_while).exists()):
        return
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
