"""Remembers what a replay has put into a node already, within a bounded memory.

Most links of a log lead to URLs that other pages link to as well. Redis would answer each of them
"known"; asking costs twenty times what it takes to look here.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from greencrawl.schema.net.urls import CANONICALISER, fingerprint
from greencrawl.schema.records import Admission

MOST_BYTES = 256 * 1024 * 1024
"""Of a process: nodes that may be refilled at the same time share it."""
LEAST_SLOTS = 1 << 12
SLOTS_A_PAGE = 16
"""URLs that a page leads to first, and room: two of them in one slot displace each other."""

_SLOT_BYTES = 8
_SPREAD = 0x9E3779B97F4A7C15
"""Odd, so that no two crawls share their numbers; 2^64 divided by the golden ratio."""
_ALL_BITS = (1 << 64) - 1


class SentFilter:
    """A set of (crawl, URL) that forgets but never errs: each has one slot, which keeps the last.

    A slot holds all 64 bits of a fingerprint under the frontier's secret, mixed with the crawl, so
    what is found was put there ("exact" as the seen-set is, up to 64-bit collisions). A value that
    is not found may have been there.
    """

    def __init__(
        self, secret: int, pages: int, most_bytes: int = MOST_BYTES, *, version: int = CANONICALISER
    ) -> None:
        """``pages`` are those of the replay log that is read: a small one takes little memory.

        ``version`` is that of the frontier's rules for URLs, as its secret is the frontier's.
        """
        wanted = min(pages * SLOTS_A_PAGE, most_bytes // _SLOT_BYTES)
        slots = max(1 << max(wanted, 1).bit_length() - 1, LEAST_SLOTS)
        self._secret = secret
        self._version = version
        self._mask = slots - 1
        self._slots = array("Q", [0]) * slots
        self._slots[0] = 1  # 0 belongs into this slot, and is not there yet; 1 does not

    @property
    def bytes(self) -> int:
        """What it takes."""
        return len(self._slots) * _SLOT_BYTES

    def unknown(self, crawl: int, links: Iterable[Admission]) -> list[tuple[int, Admission]]:
        """(fingerprint, link) of those not found; they are known from now on."""
        number_of, secret, version = fingerprint, self._secret, self._version
        slots, mask = self._slots, self._mask
        salt = crawl * _SPREAD & _ALL_BITS
        found = []
        for link in links:
            number = number_of(link.url, secret, version)
            key = number & _ALL_BITS ^ salt
            slot = key & mask
            if slots[slot] != key:
                slots[slot] = key
                found.append((number, link))
        return found

    def note(self, crawl: int, urls: Iterable[str]) -> None:
        """The node has these."""
        salt = crawl * _SPREAD & _ALL_BITS
        for url in urls:
            key = fingerprint(url, self._secret, self._version) & _ALL_BITS ^ salt
            self._slots[key & self._mask] = key
