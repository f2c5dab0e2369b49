"""Tables, figures and plots of the runs of ``bench.faults.away``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.faults.away_figures import EVERY_SECONDS, cpu_ms
from bench.faults.away_runs import OURS, PARTS, RUNS
from bench.rig.record import Cell, Record, draw
from bench.rig.resident import ends


def grown(found: Mapping[str, Any], part: str) -> tuple[float, float]:
    """Return the MB of a part when the node went away, and before it was back."""
    times = found["times"]
    sizes = ends(found["memory"], part, times["away"], times["back"])
    assert sizes is not None, f"{part} had no process"
    return sizes


def report(record: Record, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Add tables, figures and plots of the runs."""
    rates: list[list[Cell]] = []
    rest: list[list[Cell]] = []
    memory: list[list[Cell]] = []
    lost, growth = 0, 0.0
    for name, one in found.items():
        what = RUNS[name].what
        times = one["times"]
        ratios = [one["ratio"], one["worst"], one["ratio_all"]]
        rates.append(
            [what, times["back"] - times["away"], one["before"], one["away"], *ratios, *cpu_ms(one)]
        )
        gone = one["known_to_store"] - one["known_to_queue"]
        lost = max(lost, abs(gone))
        rest.append(
            [
                what,
                one["share_of_links"],
                times["paid"] - times["back"],
                one["first_after"],
                one["gone_after"] / one["gone_before"],
                one["known_to_store"],
                gone,
                one["twice"],
            ]
        )
        for part in PARTS:
            first, last = grown(one, part)
            if part in OURS:
                growth = max(growth, last - first)
            memory.append([what, part, first, last, last - first])
        record.figure(f"{name}_ratio", one["ratio_all" if name == "busy" else "ratio"])
        record.runs(name, dict(one))
    record.table(
        "Pages a second while one of two nodes is away",
        [
            "away",
            "for s",
            "before",
            "away",
            "ratio",
            "worst 5 s",
            "all hosts: ratio",
            "CPU ms a page: before",
            "while away",
        ],
        rates,
    )
    record.table(
        "When it is back",
        ["away", "links there", "all given after s", "first page after s",
         "pages/s ÷ before", "URLs by the store", "of them lost", "fetched twice"],
        rest,
    )  # fmt: skip
    record.table("Memory while it is away, MB", ["away", "of", "first", "last", "growth"], memory)
    record.figure("lost", lost)
    record.figure("growth_mb", growth)
    _plot(record, found)


def _plot(record: Record, found: Mapping[str, Mapping[str, Any]]) -> None:
    figure = draw(8, 2.6 * len(found))
    for row, (name, one) in enumerate(found.items()):
        times = one["times"]
        axes = figure.add_subplot(len(found), 2, 2 * row + 1)
        for what, colour in (("stays", "tab:green"), ("goes", "tab:red")):
            steps = one["steps"][what]
            seconds = [EVERY_SECONDS * number for number in range(len(steps))]
            axes.plot(seconds, steps, color=colour, label=f"hosts of the node that {what}")
        axes.set(xlabel="seconds", ylabel="pages/s", title=RUNS[name].what, ylim=(0, None))
        axes.legend(fontsize=6)
        beside = figure.add_subplot(len(found), 2, 2 * row + 2)
        for part in PARTS:
            points = [(at - times["began"], mb[part]) for at, mb in one["memory"] if part in mb]
            beside.plot(*zip(*points, strict=True), label=part)
        beside.set(xlabel="seconds", ylabel="resident MB", title="memory", ylim=(0, None))
        beside.legend(fontsize=6)
        for each in (axes, beside):
            for moment in ("away", "back"):
                each.axvline(times[moment] - times["began"], color="grey", linewidth=0.7)
    record.plot("rate", figure, "The node is away between the two vertical lines")
