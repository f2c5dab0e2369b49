"""Parameters that make no difference: URLs that are equal but for them are one page.

A parameter is tested where the URL without it is known, too: if its page then says nothing new and
leads nowhere new, several times, it makes no difference. Sessions' ids, orders and views are found
so. A URL with such a parameter is fetched only where that without it is not.
"""

from __future__ import annotations

from collections.abc import Iterable

from greencrawl.worker.traps.hosts import DONE, HostTraps
from greencrawl.worker.traps.novelty import Novelty
from greencrawl.worker.traps.shapes import Shape, without
from greencrawl.worker.traps.yields import Evidence

_TESTS, _GENERIC_TESTS = 3.0, 4.0
"""Pages that were the same without a parameter of this value, and without it at all, from which on
it makes no difference."""
_MOST = 8
"""Parameters of one URL that are tested."""
_FIRST = ("0", "1")
"""Numbers of what mostly is the first page of several."""


def plain_of(state: HostTraps, novelty: Novelty, shape: Shape, url: str) -> tuple[str, str]:
    """What a URL is without parameters that make no difference, and their names.

    Two times "" where it has none, or where what is left was not met.
    """
    sums = state.yields
    if not sums.parameters:
        return "", ""
    idle = [
        name
        for name, value in _parameters(shape)
        if _is_idle(
            sums.parameter(f"{shape.path}?{name}"),
            sums.parameter(f"{shape.path}?{name}={value}") if value else 0.0,
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
    """Learn from a page that was fetched whether its parameters make a difference."""
    sums = state.yields
    if seen.new >= 1.0 or seen.good or seen.leading or seen.unknown:
        weight = -6.0
    elif seen.new == 0:
        weight = 1.0
    else:
        weight = 0.0
    if weight < 0 and shape.params:  # the first page of several is like none: see _is_idle
        for name, value in shape.params.items():
            if value.isdigit() and value not in _FIRST:
                sums.weigh_parameter(f"{shape.path}?{name}", weight)
    for name, value in _parameters(shape)[:_MOST]:
        plain = without(url, [name])
        if plain == url:
            continue
        if weight and state.met(novelty, plain):
            generic = f"{shape.path}?{name}"
            if weight < 0:
                sums.weigh_parameter(generic, weight)
                if value:
                    sums.weigh_parameter(f"{generic}={value}", weight)
            elif not value:
                sums.weigh_parameter(generic, weight)
            elif sums.weigh_parameter(f"{generic}={value}", weight) == _TESTS:
                sums.weigh_parameter(generic, 1.5)
            state.changed = True
        if not value:  # a session's id: it may be that all links have one
            novelty.fresh([plain], state.seed + DONE)


def _is_idle(generic: float, special: float, value: str) -> bool:
    """Whether a parameter makes no difference, by what is known of it and of its value."""
    if generic >= _GENERIC_TESTS:
        return True
    if value.isdigit() and generic < 0:  # the first page of several
        return False
    return special >= _TESTS


def _parameters(shape: Shape) -> list[tuple[str, str]]:
    """Names of parameters that may make no difference, with their values; "" for a session's id.

    Numbers are left out: pages of a list differ by them alone.
    """
    found: Iterable[tuple[str, str]] = shape.params.items() if shape.params else ()
    if "{session}" in shape.path:
        found = [(";", ""), *found]
    several = []
    for name, value in found:
        if name == ";" or f"{name}={{session}}" in shape.name:
            several.append((name, ""))
        elif value and (not value.isdigit() or value in _FIRST):
            several.append((name, value[:40]))
    return several
