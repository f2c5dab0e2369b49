"""What a process knows of one host in one crawl."""

from __future__ import annotations

from msgspec import Struct

from greencrawl.worker.traps.novelty import Novelty
from greencrawl.worker.traps.shapes import Shape, Shaper
from greencrawl.worker.traps.yields import Yields

LINKS, DONE, TEXTS, FOREIGN, KEYS, INNER = 1, 2, 3, 4, 5, 6
"""Kinds of what is remembered of URLs: met as a link; fetched; a body that is no page; a host that
is linked to; a number that a program was given; found on a page of its own shape."""


class HostTraps(Struct, gc=False):
    """What is known of one host in one crawl."""

    seed: int
    shaper: Shaper
    yields: Yields
    software: int = 0
    tries: int = 0
    seen: int = 0
    """Pages that this process has noted of it."""
    packed: int = 0
    """Pages that the record has that was handed on, or taken over, last."""
    shift: int = 0
    """Samples that its longer pages have; see ``Novelty.look``."""
    changed: bool = False
    released: frozenset[str] = frozenset()
    asked: dict[str, int] = {}
    last: tuple[str, Shape] | None = None
    counted: int = 0

    def shape(self, url: str) -> Shape:
        """The shape of a URL; that of the last one asked for is at hand."""
        if self.last is not None and self.last[0] == url:
            return self.last[1]
        found = self.shaper.shape(url)
        self.last = url, found
        return found

    def passes(self, url: str) -> bool:
        """Whether nothing can be against a URL, as its shape is settled; then it counts as
        fetched."""
        shape = self.shape(url)
        known = self.yields.sums.get(shape.name)
        if known is None or shape.params is not None or not known.is_settled:
            return False
        if self.software or self.shaper.sessions:
            return False
        self.yields.pages += 1
        return True

    @property
    def size(self) -> int:
        """About how many strings it keeps."""
        sums = self.yields
        return (
            20 + self.shaper.size + 3 * len(sums.sums) + len(sums.parameters) + len(sums.templates)
        )

    def met(self, novelty: Novelty, url: str) -> bool:
        """Whether a URL was fetched, or linked to."""
        return novelty.met(url, self.seed + DONE) or novelty.met(url, self.seed + LINKS)
