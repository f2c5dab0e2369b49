"""Figures: pages of one text that differ in whole numbers, and are no copies of one another.

A catalogue of screws and the weather of each day have the same words on all their pages. What they
say is in their numbers, but so is the time of day in a footer. Figures count for a page where its
URL does not have them, and where no page that is neither numbered nor asked for with a query has
such a block as well; a list has several of them for each that its things have.
"""

from __future__ import annotations

import re

from greencrawl.worker.traps.evidence import Evidence
from greencrawl.worker.traps.hosts import FIGURES, HostTraps
from greencrawl.worker.traps.novelty import Novelty, figures_of
from greencrawl.worker.traps.queries import LIST_PAGES
from greencrawl.worker.traps.shapes import Shape, ends_in_number
from greencrawl.worker.traps.yields import Sum

_LABELS = 256
"""Blocks with figures on plain pages that are remembered of a host, with the least they had."""
_CHAIN, _RICH = 2, 3
"""Links of a page to others of its shape, not met before, up to which it may be one of a chain, as
days are; figures that it must have then."""
_NUMBERS = re.compile(r"\d+").findall


def tells(
    state: HostTraps,
    novelty: Novelty,
    shape: Shape,
    url: str,
    samples: bytes,
    one: Sum,
    seen: Evidence,
) -> bool:
    """Whether the figures of a page at ``url`` are its own; ``one`` is the sum of its shape.

    They are where they are not those of the page before it, and no page with the same numbers in
    its URL had them. A page that leads on to its like must have some that no page had.
    """
    figures, count = _own(state.labels, shape, samples)
    if not count:
        return False
    before, one.figures = one.figures, figures
    numbers = _NUMBERS(url[url.index("/", 8) :])
    key = f"{figures}" if count > 1 else f"{figures} {numbers}"
    fresh = novelty.fresh([key], state.seed + FIGURES)
    if seen.new >= 1.0 or seen.copy or seen.odd or seen.poor or seen.own > _CHAIN:
        return False
    if not numbers or not (seen.equal or seen.new) or _is_list(shape):
        return False
    if seen.own and count < _RICH:
        return False
    return figures != before and bool(fresh)


def _own(labels: dict[int, int], shape: Shape, samples: bytes) -> tuple[int, int]:
    """A hash of the figures in blocks that plain pages do not have, and how many these are."""
    plain = shape.params is None and not ends_in_number(shape.path)
    figures = count = 0
    for label, value in figures_of(samples):
        block, several = label >> 4, label & 15
        if plain:
            labels[block] = min(labels.get(block, several), several)
        elif several < labels.get(block, 16):
            figures = (figures + value) & 0xFFFFFFFF  # in whatever order they stand
            count += several
    while len(labels) > _LABELS:
        del labels[next(iter(labels))]
    return figures, count


def _is_list(shape: Shape) -> bool:
    """Whether pages of a shape are those of lists, which show what other pages have."""
    if shape.params is not None:
        return not LIST_PAGES.isdisjoint(shape.params)
    parts = shape.path.rstrip("/").split("/")
    return parts[-2] in LIST_PAGES or parts[-1].partition("-")[0] in LIST_PAGES
