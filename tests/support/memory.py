"""Folders in memory for tests in which no disk is tried: no fsync is waited for there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHARED = Path("/dev/shm")
SPARE_BYTES = 2**30
"""A server takes a fifth of it; containers often have less, and then the disk must do."""


@contextmanager
def memory_folder(spare_bytes: int = SPARE_BYTES) -> Iterator[Path]:
    """Gone at the end. On the disk where there is no such room in memory."""
    roomy = SHARED.is_dir() and shutil.disk_usage(SHARED).free >= spare_bytes
    with tempfile.TemporaryDirectory(prefix="test-", dir=SHARED if roomy else None) as folder:
        yield Path(folder)
