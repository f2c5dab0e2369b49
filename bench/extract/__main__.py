"""``python -m bench.extract FOLDER…``: main text by ours and by other libraries, and its costs.

FOLDERs are those that ``python -m greencrawl.worker.extract.train`` reads. Our texts are made by
cross-validation over sites, each page's by a model that has not seen its site; with ``--packaged``,
for pages that were not used in training, by the model of the package. CPU is measured in one
process on one core, from the bytes of a page to its text.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.extract import intervals, readers
from bench.rig.record import Record, draw
from greencrawl.worker.extract.main import main_text
from greencrawl.worker.extract.page import bound_parses
from greencrawl.worker.extract.text import read_text
from greencrawl.worker.extract.train.samples import SNIPPETS, Sample, read
from greencrawl.worker.extract.train.scores import Snippets, f1

ROUNDS = 3
"""How often our parts are timed; the least value counts."""


def main(arguments: list[str]) -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.extract", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--packaged", action="store_true", help="use the package's model")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="of the other libraries")
    given = parser.parse_args(arguments)
    samples = [sample for folder in given.folders for sample in read(folder)]
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    bound_parses()  # as a worker does
    record = Record("extract", "Main text beside other libraries", False, packages=readers.PACKAGES)
    chosen = {
        name: reader
        for name, reader in readers.OTHERS.items()
        if given.only is None or name in given.only
    }
    texts, millis = _timed(samples, {readers.OURS: readers.ours, **chosen})
    apart = _apart(samples)
    if not given.packaged:
        from greencrawl.worker.extract.train import fit

        rows = fit.rows_of(samples)
        texts[readers.OURS] = fit.cross_validated(rows, fit.Settings()).texts
    _tables(record, samples, texts, millis, apart)
    record.finish()
    return 0


def _timed(
    samples: Sequence[Sample], chosen: Mapping[str, readers.Reader]
) -> tuple[dict[str, list[str]], dict[str, list[float]]]:
    """Return texts and milliseconds of CPU by reader; if a reader fails at a page, it has no text
    there.

    Each page is read by all readers one after the other, so that other work on the machine affects
    all.
    """
    texts: dict[str, list[str]] = {name: [] for name in chosen}
    millis: dict[str, list[float]] = {name: [] for name in chosen}
    for reader in chosen.values():
        reader(samples[0].body)  # imports and compiling do not count
    for sample in samples:
        for name, reader in chosen.items():
            began = time.process_time_ns()
            try:
                text = reader(sample.body)
            except Exception as error:  # noqa: BLE001
                said = f"{sample.key}, {name}: {type(error).__name__}: {error}"
                print(f"   {said[:120]}", file=sys.stderr)
                text = ""
            millis[name].append((time.process_time_ns() - began) / 1e6)
            texts[name].append(text)
    return texts, millis


def _apart(samples: Sequence[Sample]) -> dict[str, list[float]]:
    """Return the CPU of ours in ms for decoding and parsing, for all text, and for main text."""
    apart: dict[str, list[float]] = {"parse": [], "all text": [], "main text": []}
    for sample in samples:
        least = [float("inf")] * len(apart)
        for _ in range(ROUNDS):
            at = [time.process_time_ns()]
            root = readers.root_of(sample.body)
            at.append(time.process_time_ns())
            if root is not None:
                read_text(root, sample.url)
                at.append(time.process_time_ns())
                main_text(root)
                at.append(time.process_time_ns())
                once = [(end - begin) / 1e6 for begin, end in pairwise(at)]
                least = [min(pair) for pair in zip(least, once, strict=True)]
        if least[0] < float("inf"):
            for part, value in zip(apart.values(), least, strict=True):
                part.append(value)
    return apart


def _tables(
    record: Record,
    samples: Sequence[Sample],
    texts: dict[str, list[str]],
    millis: dict[str, list[float]],
    apart: dict[str, list[float]],
) -> None:
    groups = _groups(samples)
    sites = [sample.site for sample in samples]
    values = {
        name: np.array([_addends(*one) for one in zip(samples, found, strict=True)])
        for name, found in texts.items()
    }
    rows, shown = [], {}
    for name, scored in values.items():
        cells: list[str | float] = [name]
        for group, chosen in groups.items():
            figure = intervals.snippet_f1 if group == SNIPPETS else intervals.mean
            part = scored[chosen] if group == SNIPPETS else scored[chosen, 3:]
            value, low, high = intervals.interval(part, _at(sites, chosen), figure)
            shown[name, group] = value, low, high
            cells.append(f"{value:.3f} ({low:.3f}–{high:.3f})")
        rows.append(cells)
    record.table("F1, and intervals of 95 % over sites", ["", *groups], rows)
    if SNIPPETS in groups:
        record.table("Snippets of articles", ["", "precision", "recall", "F1"], [
            [name, *(
                "{:.3f} ({:.3f}–{:.3f})".format(*intervals.interval(
                    scored[groups[SNIPPETS]], _at(sites, groups[SNIPPETS]), figure
                ))
                for figure in (intervals.precision, intervals.recall, intervals.snippet_f1)
            )]
            for name, scored in values.items()
        ])  # fmt: skip
    if readers.REFERENCE in texts:
        record.table(
            f"F1 of ours less that of {readers.REFERENCE}, on the same pages", ["", *groups],
            [["difference", *(
                "{:+.3f} ({:+.3f}–{:+.3f})".format(*_difference(
                    values[readers.OURS][chosen], values[readers.REFERENCE][chosen],
                    _at(sites, chosen), group == SNIPPETS,
                ))
                for group, chosen in groups.items()
            )]],
        )  # fmt: skip
    cost = [
        [name, *(float(np.mean(np.array(took)[chosen])) for chosen in groups.values())]
        for name, took in millis.items()
    ]
    record.table("CPU a page, ms, from bytes to text", ["", *groups], cost)
    record.table(
        "Ours, apart: CPU a page, ms", ["", "mean", "median", "99th percentile"],
        [[part, *(float(one) for one in (
            np.mean(took), np.median(took), np.percentile(took, 99)
        ))] for part, took in apart.items()],
    )  # fmt: skip
    _plot(record, shown, millis, groups)


def _groups(samples: Sequence[Sample]) -> dict[str, NDArray[np.int64]]:
    """Return the indexes of pages by kind; pages whose text is marked as a whole come first."""
    kinds = sorted({sample.kind for sample in samples} - {SNIPPETS})
    marked = {"all": [i for i, one in enumerate(samples) if one.kind != SNIPPETS]}
    places = marked | {
        kind: [i for i, one in enumerate(samples) if one.kind == kind]
        for kind in (*kinds, SNIPPETS)
    }
    return {group: np.array(found) for group, found in places.items() if found}


def _addends(sample: Sample, text: str) -> tuple[float, float, float, float, float]:
    """Return the addends of a page: hit, missed and wrong snippets; F1 over words, and 1."""
    snippets = Snippets()
    snippets.add(text, sample.present, sample.absent)
    score = 0.0 if sample.text is None else f1(text, sample.text)
    return snippets.hit, snippets.missed, snippets.wrong, score, 1.0


def _at(sites: Sequence[str], places: NDArray[np.int64]) -> list[str]:
    return [sites[place] for place in places]


def _difference(
    ours: NDArray[np.float64], other: NDArray[np.float64], sites: list[str], snippets: bool
) -> tuple[float, float, float]:
    if not snippets:
        both = np.column_stack([ours[:, 3] - other[:, 3], ours[:, 4]])
        return intervals.interval(both, sites, intervals.mean)
    return intervals.interval(
        np.hstack([ours[:, :3], other[:, :3]]), sites,
        lambda sums: intervals.snippet_f1(sums[:, :3]) - intervals.snippet_f1(sums[:, 3:]),
    )  # fmt: skip


def _plot(
    record: Record,
    shown: dict[tuple[str, str], tuple[float, float, float]],
    millis: dict[str, list[float]],
    groups: dict[str, NDArray[np.int64]],
) -> None:
    columns = 3
    lines = -(-len(groups) // columns)
    figure = draw(8, 1.9 * lines + 0.8)
    for place, (group, chosen) in enumerate(groups.items()):
        axes = figure.add_subplot(lines, columns, place + 1)
        for name, took in millis.items():
            value, low, high = shown[name, group]
            cost = float(np.mean(np.array(took)[chosen]))
            axes.errorbar(cost, value, [[value - low], [high - value]], fmt="o", label=name)
        axes.set_xscale("log")
        axes.set_xlim(0.5, 200)
        axes.set_xticks([1, 10, 100], ["1", "10", "100"])
        axes.set_ylim(0.2, 1)
        axes.set_title(group, fontsize=9)
        if place >= len(groups) - columns:
            axes.set_xlabel("CPU a page, ms")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.supylabel("F1")
    record.plot("f1", figure, "F1 and CPU a page, by kind of page")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
