"""Parameters that make no difference: URLs that differ only in them are one page.

A parameter is tested if the URL without it is known, too: if the page then has no new text and no
new links, several times, the parameter makes no difference. Orders and views are found in this way.
A URL with such a parameter is fetched only if the one without it is not.
"""

from __future__ import annotations

import re

from greencrawl.worker.traps.evidence import Evidence
from greencrawl.worker.traps.hosts import KEYS, HostTraps
from greencrawl.worker.traps.novelty import Novelty
from greencrawl.worker.traps.queries import LIST_PAGES, SHOWN, without
from greencrawl.worker.traps.shapes import Shape

_TESTS, _GENERIC_TESTS = 3.0, 4.0
"""A value of a parameter makes no difference if the evidence reaches the first number; the whole
parameter makes none if the evidence about all its values reaches the second number."""
_KEY_TESTS, _NEVER = 4.0, 6.0
"""After this many pages with a known number and nothing new, such pages count as one.

A page with something new takes the second number from this count.
"""
_NUMBERS = re.compile(r"\d{1,19}").finditer
_MOST = 8
"""Parameters of one URL that are tested."""
_FIRST = ("0", "1")
"""Numbers that usually mean the first page of several."""


def plain_of(state: HostTraps, novelty: Novelty, shape: Shape, url: str) -> tuple[str, str]:
    """Return a URL without parameters that make no difference, and their names.

    Return ("", "") if it has none, or if the shorter URL is not known.
    """
    sums = state.yields
    if not sums.parameters:
        return "", ""
    idle = [
        name
        for name, value in _parameters(shape)
        if _is_idle(
            sums.parameter(_generic(shape, name)),
            sums.parameter(f"{_generic(shape, name)}={value}"),
            value,
        )
    ]
    if not idle:
        return "", ""
    plain = without(url, idle)
    if plain == url or not state.met(novelty, plain):
        return "", ""
    return plain, ", ".join(idle)


def learn(state: HostTraps, novelty: Novelty, shape: Shape, url: str, seen: Evidence) -> None:
    """Learn from a fetched page whether its parameters make a difference."""
    sums = state.yields
    if seen.new >= 1.0 or seen.figures_only or seen.good or seen.leading or seen.unknown:
        weight = -6.0
    elif seen.new == 0:
        weight = 1.0
    else:
        weight = 0.0
    # the first page of several equals the one without the number: see _is_idle
    if weight < 0 and shape.params:
        for name, value in shape.params.items():
            if value.isdigit() and value not in _FIRST:
                sums.weigh_parameter(f"{shape.path}?{name}", weight)
    for name, value in _parameters(shape)[:_MOST]:
        shown = name in SHOWN
        plain = without(url, SHOWN if shown else [name])
        if plain == url:
            continue
        if weight and state.met(novelty, plain):
            generic = _generic(shape, name)
            if shown and weight < 0:  # other pages of a list, first met in another order
                sums.weigh_parameter(generic, -1.0 if seen.new < 1.0 else weight)
            elif weight < 0:
                sums.weigh_parameter(generic, weight)
                sums.weigh_parameter(f"{generic}={value}", weight)
            elif sums.weigh_parameter(f"{generic}={value}", weight) == _TESTS:
                sums.weigh_parameter(generic, 1.5)
            state.learnt = True


def learn_keys(state: HostTraps, novelty: Novelty, shape: Shape, url: str, seen: Evidence) -> None:
    """Learn from a fetched page whether one number in its URL identifies it.

    Also learn whether one of several numbers means nothing. In both cases a URL of the shape may be
    a page that was fetched under another URL.
    """
    leads = seen.figures_only or seen.good or seen.leading or seen.unknown
    weight = -_NEVER if seen.new >= 1.0 or leads else float(seen.new == 0)
    for key, needed in _keys(shape, url):
        met = not novelty.fresh([key], state.salt + KEYS)
        if met and weight:
            for name, _ in needed:
                state.yields.weigh_parameter(name, weight)
            state.learnt = True


def key_met(state: HostTraps, novelty: Novelty, shape: Shape, url: str) -> str:
    """Return what identifies a page that was fetched under another URL, as ``id=7``; "" if nothing
    does."""
    sums = state.yields
    if sums.parameters:
        for key, needed in _keys(shape, url):
            known = all(sums.parameter(name) >= tests for name, tests in needed)
            if known and novelty.met(key, state.salt + KEYS):
                return key.rpartition("#")[2]
    return ""


def _keys(shape: Shape, url: str) -> list[tuple[str, list[tuple[str, float]]]]:
    """Return what may identify a page, each with the sums that decide it, and their thresholds.

    These are: a number in the query, for its program; the only number of the query or of the name,
    for its folder; and all but one of several numbers in a name.
    """
    folder, _, leaf = url.partition("?")[0].rstrip("/").rpartition("/")
    numbers = list(_NUMBERS(leaf))
    found = []
    asked = []
    for name, value in list(shape.params.items())[:_MOST] if shape.params else ():
        if value.isdigit() and name not in LIST_PAGES and len(value) < 20:
            asked.append(value)
            key = f"{shape.path}#{name}={value}"
            found.append((key, [(f"{shape.name}#{name}", _KEY_TESTS)]))
    if len(numbers) + len(asked) == 1 and folder.count("/") > 2:
        value = (asked or [numbers[0][0]])[0]
        stem = "".join(filter(str.isalpha, leaf.partition(".")[0]))
        needed = [(f"{folder}#", _KEY_TESTS), (f"{shape.name}#", _KEY_TESTS / 2)]
        found.append((f"{folder}#{stem} {value}", needed))
    if shape.params is None and 1 < len(numbers) < _MOST:
        for place, number in enumerate(numbers):
            rest = f"{leaf[: number.start()]}*{leaf[number.end() :]}"
            found.append((f"{folder}#{rest}", [(f"{shape.name}#{place}", _KEY_TESTS)]))
    return found


def _generic(shape: Shape, name: str) -> str:
    """Return the name under which a parameter is counted.

    A parameter that says how a page is shown is counted under one name for the whole host.
    """
    return f"*?{name}" if name in SHOWN else f"{shape.path}?{name}"


def _is_idle(generic: float, special: float, value: str) -> bool:
    """Return whether a parameter makes no difference, as far as the evidence about it and its value
    says."""
    if generic >= _GENERIC_TESTS:
        return True
    if value.isdigit() and generic < 0:  # the first page of several
        return False
    return special >= _TESTS


def _parameters(shape: Shape) -> list[tuple[str, str]]:
    """Return parameters that may make no difference, with their values.

    Numbers are left out: pages of a list differ only by them.
    """
    found = shape.params.items() if shape.params else ()
    return [
        (name, value[:40])
        for name, value in found
        if value and (not value.isdigit() or value in _FIRST or name in SHOWN)
    ]
