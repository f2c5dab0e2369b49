"""The heap of a worker process."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from worker import heap

CAN_TELL = hasattr(ctypes.CDLL(None), "mallinfo2")
ASIS = {key: value for key, value in os.environ.items() if key != "GLIBC_TUNABLES"}
SETTLED = heap.settled(ASIS)


def said(program: str, environment: dict[str, str]) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    return done.stdout.strip()


def test_what_the_user_has_set_counts() -> None:
    assert heap.settled({"A": "b", "GLIBC_TUNABLES": "glibc.malloc.mxfast=64"}) == {
        "A": "b",
        "GLIBC_TUNABLES": SETTLED["GLIBC_TUNABLES"] + ":glibc.malloc.mxfast=64",
    }
    if CAN_TELL:
        mine = heap.settled(ASIS | {"GLIBC_TUNABLES": "glibc.malloc.mxfast=128"})
        assert int(said(FREED, mine)) > 100_000


FREED = """
import ctypes

class Info(ctypes.Structure):  # struct mallinfo2
    _fields_ = [
        (name, ctypes.c_size_t) for name in "arena ord sm h hd usm fsm uord ford keep".split()
    ]

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
libc.mallinfo2.restype = Info
pieces = [libc.malloc(48) for _ in range(10_000)]
for piece in pieces:
    libc.free(piece)
print(libc.mallinfo2().fsm)  # bytes in fast bins
"""


@pytest.mark.skipif(not CAN_TELL, reason="the C library does not say what is in its bins")
def test_small_pieces_that_are_freed_are_merged_at_once() -> None:
    assert int(said(FREED, ASIS)) > 100_000
    assert int(said(FREED, SETTLED)) < 10_000


HELD = """
import ctypes

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
pieces = [libc.malloc(120) for _ in range(900)]
for piece in pieces:
    libc.free(piece)
again = [libc.malloc(120) for _ in range(900)]
print(pieces[0] in again[-100:])  # as from one stack that holds them all
"""


@pytest.mark.skipif(not CAN_TELL, reason="not glibc")
def test_the_pieces_of_a_tree_stay_at_hand() -> None:
    assert said(HELD, SETTLED) == "True"
    assert said(HELD, ASIS) == "False"


THREADS = """
import ctypes, threading
from pathlib import Path

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
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
    assert said(THREADS, ASIS) == "False"
    assert said(THREADS, SETTLED) == "True"


BURST = """
import ctypes, gevent
from pathlib import Path
from worker import heap

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
gevent.spawn(heap.keep_small, gevent.sleep)
gevent.sleep(1)
print(kept, resident() - before)
"""


@pytest.mark.skipif(not CAN_TELL, reason="not glibc")
def test_what_a_burst_took_is_given_back() -> None:
    kept, left = map(int, said(BURST, SETTLED).split())
    assert kept > 30_000_000
    assert left < 5_000_000
