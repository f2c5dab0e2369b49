"""The resources of its machine that this process has used so far."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.records import Facts

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = resource.getpagesize()
_BEGAN_MS = epoch_ms()


def rss_bytes() -> int:
    """Return the bytes of RAM that this process takes; the peak if the kernel reports only that."""
    with suppress(OSError, ValueError, IndexError):
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def disk_used(folders: Iterable[Path]) -> float:
    """Return the used share, 0 to 1, of the fullest disk that holds one of these folders."""
    shares = [0.0]
    for folder in folders:
        with suppress(OSError):
            disk = shutil.disk_usage(folder)
            shares.append(disk.used / max(1, disk.used + disk.free))
    return min(1.0, max(shares))


def facts(folders: Iterable[Path] = ()) -> Facts:
    """Return the facts that every process reports; ``folders`` are the folders that it writes
    to."""
    return Facts(
        pid=os.getpid(),
        machine=socket.gethostname()[:255],
        began_ms=_BEGAN_MS,
        cpu_seconds=round(time.process_time(), 3),
        rss_bytes=rss_bytes(),
        disk_used=round(disk_used(folders), 4),
    )
