"""Figures of a process since its start, for monitoring."""

from __future__ import annotations

from collections import Counter

from greencrawl.schema.records import Done, Outcome


class Figures:
    """Counters. Each outcome of a task is noted once."""

    def __init__(self) -> None:
        self.pages = 0
        self.bytes = 0
        self.failures: Counter[str] = Counter()
        """Failures by kind, as a crawl's counters have them."""

    def note(self, outcome: Outcome) -> None:
        """Note the outcome of a task."""
        if isinstance(outcome, Done):
            self.pages += outcome.stored
            self.bytes += outcome.bytes
            if outcome.kind == "ok":
                return
        self.failures[outcome.kind] += 1
