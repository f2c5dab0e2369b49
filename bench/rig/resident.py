"""Resident memory of processes, in MB, over time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Event, Thread

import psutil

Sample = tuple[float, dict[str, float]]
"""Unix seconds, and MB by part; a part without a process is left out."""


def resident_mb(parts: Mapping[str, Sequence[psutil.Process]]) -> dict[str, float]:
    """Return MB by part: the resident memory of its processes, with shared pages counted in
    each."""
    found: dict[str, float] = {}
    for part, processes in parts.items():
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                found[part] = found.get(part, 0.0) + process.memory_info().rss / 1e6
    return found


class Resident:
    """A thread that takes a sample every ``seconds``, from entering until leaving."""

    def __init__(
        self, parts: Callable[[], Mapping[str, Sequence[psutil.Process]]], seconds: float
    ) -> None:
        self._parts = parts
        self._seconds = seconds
        self._over = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self.samples: list[Sample] = []

    def __enter__(self) -> Resident:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            self.samples.append((time.time(), resident_mb(self._parts())))


def ends(
    samples: Sequence[Sample], part: str, first: float, last: float
) -> tuple[float, float] | None:
    """Return the MB at the beginning and at the end of a time: the medians of its first and last
    tenth.

    None if the part had no process then.
    """
    tenth = (last - first) / 10
    found = []
    for begin, end in ((first, first + tenth), (last - tenth, last)):
        sizes = [mb[part] for at, mb in samples if begin <= at <= end and part in mb]
        if not sizes:
            return None
        found.append(statistics.median(sizes))
    return found[0], found[1]
