"""How a worker process uses the C library's heap."""

from __future__ import annotations

import ctypes

_M_MXFAST = 1  # <malloc.h>


def settle() -> bool:
    """Have freed memory merged at once with its neighbours, for the life of this process.

    A tree of libxml2 is thousands of small pieces that come and go together. glibc keeps such
    pieces apart ("fast bins") and sweeps them up whenever something larger is freed, which is
    several times a page: parsing documentation took 260 µs that way and takes 165 without. False
    where the C library has no such setting.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_M_MXFAST, 0))
