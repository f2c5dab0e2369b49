"""Titles: a page without text of its own may still be a page of its own, by its name.

A term of a thesaurus, a subject above others and a stub say their name, which their URL says, too,
and nothing else. Views of a page – its history, a form – have the page's name with something added
that all views of the kind have: that is not counted. What is left of a title, its core, is new or
not, whatever shape had it.
"""

from __future__ import annotations

import re

from greencrawl.worker.traps.hosts import TITLES, HostTraps
from greencrawl.worker.traps.novelty import Novelty

_LONGEST = 200
"""Characters of a title that are looked at."""
_SHAPES = 64
"""Shapes of a host whose last title is remembered."""
_UNITS = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af]|[^\W\d_\u2e80-\u9fff\uac00-\ud7af]+").findall
"""Words, and characters of scripts that do without spaces; numbers are no part of a name."""


def is_own(state: HostTraps, novelty: Novelty, shape: str, title: str) -> bool:
    """Whether a page of ``shape`` has a name that no page of the host had; from now on one has.

    Of the first page of a shape the title is compared with that of the page before it: the name of
    the site is no part of it then.
    """
    units = _UNITS(title[:_LONGEST])
    before = state.titles.pop(shape, None) or state.titles.pop("", [])
    state.titles[shape] = state.titles[""] = units
    while len(state.titles) > _SHAPES:
        del state.titles[next(iter(state.titles))]
    core = _core(units, before)
    return bool(core) and bool(novelty.fresh([" ".join(core)], state.seed + TITLES))


def _core(units: list[str], before: list[str]) -> list[str]:
    """What is left of a title without the words that it begins and ends with as another does."""
    most = min(len(units), len(before))
    begin = 0
    while begin < most and units[begin] == before[begin]:
        begin += 1
    end = 0
    while end < most - begin and units[-1 - end] == before[-1 - end]:
        end += 1
    return units[begin : len(units) - end]
