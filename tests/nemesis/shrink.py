"""A failed schedule: how often it fails, and which of its faults are needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from tests.nemesis.run import Report
from tests.nemesis.schedule import Event, Schedule

T = TypeVar("T")
Attempt = Callable[[Schedule, str], Report]
"""A function that runs a schedule, under a label."""
KEPT = ("create",)
"""Kinds of events that are never removed: without them there is nothing to crawl."""


def pursue(
    plan: Schedule,
    kinds: set[str],
    attempt: Attempt,
    *,
    again: int,
    seconds: float,
    place: Path,
) -> None:
    """Run ``plan`` ``again`` times, print the rate, then shrink it for at most ``seconds``.

    A smaller schedule that still has a finding of ``kinds`` is stored beside ``place``.
    """
    failed = 0
    for number in range(again):
        found = attempt(plan, f"again-{number}")
        failed += bool(kinds & {finding.kind for finding in found.findings})
        print(f"again: {found.line()}", flush=True)
    if again:
        print(f"it fails {failed} times in {again}", flush=True)
    if seconds <= 0 or (again and not failed):
        return
    tries = 1 if again == 0 or failed == again else min(4, 1 + again // failed)
    deadline, runs = time.monotonic() + seconds, 0

    def fails(events: Sequence[Event]) -> bool:
        nonlocal runs
        for _ in range(tries):
            runs += 1
            smaller = replace(plan, events=list(events))
            found = attempt(smaller, f"shrink-{runs}")
            if kinds & {finding.kind for finding in found.findings}:
                return True
        return False

    kept = [event for event in plan.events if event.kind in KEPT]
    rest = [event for event in plan.events if event.kind not in KEPT]

    def with_kept(some: Sequence[Event]) -> list[Event]:
        return sorted([*kept, *some], key=lambda event: event.at)

    small = minimise(rest, lambda some: fails(with_kept(some)), deadline)
    shrunk = replace(plan, events=with_kept(small))
    target = place.with_suffix(".shrunk.json")
    shrunk.save(target)
    print(f"shrunk from {len(rest)} to {len(small)} events in {runs} runs: {target}", flush=True)
    for event in small:
        print(f"  {event}", flush=True)


def minimise(items: list[T], fails: Callable[[list[T]], bool], deadline: float) -> list[T]:
    """Return a smaller list that still fails, by removing ever smaller parts until ``deadline``
    (``time.monotonic()``); delta debugging, https://doi.org/10.1109/32.988498."""
    parts = 2
    while len(items) >= 2 and time.monotonic() < deadline:
        size = -(-len(items) // parts)
        for begin in range(0, len(items), size):
            rest = items[:begin] + items[begin + size :]
            if time.monotonic() < deadline and fails(rest):
                items, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(items), parts * 2)
    return items
