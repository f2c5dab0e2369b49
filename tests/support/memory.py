"""Folders in memory for tests that do not test a disk: there no fsync waits."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHARED = Path("/dev/shm")
SPARE_BYTES = 2**30
"""A server takes a fifth of it; containers often have less, and then the disk is used."""


@contextmanager
def memory_folder(spare_bytes: int = SPARE_BYTES) -> Iterator[Path]:
    """Yield a folder that is deleted at the end.

    It is on the disk unless memory has this much room.
    """
    roomy = SHARED.is_dir() and shutil.disk_usage(SHARED).free >= spare_bytes
    with tempfile.TemporaryDirectory(prefix="test-", dir=SHARED if roomy else None) as folder:
        yield Path(folder)
