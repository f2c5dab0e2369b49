"""The errors of a node, as its callers tell them apart."""

from __future__ import annotations

from redis.exceptions import BusyLoadingError, OutOfMemoryError, ReadOnlyError

from greencrawl.schema.errors import Unavailable

AWAY = ("LOADING", "BUSY", "READONLY", "MISCONF", "NOREPLICAS", "TRYAGAIN", "CLUSTERDOWN")
AWAY_TYPES = (BusyLoadingError, ReadOnlyError)
"""Errors with a class of their own: the driver cuts the code off their text."""


class Restarted(Unavailable):
    """Raised when the server's run_id is not the owner's: the node must be reopened."""


class Fenced(Unavailable):
    """Raised when the store knows a higher epoch of the node than its owner record: the node is
    outdated."""


class Full(Unavailable):
    """Raised when the server is at its memory limit: it takes nothing more, but can still
    delete."""


class Moved(Unavailable):
    """Raised when a partition's epoch is not the caller's: read the placement again."""


FULL_DISK = "MISCONF"
"""Redis refuses writes that it cannot put on disk."""


def full_disk_text(shown: str) -> str:
    """Return what a person needs to know of a full disk, in place of Redis' own words on
    scripts."""
    return (
        f"Redis at {shown} cannot write to its disk: is it full? Nothing is lost; make room, and "
        "it goes on by itself"
    )


def translated(error: Exception, script: str, shown: str) -> Exception:
    """Return what a script's error means: the server is away, or the script is wrong."""
    text = str(error)
    if FULL_DISK in text:
        return Unavailable(full_disk_text(shown))
    if isinstance(error, OutOfMemoryError) or "OOM" in text:
        return Full(f"Redis at {shown} is at its memory limit (maxmemory): nothing more is queued")
    if isinstance(error, AWAY_TYPES) or any(word in text for word in AWAY):
        return Unavailable(f"Redis at {shown} is away: {text}")
    return RuntimeError(f"script {script} failed: {text}")
