"""The own content of a page that has no text of its own: its figures, or its name.

A catalogue of screws and the weather of each day have the same words on all their pages. Their
content is in their numbers, but so is the time of day in a footer. Figures count for a page if its
URL does not have them. They do not count if a plain page has such a block with as few figures; a
plain page has no number or query in its URL. A list may have such a block, because it has several
figures for each item.

A term of a thesaurus, a parent subject and a stub say only their name, which is also in their URL.
Views of a page – its history, a form – have the page's name with something added that all views of
the kind have: the addition is not counted. Only the rest of a title, its core, must be new,
whatever shape had it before.
"""

from __future__ import annotations

import re

from greencrawl.worker.traps.evidence import Evidence
from greencrawl.worker.traps.hosts import FIGURES, TITLES, HostTraps
from greencrawl.worker.traps.novelty import Found, Novelty, figures_of
from greencrawl.worker.traps.queries import LIST_PAGES
from greencrawl.worker.traps.shapes import Shape
from greencrawl.worker.traps.yields import Sum

_LABELS = 256
"""Blocks with figures on plain pages that are remembered for a host, with their least number of
figures."""
_CHAIN, _RICH = 2, 3
"""A page with at most the first number of new links to its own shape may be part of a chain, as
days are; then it needs the second number of figures."""
_CHOICES = 8
"""From this many new links to its own shape on, a page's name does not count."""
_NUMBERS = re.compile(r"\d+").findall
_NUMBERED = re.compile(r"\{(?:n|id|date|far)\}(?:\.[A-Za-z0-9]{1,5})?/?$").search
_LONGEST = 200
"""Characters of a title that are read."""
_SHAPES = 64
"""Shapes of a host whose last title is remembered."""
_UNITS = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af]|[^\W\d_\u2e80-\u9fff\uac00-\ud7af]+").findall
"""Words, and characters of scripts without spaces; numbers are no part of a name."""


def has_own_figures(
    state: HostTraps,
    novelty: Novelty,
    shape: Shape,
    url: str,
    samples: bytes,
    one: Sum,
    seen: Evidence,
) -> bool:
    """Return whether the figures of a page at ``url`` are its own; ``one`` is the sum of its shape.

    They are its own if the page before it had others, and no page with the same numbers in its URL
    had them. A page that links to more of its kind must have several figures, which no page had.
    """
    figures, count = _own(state.labels, shape, samples)
    if not count:
        return False
    before, one.figures = one.figures, figures
    numbers = _NUMBERS(url[url.index("/", 8) :])
    key = f"{figures}" if count > 1 else f"{figures} {numbers}"
    fresh = novelty.fresh([key], state.salt + FIGURES)
    if seen.new >= 1.0 or seen.copy or seen.odd or seen.poor or seen.own > _CHAIN:
        return False
    if not numbers or not (seen.equal or seen.new) or _is_list(shape):
        return False
    if seen.own and count < _RICH:
        return False
    return figures != before and bool(fresh)


def _own(labels: dict[int, int], shape: Shape, samples: bytes) -> tuple[int, int]:
    """Return a hash of the figures in blocks that plain pages do not have, and how many these
    are."""
    plain = shape.params is None and not ends_in_number(shape.path)
    figures = count = 0
    for label, value in figures_of(samples):
        block, several = label >> 4, label & 15
        if plain:
            labels[block] = min(labels.get(block, several), several)
        elif several < labels.get(block, 16):
            figures = (figures + value) & 0xFFFFFFFF  # in any order
            count += several
    while len(labels) > _LABELS:
        del labels[next(iter(labels))]
    return figures, count


def _is_list(shape: Shape) -> bool:
    """Return whether pages of a shape are lists, which show what other pages have."""
    if shape.params is not None:
        return not LIST_PAGES.isdisjoint(shape.params)
    parts = shape.path.rstrip("/").split("/")
    return parts[-2] in LIST_PAGES or parts[-1].partition("-")[0] in LIST_PAGES


def ends_in_number(path: str) -> bool:
    """Return whether the last part of a shape's path ends in a number, a date or an id."""
    return _NUMBERED(path) is not None


def is_dated(path: str) -> bool:
    """Return whether a shape's path ends in several numbers or a date, like a day's.

    The name of such a page says which day it is, and names of days repeat.
    """
    return path.rstrip("/").endswith(("{n}/{n}", "{date}"))


def has_own_name(
    state: HostTraps,
    novelty: Novelty,
    shape: Shape,
    title: str,
    found: Found,
    seen: Evidence,
    alike: bool,
) -> bool:
    """Return whether a page has a name of its own.

    The name is a short new block, or the page's title unless pages everywhere are ``alike``. A name
    does not count if something speaks against the page. On a page with a query only a block counts,
    and only if the page links to few of its kind.
    """
    titled = _is_own(state, novelty, shape.name, title)
    if seen.copy or seen.odd or seen.own >= _CHOICES or is_dated(shape.path):
        return False
    if shape.params is not None:
        return found.blocks > 0 and seen.own + seen.poor <= _CHAIN
    return found.blocks > 0 or (titled and not alike)


def _is_own(state: HostTraps, novelty: Novelty, shape: str, title: str) -> bool:
    """Return whether a page of ``shape`` has a name that no page of the host had; note the name.

    For the first page of a shape the title is compared with that of the page before it; so the name
    of the site is not counted.
    """
    units = _UNITS(title[:_LONGEST])
    before = state.titles.pop(shape, None) or state.titles.pop("", [])
    state.titles[shape] = state.titles[""] = units
    while len(state.titles) > _SHAPES:
        del state.titles[next(iter(state.titles))]
    core = _core(units, before)
    return bool(core) and bool(novelty.fresh([" ".join(core)], state.salt + TITLES))


def _core(units: list[str], before: list[str]) -> list[str]:
    """Return a title without the words at its start and end that another title also has."""
    most = min(len(units), len(before))
    begin = 0
    while begin < most and units[begin] == before[begin]:
        begin += 1
    end = 0
    while end < most - begin and units[-1 - end] == before[-1 - end]:
        end += 1
    return units[begin : len(units) - end]
