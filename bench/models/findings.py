"""Results of the three experiments, and those of a published study: words, tables and plots."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import Any

from bench.models.experiments import LINK_BITS, PERIODS
from bench.models.model_rig import MODELS
from bench.rig.record import Record, draw, shown, spread

SOURCE = {"greenlets": 2.10e9, "threads": 1.71e9}
"""Bytes in 30 minutes over 10 Mbit/s; experiment 3 of the study."""
SOURCE_SECONDS = 1800
COLOURS = {"greenlets": "tab:green", "threads": "tab:red"}
AHEAD = 0.01
"""Share of the time by which the curves of experiment 2 must differ to count as parted."""
SHOWN = (10, 50, 100, 200, 300, 500, 1000)
"""Concurrencies in the table; the plot has all."""
SOURCE_MORE = 22.8
"""In the study, greenlets transferred this many percent more data than threads."""
SOURCE_PARTING = 100
"""Concurrency from which on the curves of the study's experiment 2 part."""


def share_of_link(sums: Sequence[int], period: float, bits: int) -> float:
    """Return the share of the link's capacity that arrived as bodies of answers."""
    return sums[-1] * 8 / (bits * period * len(sums))


def parting(rows: Sequence[dict[str, Any]], parse: bool) -> int | None:
    """Return from how many units on greenlets are ahead by more than :data:`AHEAD`; None: never."""
    ratios: dict[int, dict[str, float]] = {}
    for row in rows:
        if row["parse"] == parse:
            ratio = statistics.median(row["ratio"])
            ratios.setdefault(row["concurrency"], {})[row["model"]] = ratio
    found = None
    for count in sorted(ratios, reverse=True):
        if ratios[count]["greenlets"] - ratios[count]["threads"] <= AHEAD:
            break
        found = count
    return found


def beside_the_source(found: dict[str, Any]) -> str:
    """Return a text about the study's three findings in these results."""
    plain, read = (parting(found["overhead"]["rows"], parse) for parse in (False, True))
    later = "later than in the study" if (plain or inf) > SOURCE_PARTING else "as in the study"
    if plain is None:
        later = "unlike in the study"
    more = _more_data(found["network"])
    if more < -1:
        link = "here threads bring more, unlike in the study"
    elif more < 5:
        link = "threads now fill such a link as well, unlike in the study"
    elif more < SOURCE_MORE * 0.75:
        link = "threads now do better than in the study"
    else:
        link = "as in the study"
    greenlets, threads = (_kb_a_unit(found["memory"], model) for model in MODELS)
    return (
        "A published study made the same three experiments. Memory: a request under way takes"
        f" {shown(greenlets)} KB with greenlets and {shown(threads)} KB with threads, including the"
        " pages in hand and what the process remembers of them. Overhead: in the study greenlets"
        f" are faster from {SOURCE_PARTING} units on; here they are ahead by more than"
        f" {AHEAD * 100:g} % of the time {_from(plain)}, and with a page read {_from(read)},"
        f" {later}. Network: in the study greenlets brought {SOURCE_MORE} % more data over such a"
        f" link; here it is {more:+.1f} %: {link}."
    )


def _from(count: int | None) -> str:
    return "nowhere" if count is None else f"from {count} on"


def _kb_a_unit(rows: Sequence[dict[str, Any]], model: str) -> float:
    sizes = {
        row["concurrency"]: statistics.median(row["rss_mb"])
        for row in rows
        if row["model"] == model
    }
    most = max(sizes)
    return (sizes[most] - sizes[0]) * 1000 / most


def _more_data(net: dict[str, Any]) -> float:
    """Return by how many percent greenlets transferred more than threads.

    Each model runs alone, and its median run counts.
    """
    greenlets, threads = (_median_run(net["alone"][model])[-1] for model in MODELS)
    return (greenlets / threads - 1) * 100


def _median_run(runs: list[list[int]]) -> list[int]:
    return sorted(runs, key=lambda sums: sums[-1])[len(runs) // 2]


def plots(record: Record, found: dict[str, Any]) -> None:
    """Add a figure for each experiment."""
    figure = draw(7, 4)
    axes = figure.subplots()
    for model in MODELS:
        rows = [row for row in found["memory"] if row["model"] == model]
        counts = [row["concurrency"] for row in rows]
        for key, style, word in (("rss_mb", "-o", "resident"), ("pss_mb", "--s", "proportional")):
            sizes = [statistics.median(row[key]) for row in rows]
            label = f"{model}, {word}"
            axes.plot(counts, sizes, style, color=COLOURS[model], label=label, markersize=4)
    axes.set(xlabel="requests under way", ylabel="MB", ylim=(0, None))
    axes.legend()
    record.plot("memory", figure, "Memory of the whole process against requests under way")

    figure = draw(7, 4)
    axes = figure.subplots()
    for model in MODELS:
        for parse, style in ((False, "-o"), (True, "--s")):
            rows = [r for r in found["overhead"]["rows"] if r["model"] == model]
            rows = [row for row in rows if row["parse"] == parse]
            counts = [row["concurrency"] for row in rows]
            ratios = [statistics.median(row["ratio"]) for row in rows]
            label = f"{model}{', with a page read' if parse else ''}"
            axes.plot(counts, ratios, style, color=COLOURS[model], label=label, markersize=3)
    axes.axvline(SOURCE_PARTING, color="grey", linestyle=":", label="source: curves part here")
    axes.set(xlabel="units", ylabel="ideal ÷ actual time")
    axes.legend(fontsize=8)
    record.plot(
        "overhead", figure, "Ideal over actual time of a sleep; in the study the curves part at 100"
    )
    _plot_network(record, found["network"])


def _plot_network(record: Record, net: dict[str, Any]) -> None:
    """Plot the data of each period, and their sums, beside the same at the rate of the source."""
    period = net["period_seconds"]
    figure = draw(10, 4)
    each, sums = figure.subplots(1, 2)
    times = [period * (i + 1) for i in range(PERIODS)]
    for index, model in enumerate(MODELS):
        middle = [n / 1e6 for n in _median_run(net["alone"][model])]
        parts = [after - before for before, after in pairwise([0.0, *middle])]
        places = [at + (index - 1) * period * 0.4 for at in times]
        colour = COLOURS[model]
        each.bar(places, parts, period * 0.4, align="edge", color=colour, label=model)
        sums.plot(times, middle, "-o", color=colour, label=model, markersize=4)
        rate = SOURCE[model] / SOURCE_SECONDS / 1e6
        label = f"{model}, the source's rate"
        each.axhline(rate * period, color=colour, linestyle=":", label=label)
        sums.plot(times, [rate * at for at in times], ":", color=colour, label=label)
    link = net["link_bits"] / 8 / 1e6
    each.axhline(link * period, color="grey", linewidth=0.8, label="the link")
    sums.plot(times, [link * at for at in times], color="grey", linewidth=0.8, label="the link")
    each.set(xlabel="seconds", ylabel="MB of pages in a period", ylim=(0, link * period * 1.9))
    sums.set(xlabel="seconds", ylabel="MB of pages in all", ylim=(0, None))
    for axes in (each, sums):
        axes.legend(fontsize=8)
    record.plot("network", figure, "Pages over a link of 10 Mbit/s, 60 at once, each model alone")


def tables(record: Record, found: dict[str, Any]) -> None:
    """Add tables and figures."""
    sizes = [
        (r["model"], r["concurrency"], spread(r["rss_mb"]), spread(r["pss_mb"]))
        for r in found["memory"]
    ]
    columns = ("model", "requests under way", "RSS, MB", "PSS, MB")
    record.table("Memory of the process", columns, sizes)
    ratios = [
        (
            r["model"],
            "yes" if r["parse"] else "no",
            r["concurrency"],
            _exact(r["ratio"]),
            spread(r["cpu_us"]),
        )
        for r in found["overhead"]["rows"]
        if r["concurrency"] in SHOWN
    ]
    columns = ("model", "page read", "units", "ideal ÷ actual", "CPU a unit, µs")
    record.table(f"A sleep of {found['overhead']['sleep_seconds']:g} s", columns, ratios)
    net = found["network"]
    period, bits = net["period_seconds"], net["link_bits"]
    shares = [
        (
            model,
            spread([share_of_link(sums, period, bits) for sums in net["alone"][model]]),
            round(SOURCE[model] * 8 / SOURCE_SECONDS / LINK_BITS, 3),
            share_of_link(net["together"][model], period, bits),
            spread(net["cpu_seconds"][model]),
        )
        for model in MODELS
    ]
    columns = (
        "model",
        "of the link, as pages, alone",
        "of the link, in the study",
        "both at once",
        "CPU, s, alone",
    )
    record.table(f"A link of 10 Mbit/s, shaped by {net['shaped_by']}", columns, shares)
    both = net["together"]
    record.figure("more_data_percent", _more_data(net))
    record.figure("share_when_together", both["greenlets"][-1] / sum(s[-1] for s in both.values()))
    for row in found["memory"]:
        record.figure(
            f"rss_mb_{row['model']}_{row['concurrency']}", statistics.median(row["rss_mb"])
        )
    for model in MODELS:
        record.figure(f"kb_a_unit_{model}", _kb_a_unit(found["memory"], model))
    for row in found["overhead"]["rows"]:
        name = f"{row['model']}_{row['concurrency']}{'_parse' if row['parse'] else ''}"
        if row["concurrency"] in SHOWN:
            record.figure(f"ratio_{name}", statistics.median(row["ratio"]))
    record.note(beside_the_source(found))
    late = found["overhead"]["late_seconds"]
    if late:
        record.note(
            f"In the second experiment a point began up to {late:.1f} s late, since the one before"
            " took so long: then processes may have worked at the same time."
        )


def _exact(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3f} ({min(values):.3f}–{max(values):.3f})"
