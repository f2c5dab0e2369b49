"""Synthetic URLs of ``bench.frontier.speed``: a function of a number, with a mean length of 80."""

from __future__ import annotations

import random

_TEXT = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789-", k=4096))


def url_of(n: int, hosts: int, run: int) -> str:
    """Return the ``n``-th URL: 60 to 100 characters long, 80 on average.

    Every ``run`` consecutive URLs are of one host; the next are of another, until each of the
    ``hosts`` had its URLs. Each host has a registrable domain of its own.
    """
    start = f"https://www.site-{n // run % hosts:07d}.com/section/{n % 97:02d}/{n:08d}-"
    length = 60 + n * 7919 % 41
    at = n * 31 % 4000
    return start + _TEXT[at : at + length - len(start) - 5] + ".html"
