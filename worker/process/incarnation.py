"""Incarnations: numbers that tell the lives of a worker's process apart.

A file keeps the latest incarnations. Each process holds the lock next to this file as long as the
process lives. So a process that gets the lock knows that all noted incarnations are over. A copy of
the folder holds the same numbers, but their processes may be at work where it was copied from. So
the file also says in which folder and in which boot of the machine it was written; elsewhere its
numbers say nothing about deaths.
"""

from __future__ import annotations

import json
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

from greencrawl.schema import file_lock

_SINCE_SECONDS = 1_577_836_800
"""2020: so until 2051 an incarnation has no more than fourteen digits."""
_CHANCES = 100_000
_KEPT = 16
"""This many are remembered: some may have died before they reached a broker."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Incarnation:
    """The ``number`` of this life, and the numbers of earlier lives that are known to be over
    (``dead``)."""

    number: int
    dead: tuple[int, ...] = ()


def boot_id() -> str:
    """Return the name of this boot of the machine; "" if the kernel does not say."""
    return _BOOT.read_text().strip() if _BOOT.exists() else ""


def begin(path: Path) -> Incarnation:
    """Return :func:`next_incarnation` of this process, which holds the lock until it ends.

    If another process has the lock, no earlier life is known to be over. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        file_lock.take(path.with_suffix(".life"), b"%d" % os.getpid())
    except BlockingIOError:
        return next_incarnation(path, holds_lock=False)
    return next_incarnation(path)


def next_incarnation(
    path: Path, *, boot: str | None = None, holds_lock: bool = True
) -> Incarnation:
    """Note a start in the file at ``path``, durably; its number is above all earlier numbers.

    The number is made of the clock's seconds and five random digits. Because of the seconds, a
    worker that lost its folder does not look like an older incarnation of itself. The digits tell
    two machines apart that use one name and started in the same second or from copies of one
    folder. Lua can write fourteen digits.

    ``boot`` names the boot of the machine; by default the kernel is asked. ``holds_lock``: all
    incarnations that began in this folder before are over. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    boot = boot_id() if boot is None else boot
    place = path.parent.stat()
    here = [boot, place.st_dev, place.st_ino] if boot and holds_lock else None
    earlier, written_at = _read(path)
    second = max([int(time.time()) - _SINCE_SECONDS, *(n // _CHANCES + 1 for n in earlier)])
    number = second * _CHANCES + random.randrange(_CHANCES)
    dead = earlier if here and written_at == here else ()
    fresh = path.with_suffix(".new")
    with fresh.open("w") as file:
        json.dump({"incarnations": [number, *dead][:_KEPT], "at": here}, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    return Incarnation(number, dead)


def _read(path: Path) -> tuple[tuple[int, ...], object]:
    """Return the noted incarnations, the latest first, and where they were noted.

    An earlier version wrote one number.
    """
    try:
        found = json.loads(path.read_text())
        if isinstance(found, int):
            return (found,), None
        return tuple(int(number) for number in found["incarnations"]), found["at"]
    except (FileNotFoundError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return (), None
