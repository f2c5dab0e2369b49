"""The heap of a worker process."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

CAN_TELL = hasattr(ctypes.CDLL(None), "mallinfo2")

FREED = """
import ctypes, sys
from greencrawl.worker.process import heap

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
def test_small_pieces_of_freed_memory_are_merged_at_once() -> None:
    def kept_apart(*arguments: str) -> int:
        command = [sys.executable, "-c", FREED, *arguments]
        return int(subprocess.run(command, capture_output=True, check=True).stdout)

    assert kept_apart() > 100_000
    assert kept_apart("settled") < 10_000


THREADS = """
import ctypes, sys, threading
from pathlib import Path
from greencrawl.worker.process import heap

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
if len(sys.argv) > 1:
    assert heap.settle()
places = []
thread = threading.Thread(target=lambda: places.append(libc.malloc(3000)))
thread.start()
thread.join()
maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
heaps = [line[0].split("-") for line in maps if line[-1] == "[heap]"]
print(any(int(start, 16) <= places[0] < int(end, 16) for start, end in heaps))
"""


@pytest.mark.skipif(not CAN_TELL, reason="not glibc")
def test_threads_share_the_heap_of_the_greenlets() -> None:
    def shared(*arguments: str) -> str:
        command = [sys.executable, "-c", THREADS, *arguments]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()

    assert shared() == "False"
    assert shared("settled") == "True"


BURST = """
import ctypes, gevent
from pathlib import Path
from greencrawl.worker.process import heap

heap.settle()
heap.TRIM_SECONDS = 0.2
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

before = resident()
pieces = [libc.malloc(20_000) for _ in range(2000)]
for piece in pieces:
    ctypes.memset(piece, 1, 20_000)
for piece in pieces[:-1]:  # the last one keeps the upper end of the heap
    libc.free(piece)
kept = resident() - before
gevent.spawn(heap.keep_small)
gevent.sleep(1)
print(kept, resident() - before)
"""


@pytest.mark.skipif(not CAN_TELL, reason="not glibc")
def test_memory_that_a_burst_took_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", BURST], capture_output=True, check=True)
    kept, left = map(int, done.stdout.split())
    assert kept > 30_000_000
    assert left < 5_000_000
