"""Remembers what a replay has put into a node already, in bounded memory.

Most links of the log lead to URLs that other pages link to as well. Redis would answer each of them
"known"; asking costs twenty times as much as looking here.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from greencrawl.schema.net.urls import CANONICALISER, fingerprint
from greencrawl.schema.records import Admission

MOST_BYTES = 256 * 1024 * 1024
"""A process uses at most this many bytes: nodes that are refilled at the same time share them."""
LEAST_SLOTS = 1 << 12
SLOTS_A_PAGE = 16
"""Slots for each page: for the URLs that it is the first to link to, and some room.

Two URLs in one slot displace each other.
"""

_SLOT_BYTES = 8
_SPREAD = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio; odd, so that no two crawls share their numbers."""
_ALL_BITS = (1 << 64) - 1


class SentFilter:
    """A set of pairs (crawl, URL) that forgets but never errs: a pair may be in one slot only, and
    a slot keeps the last pair put there.

    A slot holds all 64 bits of a fingerprint under the frontier's secret, mixed with the crawl. So
    a value that is found was put there (apart from 64-bit collisions, as in the seen-set). A value
    that is not found may have been there.
    """

    def __init__(
        self, secret: int, pages: int, most_bytes: int = MOST_BYTES, *, version: int = CANONICALISER
    ) -> None:
        """Make an empty set; ``pages`` is about how many the replay log has: a small log takes
        little memory.

        ``version`` is the version of the frontier's rules for URLs; ``secret`` is the secret of the
        frontier.
        """
        wanted = min(pages * SLOTS_A_PAGE, most_bytes // _SLOT_BYTES)
        slots = max(1 << max(wanted, 1).bit_length() - 1, LEAST_SLOTS)
        self._secret = secret
        self._version = version
        self._mask = slots - 1
        self._slots = array("Q", [0]) * slots
        self._slots[0] = 1  # a 0 belongs into this slot and is not there yet; a 1 does not

    @property
    def bytes(self) -> int:
        """Return the bytes that it takes."""
        return len(self._slots) * _SLOT_BYTES

    def unknown(self, crawl: int, links: Iterable[Admission]) -> list[tuple[int, Admission]]:
        """Return (fingerprint, link) of those not found; they are known from now on."""
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
        """Note that the node has these URLs of the crawl."""
        salt = crawl * _SPREAD & _ALL_BITS
        for url in urls:
            key = fingerprint(url, self._secret, self._version) & _ALL_BITS ^ salt
            self._slots[key & self._mask] = key
