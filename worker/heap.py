"""How a worker process uses the C library's heap."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

TRIM_SECONDS = 5.0

_SETTINGS = {
    "mxfast": 0,
    "tcache_count": 1000,
    "tcache_max": 256,
    "arena_max": 1,
}


def settled(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` for a process that reads pages; other C libraries than glibc ignore it.

    A tree of libxml2 is thousands of small pieces that come and go together. By itself glibc keeps
    seven of a size at hand ("tcache") and the rest in "fast bins", which it sweeps up whenever
    something larger is freed, several times a page: parsing documentation took 260 µs that way.
    Without fast bins it takes 160, and where a whole tree is kept at hand, 130.

    And the store's threads share the heap of the greenlets: one of their own keeps 10 MB that are
    free, and threads that wait for the interpreter hardly ever meet at a lock of the heap.

    What the user has set himself counts. See "Memory Allocation Tunables" in glibc's manual.
    """
    ours = [f"glibc.malloc.{name}={value}" for name, value in _SETTINGS.items()]
    given = environment.get("GLIBC_TUNABLES")
    return {**environment, "GLIBC_TUNABLES": ":".join([*ours, given] if given else ours)}


def keep_small(sleep: Callable[[float], object]) -> None:
    """Give back every few seconds what is free; the body of what calls ``sleep`` in between.

    glibc gives back only the upper end of the heap, so after a burst – a thousand pages at once –
    its size stays. Takes about a millisecond, some 5 where much is given back and taken anew.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return
    while True:
        sleep(TRIM_SECONDS)
        trim(0)
