"""Places in hash tables of the C part: the author of a page cannot predict them."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from greencrawl.worker.extract.text import compiled

SIZE = 4096
_chance = random.Random(1)
KEYS = [_chance.getrandbits(64) for _ in range(1024)]
_READ = """
import ctypes
from greencrawl.worker.extract.text import compiled
place = ctypes.CDLL(compiled.__file__).slot_for
place.restype, place.argtypes = ctypes.c_size_t, (ctypes.c_uint64, ctypes.c_size_t)
print(*(place(key, {size}) for key in {keys}))
"""

pytestmark = pytest.mark.skipif(compiled is None, reason="nothing was compiled")


def places(seed: str | None) -> list[int]:
    """Return the places of some keys in a new process."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    done = subprocess.run(
        [sys.executable, "-c", _READ.format(size=SIZE, keys=KEYS)],
        env=environ | ({} if seed is None else {"PYTHONHASHSEED": seed}),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [int(place) for place in done.stdout.split()]


def test_places_in_hash_tables_differ_between_processes() -> None:
    one, other = places(None), places(None)
    assert max(one + other) < SIZE
    alike = sum(a == b for a, b in zip(one, other, strict=True))
    assert alike < len(KEYS) // 8, "keys that are at one place in one process are so in another"


def test_keys_that_collide_in_one_process_rarely_collide_in_another() -> None:
    one, other = places("1"), places("2")
    assert one == places("1"), "the secret is Python's own"
    shared = [(i, j) for i in range(len(KEYS)) for j in range(i) if one[i] == one[j]]
    still = [(i, j) for i, j in shared if other[i] == other[j]]
    assert len(shared) > 50
    assert len(still) <= len(shared) // 8
