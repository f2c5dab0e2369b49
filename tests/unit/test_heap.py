"""The heap of a worker process."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

CAN_TELL = hasattr(ctypes.CDLL(None), "mallinfo2")

FREED = """
import ctypes, sys
from worker import heap

class Info(ctypes.Structure):  # struct mallinfo2
    _fields_ = [
        (name, ctypes.c_size_t) for name in "arena ord sm h hd usm fsm uord ford keep".split()
    ]

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
libc.mallinfo2.restype = Info
if len(sys.argv) > 1:
    assert heap.settle()
pieces = [libc.malloc(48) for _ in range(10_000)]
for piece in pieces:
    libc.free(piece)
print(libc.mallinfo2().fsm)  # bytes in fast bins
"""


@pytest.mark.skipif(not CAN_TELL, reason="the C library does not say what is in its bins")
def test_small_pieces_that_are_freed_are_merged_at_once() -> None:
    def kept_apart(*arguments: str) -> int:
        command = [sys.executable, "-c", FREED, *arguments]
        return int(subprocess.run(command, capture_output=True, check=True).stdout)

    assert kept_apart() > 100_000
    assert kept_apart("settled") < 10_000
