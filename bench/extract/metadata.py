"""``python -m bench.extract.metadata FOLDER…``: titles, authors and dates, compared with
trafilatura's.

F1 over pages, without regard to case and white space: a value counts as wrong if the page has none
marked. trafilatura is called with its defaults, and with its most thorough search for dates.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from bench.extract import intervals
from bench.rig.record import Record
from greencrawl.worker.extract.main.library import extract
from greencrawl.worker.extract.train.samples import Sample, read

FIELDS = ("title", "author", "date")
OURS, OTHER = "ours", "trafilatura"
_LEAST = {"title": 0.72}
_BEHIND = {"author": 0.0, "date": -0.03}
"""Required figures: in all, or relative to the other library."""

Values = tuple[str, str, str]


def _ours(sample: Sample) -> Values:
    page = extract(sample.body, sample.url)
    return page.title, page.author, page.date


def _other(sample: Sample) -> Values:
    from trafilatura import extract_metadata

    found = extract_metadata(sample.body, default_url=sample.url)
    if found is None:
        return "", "", ""
    return found.title or "", (found.author or "").replace(";", ","), found.date or ""


READERS: dict[str, Callable[[Sample], Values]] = {OURS: _ours, OTHER: _other}


def fold(value: str) -> str:
    """Return a value in small letters, with white space as single blanks."""
    return " ".join(value.lower().split())


def addends(
    found: Sequence[str], marked: Sequence[str]
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return for each page: hit, missed, wrong."""
    rows = []
    for one, other in zip(map(fold, found), map(fold, marked), strict=True):
        hit = bool(one) and one == other
        rows.append((hit, bool(other) and not hit, bool(one) and not hit))
    return np.array(rows, dtype=np.float64).reshape(-1, 3)


def main(arguments: list[str]) -> int:
    """Measure and print; return 1 if a required figure is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.extract.metadata", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    given = parser.parse_args(arguments)
    every = [sample for folder in given.folders for sample in read(folder)]
    samples = [sample for sample in every if sample.text is not None]
    sites = [sample.site for sample in samples]
    record = Record("extract-metadata", "Titles, authors and dates", False, packages=(OTHER,))
    means: dict[tuple[str, str], float] = {}
    rows = []
    for name, reader in READERS.items():
        cells = [name]
        for place, values in enumerate(zip(*map(reader, samples), strict=True)):
            field = FIELDS[place]
            scored = addends(values, [getattr(sample, field) for sample in samples])
            mean, low, high = intervals.interval(scored, sites, intervals.snippet_f1)
            means[name, field] = mean
            cells.append(f"{mean:.3f} ({low:.3f}–{high:.3f})")
        rows.append(cells)
    record.table(f"F1 over {len(samples)} pages, and intervals of 95 %", ["", *FIELDS], rows)
    record.finish()
    short = [field for field, least in _LEAST.items() if means[OURS, field] < least]
    short += [
        field for field, less in _BEHIND.items() if means[OURS, field] < means[OTHER, field] + less
    ]
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
