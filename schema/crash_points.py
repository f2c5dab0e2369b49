"""Named points at which a test makes a process die as in a power cut: no clean-up runs.

A point can also write down what passed it, so that a test knows what a process took for done.

Without ``GREENCRAWL_FAULT`` a point costs one comparison.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

_armed = ""
_left = 0
_while = ""
_noted = -1


def arm(spec: str) -> None:
    """Arm ``POINT[:N][@FILE]``: the Nth pass of that point kills the process. "" disarms.

    Passes count only while FILE exists: whoever creates it chooses the moment. ``POINT>FILE`` kills
    nothing: it appends to FILE the texts that :func:`note` gets at that point.
    """
    global _armed, _left, _while, _noted
    if _noted >= 0:
        os.close(_noted)
        _noted = -1
    spec, noting, path = spec.partition(">")
    if noting:
        _noted = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    place, _, _while = spec.partition("@")
    _armed, _, count = place.partition(":")
    _left = int(count or 1)


def point(name: str) -> None:
    """Kill this process by SIGKILL if this point is armed and this is the Nth pass."""
    global _left
    if name != _armed or _noted >= 0 or (_while and not Path(_while).exists()):
        return
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)


def note(name: str, texts: Iterable[str]) -> None:
    """If this point is armed with ``>FILE``, append a line ``monotonic seconds, tab, text`` for
    each text."""
    if _noted >= 0 and name == _armed:
        now = time.monotonic()
        os.write(_noted, "".join(f"{now:.3f}\t{text}\n" for text in texts).encode())
