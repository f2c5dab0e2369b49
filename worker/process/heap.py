"""How a worker process uses the C library's heap."""

from __future__ import annotations

import ctypes

import gevent

TRIM_SECONDS = 5.0

_M_MXFAST, _M_ARENA_MAX = 1, -8  # <malloc.h>


def settle() -> bool:
    """Let freed memory be merged at once with its neighbours, for the life of this process.

    A tree of libxml2 is thousands of small pieces that are allocated and freed together. glibc
    keeps such pieces apart ("fast bins") and merges them whenever something larger is freed,
    several times a page. Parsing a page of documentation took 260 µs with fast bins, and takes 165
    µs without them.

    Also let the store's threads share the heap of the greenlets. A heap of their own would keep 10
    MB of free memory. Sharing costs little: threads wait for the interpreter, and so hardly ever
    for the heap's lock. Call it before there are threads. False if the C library has no such
    settings.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_M_MXFAST, 0)) and bool(mallopt(_M_ARENA_MAX, 1))


def keep_small() -> None:
    """Give back free memory every few seconds; a greenlet runs this.

    glibc gives back only the upper end of the heap, so after a burst – a thousand pages at once –
    its size stays. This takes about a millisecond, some 5 if much is given back and allocated
    again.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return
    while True:
        gevent.sleep(TRIM_SECONDS)
        trim(0)
