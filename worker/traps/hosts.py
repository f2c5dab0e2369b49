"""A process's knowledge of one host in one crawl."""

from __future__ import annotations

from msgspec import Struct

from greencrawl.schema.records import Admission
from greencrawl.worker.traps.evidence import HINTS
from greencrawl.worker.traps.novelty import Novelty
from greencrawl.worker.traps.shapes import Shape, Shaper
from greencrawl.worker.traps.yields import Sum, Yields

LINKS, DONE, TEXTS, FOREIGN, KEYS, INNER, FIGURES, TITLES = 1, 2, 3, 4, 5, 6, 7, 0
"""Kinds of facts about URLs.

In order: met as a link; fetched; a body that is no page; a host that is linked to; a number that a
program was given; found on a page of its own shape; figures of a page; the own part of a title.
"""


WARM = 8
"""After this many pages of a host this process knows its texts."""


PROVEN, PROVEN_TEXT = 64, 0.9
"""Limits for a shape that has proved its yield: its yields, and the share of its last pages with
new text. One page without new text ends this, until several pages have new text again."""
LOOKED_AT = 4
"""One in this many pages of a shape that has proved its yield is judged."""


class HostTraps(Struct, gc=False):
    """Knowledge of one host in one crawl."""

    salt: int
    shaper: Shaper
    yields: Yields
    salts: tuple[int, int, int] = (0, 0, 0)
    """Seeds of the most used kinds: fetched URLs, text, links."""
    software: int = 0
    tries: int = 0
    seen: int = 0
    """Pages of the host that this process has noted."""
    packed: int = 0
    """Pages in the record that was last handed on, or taken over."""
    shift: int = 0
    """The largest shift of the samples of its pages; see ``Novelty.look``."""
    changed: bool = False
    """True if anything that parks or releases shapes has changed since the last record; ``learnt``
    is True if anything else was learnt."""
    learnt: bool = False
    asks: bool = False
    """True if a link with a query was met: such a host may have a page at several URLs."""
    released: frozenset[str] = frozenset()
    asked: dict[str, int] = {}
    labels: dict[int, int] = {}
    """Blocks with figures on plain pages, and their least number of figures; see ``figures.py``."""
    titles: dict[str, list[str]] = {}
    """The words of the last title of some shapes."""
    last: tuple[str, Shape] | None = None
    counted: int = 0

    def __post_init__(self) -> None:
        self.salts = self.salt + DONE, self.salt, self.salt + LINKS

    def shape(self, url: str) -> Shape:
        """Return the shape of a URL; the last one is cached."""
        if self.last is not None and self.last[0] == url:
            return self.last[1]
        found = self.shaper.shape(url)
        self.last = url, found
        return found

    def settled_shape(self, url: str) -> Shape | None:
        """Return the shape of a URL without a query if it is settled, so that nothing speaks
        against it.

        None if the shape is not settled, while this process does not know the host well, if any
        shape of the host was poor, or if its URLs need more checks.
        """
        sums = self.yields
        if sums.troubled or self.software or self.shaper.sessions or self.seen < WARM:
            return None
        shape = self.shape(url)
        known = sums.sums.get(shape.name)
        if known is None or shape.params is not None or not known.is_settled:
            return None
        return shape

    def passes(self, shape: Shape) -> bool:
        """Return whether the next page of a settled shape need not be judged.

        This needs a host without queries in URLs: otherwise a page that was not judged would count
        as new again at another URL.
        """
        one = self.yields.sums[shape.name]
        proven = one.yields >= PROVEN and one.text > PROVEN_TEXT
        return proven and not self.asks and one.pages % LOOKED_AT != 0

    def pass_by(self, novelty: Novelty, shape: Shape, url: str, links: list[Admission]) -> None:
        """Count a page of a settled shape at ``url`` that was not to be looked at."""
        known = self.yields.sums.get(shape.name)
        plain = novelty.passed(url, links, self.salts[0])
        if known is not None and plain is not None:  # else it was fetched before
            self.yields.unjudged = 0
            known.pages += 1
            self.seen += 1
            self.asks = self.asks or not plain

    @property
    def size(self) -> int:
        """Return about how many strings it keeps."""
        sums = self.yields
        known = 3 * len(sums.sums) + len(sums.parameters) + len(sums.templates)
        return 20 + self.shaper.size + known + len(self.labels)

    def waits(self, novelty: Novelty, url: str) -> bool:
        """Return whether a URL was linked to, and not fetched yet."""
        met = novelty.met(url, self.salt + LINKS)
        return met and not novelty.met(url, self.salt + DONE)

    def met(self, novelty: Novelty, url: str) -> bool:
        """Return whether a URL was fetched, or linked to."""
        return novelty.met(url, self.salt + DONE) or novelty.met(url, self.salt + LINKS)


def why(found: Sum, shape: Shape) -> str:
    """Say, for people, why URLs of a shape are parked."""
    said = f"the last of {found.pages:,} pages of this shape brought nothing new"
    if found.grew:
        said += " but more links of its kind"
    elif found.copied:
        said += ", and name other pages as theirs"
    if shape.hint:
        said += f"; {HINTS[shape.hint]}"
    return said
