"""New content: pieces of pages that a host has not shown yet, and URLs that were not met yet.

A page is known by samples of its text and by its images. These are hashes of 32 bits that
extraction takes on its way (``worker/extract/samples.c``), with the figures of its blocks. Both
memories are tables of hashes of fixed size: the oldest entries make room, and are then new again.
The processes of one data folder share them, as a file that each of them maps; without a file, each
has its own.
"""

from __future__ import annotations

import mmap
import os
import re
from array import array
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from greencrawl.schema.log import logger
from greencrawl.schema.records import Admission
from greencrawl.worker.extract.text import compiled

log = logger("worker")

PIECES = 2_097_152
"""Pieces of text that are remembered for all hosts: some 30,000 pages. 8 MB."""
URLS = 1_048_576
"""URLs that are remembered. 4 MB."""
FILE = "shown-5"
"""Name of the file; the name changes when samples are taken in another way."""

MOST_SHIFT = 7
"""The largest shift.

One sample is taken for about 2^shift bytes. Pages beyond 8 KB have a larger shift, and so fewer
samples for their length.
"""
_HEAD = 3
"""Bytes of samples before the tags: their shift, how many are of images, how many blocks have
figures."""
_BESIDE = 7
"""The last three bits of a tag are its level; this one marks the tag of a short block."""
_MOST_FIGURES = 16
_MOST = 64
_UNITS = re.compile(r"[^\s。，、！？；：]+")
_LONG = 12
_NUMBER = re.compile(r"\d{1,18}")


class Found(NamedTuple):
    """How much of a page is new.

    The fields are: bytes of new text, bytes of all text, new images, and new short blocks, such as
    a name or a cell. Short blocks are counted if a page has little text.
    """

    fresh: int
    text: int
    images: int
    blocks: int = 0

    @property
    def share(self) -> float:
        """Return the share of its text that is new; 1 if only an image is, 0 if there is
        nothing."""
        if not self.text:
            return 1.0 if self.images else 0.0
        return self.fresh / self.text

    @property
    def is_much(self) -> bool:
        """Return whether so much is new that this alone decides; the same as in ``speedups.c``."""
        # A sample of a long page stands for many bytes: one alone may be new by chance.
        step = max(self.text >> 6, 8)
        return (
            self.images > 0
            or (self.fresh >= 32 and 4 * self.fresh >= self.text)
            or (self.fresh >= 120 and self.fresh >= 2 * step)
        )


class Novelty:
    """The two memories.

    ``path`` is the file to share. Without it, or without the compiled part, the process has
    memories of its own.
    """

    def __init__(self, path: Path | None = None, pieces: int = PIECES, urls: int = URLS) -> None:
        shared = None
        if path is not None and compiled is not None:
            shared = _mapped(path, 4 * (pieces + urls))
        self._pieces = _Table(pieces, shared and shared[: 4 * pieces])
        self._urls = _Table(urls, shared and shared[4 * pieces :])

    def glance(
        self,
        url: str,
        samples: bytes,
        links: list[Admission],
        salts: tuple[int, int, int],
        shift: int,
    ) -> tuple[Found, list[int]] | bool | None:
        """Check a page at once: :meth:`fresh` for its URL, :meth:`look`, :meth:`fresh_links`.

        Each of the three checks uses one of the ``salts``, by which crawls and hosts are kept
        apart. Return None, without a further check, if the URL was met; return True if much of its
        text is new, and no new link has a query.
        """
        if compiled is None:
            if not self.fresh([url], salts[0]):
                return None
            found, places = self.look(samples, salts[1]), self.fresh_links(links, salts[2])
            plain = found.is_much and not any("?" in links[place].url for place in places)
            return plain or (found, places)
        seen: tuple[int, int, int, int, list[int]] | bool | None = compiled.glance(
            url, samples, links, salts, self._pieces.data, self._urls.data, shift
        )
        if seen is None or seen is True or seen is False:
            return seen
        return Found(*seen[:4]), seen[4]

    def passed(self, url: str, links: list[Admission], salt: int) -> bool | None:
        """Return, for a page that is not judged, None if its URL was met under ``salt``, else
        whether none of its ``links`` has a query. From now on the URL counts as met."""
        if compiled is None:
            new = self.fresh([url], salt)
            return not any("?" in link.url for link in links) if new else None
        plain: bool | None = compiled.passed(url, links, salt, self._urls.data)
        return plain

    def look(self, samples: bytes, salt: int, shift: int = 0) -> Found:
        """Return how much of the samples is new under ``salt``; from now on none of it is.

        A long page has fewer samples. If long pages of the host have a ``shift``, only samples that
        a page with this shift would have are compared, as long as there are some.
        """
        if len(samples) < _HEAD + 4:
            return Found(0, 0, 0)
        return self._pieces.novel(samples, salt, shift)

    def fresh(self, urls: list[str], salt: int) -> list[int]:
        """Return the indexes of those ``urls`` that were not met under ``salt``; from now on they
        were."""
        return self._urls.unmet(urls, salt, True)

    def fresh_links(self, links: list[Admission], salt: int) -> list[int]:
        """Run :meth:`fresh` on the URLs of ``links``."""
        return self._urls.unmet_links(links, salt)

    def met(self, url: str, salt: int) -> bool:
        """Return whether a URL was met under ``salt``."""
        return not self._urls.unmet([url], salt, False)


def text_of(samples: bytes) -> array[int]:
    """Return the tags of a page's text."""
    images = samples[1] if samples else 0
    return array("I", samples[_HEAD + 4 * images : _text_end(samples)])


def text_hash(samples: bytes) -> int:
    """Return a hash that is the same for pages that differ only in figures and short blocks."""
    if not samples:
        return 0
    tags = array("I", samples[_HEAD : _text_end(samples)])
    own = array("I", [tag for tag in tags if tag & _BESIDE != _BESIDE])
    return crc32(own.tobytes(), samples[1])


def figures_of(samples: bytes) -> list[tuple[int, int]]:
    """Return labels of the blocks with figures, and hashes of the figures.

    The last four bits of a label are the number of figures, 15 at most.
    """
    if len(samples) < _HEAD or not samples[2]:
        return []
    tags = array("I", samples[_text_end(samples) :])
    return list(zip(tags[::2], tags[1::2], strict=True))


def _text_end(samples: bytes) -> int:
    return len(samples) - 8 * samples[2] if len(samples) >= _HEAD else 0


class _Table:
    """A set of hashes of bounded size; see ``samples.c``, which has the other half."""

    def __init__(self, slots: int, data: memoryview | None) -> None:
        self._slots = slots
        self.data = data or bytearray(4 * slots if compiled is not None else 0)
        self._known: dict[int, None] = {}

    def novel(self, samples: bytes, salt: int, shift: int) -> Found:
        if compiled is not None:
            return Found(*compiled.novel(samples, salt, self.data, shift))
        tags = array("I", samples[_HEAD : _text_end(samples)])
        first = samples[1]
        new = [not self._knows(hash((tag, salt)), True) for tag in tags]
        stand = samples[0]
        return Found(sum(new[first:]) << stand, len(new) - first << stand, sum(new[:first]))

    def unmet(self, strings: list[str], salt: int, keep: bool) -> list[int]:
        if compiled is not None:
            found: list[int] = compiled.unmet(strings, salt, self.data, keep)
            return found
        return [
            place for place, text in enumerate(strings) if not self._knows(hash((text, salt)), keep)
        ]

    def unmet_links(self, links: list[Admission], salt: int) -> list[int]:
        if compiled is not None:
            found: list[int] = compiled.unmet_links(links, salt, self.data)
            return found
        return self.unmet([link.url for link in links], salt, True)

    def _knows(self, tag: int, keep: bool) -> bool:
        """Return whether a tag is known; the version without the compiled part.

        This version keeps a sixteenth of the entries in a dictionary, which takes as much memory.
        """
        known = tag in self._known
        if keep:
            self._known.pop(tag, None)
            self._known[tag] = None
            if len(self._known) > self._slots // 16:
                del self._known[next(iter(self._known))]
        return known


def _mapped(path: Path, size: int) -> memoryview | None:
    """Map the file at ``path``, made if it is missing; None if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # a hole in the file on a full disk would cause SIGBUS
            os.posix_fallocate(descriptor, 0, size)
            return memoryview(mmap.mmap(descriptor, size))
        finally:
            os.close(descriptor)
    except OSError as error:
        log.warning("novelty_not_shared", reason=str(error))
        return None


def samples_of(text: str, url: str) -> bytes:
    """Return samples of the text of the page at ``url`` without known blocks.

    Without the compiled part other samples are taken, which are as good for one process.
    """
    if compiled is not None:
        found: bytes = compiled.sample(text.encode("utf-8", "replace"), url)
        return found
    path = url[url.index("/", 8) :].partition("?")[0]
    if len(path) > 3:
        text = text.replace(path, "")
    return _packed(_pieces(text), len(text), _figures(text, url))


def _packed(pieces: list[int], length: int, figures: list[int]) -> bytes:
    """Return ``pieces``, which stand for ``length``, in the form that extraction gives samples."""
    tags = sorted({piece | 7 for piece in pieces})
    modulus = 1
    while len(tags) > _MOST:
        modulus *= 2
        tags = [tag for tag in tags if (tag >> 3) % modulus == 0]
    stand = max(length // max(len(tags), 1), 1).bit_length() - 1
    return bytes((stand, 0, len(figures) // 2)) + array("I", [*tags, *figures]).tobytes()


def _figures(text: str, url: str) -> list[int]:
    """Return labels and hashes of the figures of each line, as extraction does for blocks."""
    own, last = {int(one) for one in _NUMBER.findall(url[url.index("/", 8) :])}, -2
    found: dict[int, tuple[int, list[int]]] = {}
    for line in text.splitlines():
        told = []
        for number in map(int, _NUMBER.findall(line)):
            if number != last + 1 and number not in own:
                told.append(number)
            last = number
        if told:
            label = crc32(_NUMBER.sub("0", line).encode()) & ~15
            found.setdefault(label, (label, []))[1].extend(told)
    return [
        tag
        for label, told in list(found.values())[:_MOST_FIGURES]
        for tag in (label | min(len(told), 15), crc32(repr(told).encode()))
    ]


def _pieces(text: str) -> list[int]:
    """Return hashes of the units between white space or punctuation: long ones, and pairs of short
    ones."""
    masked = re.sub(r"(?<![.,\d])\d+", "0", text)
    units = _UNITS.findall(masked)
    found = [crc32(unit.encode()) for unit in units if len(unit) >= _LONG]
    short = pairwise(unit for unit in units if len(unit) < _LONG)
    found += [crc32(f"{one} {two}".encode()) for one, two in short]
    return found or [crc32(unit.encode()) for unit in units]
