"""Source A's three experiments: greenlets and threads under the same crawler.

``python -m bench.models.greenlets_vs_threads [--short]``. The processes are
``bench.models.model_process``, once with gevent and once with ``bench.models.on_threads`` in its
place; all else is the same code. Runs of the two take turns.

1. memory: RSS and PSS of the process while so many requests are under way, 0 … 1000;
2. overhead: the download is a sleep of 5 s; ideal over actual time, at 30 points up to 300 and on
   to 1000, with and without reading a page after it. While one process sleeps, others have their
   turn: one begins in the middle between two others, and so ends there, too;
3. network: pages of 20 KB over a link of 10 Mbit/s, 60 at once, ten equal periods: each alone, and
   both together.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import IO, Any

from bench.rig import namespace
from bench.rig.record import Record, draw, shown, spread
from bench.rig.web import Spec, Web
from bench.rig.web import host as host_of
from tests.support.system import ROOT, System

NAME = "greenlets-vs-threads"
MODELS = ("greenlets", "threads")
LINK_BITS = 10_000_000
AT_ONCE = 60
PERIODS = 10
RUNS = 3
SLEEP_SECONDS = 5.0
FILL_SECONDS = 3.0
"""Until the link is full and answers come evenly."""
SOURCE = {"greenlets": 2.10e9, "threads": 1.71e9}
"""Bytes in 30 minutes over 10 Mbit/s, source A, experiment 3."""
SOURCE_SECONDS = 1800
COLOURS = {"greenlets": "tab:green", "threads": "tab:red"}
AHEAD = 0.01
"""By how much of the time the curves of experiment 2 must differ to have parted."""
SHOWN = (10, 50, 100, 200, 300, 500, 1000)
"""Concurrencies that the table has; the plot has all."""
SOURCE_MORE = 22.8
"""Percent of data that its greenlets brought more than its threads."""
SOURCE_PARTING = 100
"""Concurrency from which on the source's curves of experiment 2 part."""


class Rig:
    """A broker with its Redis and a crawl, for model processes that share its data folder."""

    def __init__(self, folder: Path, spec: Spec) -> None:
        self.folder = folder
        self.web = Web(folder / "web", spec)
        self._system = System(folder / "system", log_level="warning")
        self._begun = 0

    def __enter__(self) -> Rig:
        self.web.__enter__()
        try:
            self._system.start_broker()
            self._system.crawl([self.web.url(0)], name="bench", scope="any")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._system.stop()
        finally:
            self.web.__exit__()

    def begin(self, model: str, what: str, **task: Any) -> subprocess.Popen[str]:
        """Start a model process; :func:`results` tells it when to begin."""
        addresses = [host_of(self.web.spec, n).name for n in range(self.web.spec.hosts)]
        self._begun += 1
        task |= {"what": what, "number": self._begun}
        task |= {"addresses": addresses, "port": self.web.port}
        path = self.folder / f"{self._begun}.json"
        path.write_text(json.dumps(task))
        variables = {
            "GREENCRAWL_DATA": str(self._system.folder / "data"),
            "GREENCRAWL_ALLOW_NETWORKS": "127.0.0.0/8",
            "GREENCRAWL_GREENLETS": str(self.web.spec.hosts),
        }
        return subprocess.Popen(
            [sys.executable, "-m", "bench.models.model_process", model, str(path)],
            cwd=ROOT,
            env=_clean_environment() | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


def _clean_environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("GREENCRAWL_")}


def results(
    processes: Sequence[subprocess.Popen[str]], *, wait: float = 0.0, apart: float = 0.0
) -> list[dict[str, Any]]:
    """What model processes found that begin ``wait`` seconds after all are built.

    The second begins ``apart`` seconds after the first, and so on. Raises RuntimeError when one
    failed.
    """
    try:
        for process in processes:
            if _out(process).readline() != "ready\n":
                raise RuntimeError(f"{process.args!r} did not come up")
        at = time.time() + wait
        for number, process in enumerate(processes):
            assert process.stdin is not None
            process.stdin.write(f"{at + number * apart}\n")
            process.stdin.flush()
        found = []
        for process in processes:
            output = _out(process).read()
            if process.wait(10):
                raise RuntimeError(f"{process.args!r} failed")
            found.append(json.loads(output))
        return found
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _out(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


# -- the experiments


def memory(short: bool) -> list[dict[str, Any]]:
    """Rows {model, concurrency, rss_mb, pss_mb}, the sizes each a list over the runs."""
    points = [0, 1000] if short else [0, 100, 300, 600, 1000]
    looks: dict[tuple[str, int], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        spec = Spec(hosts=1000, latency_ms=(2000, 2000))
        with Rig(Path(folder), spec) as rig:
            for _ in range(1 if short else RUNS):
                for count in points:
                    for model in MODELS:
                        begun = rig.begin(model, "memory", concurrency=count, seconds=2.0)
                        looks.setdefault((model, count), []).extend(results([begun]))
    rows = []
    for (model, count), found in sorted(looks.items()):
        sizes = {key: [look[key] for look in found] for key in ("rss_mb", "pss_mb")}
        rows.append({"model": model, "concurrency": count, **sizes})
    return rows


def overhead(short: bool) -> dict[str, Any]:
    """Rows {model, parse, concurrency, ratio, cpu_us}: ideal over actual time; CPU a unit."""
    kinds = [(model, parse) for parse in (False, True) for model in MODELS]
    found: dict[tuple[str, bool, int], list[dict[str, float]]] = {}
    late = 0.0

    def side_by_side(kinds: Sequence[tuple[str, bool]], points: list[int]) -> None:
        nonlocal late
        apart = SLEEP_SECONDS / (len(kinds) - 1.5)
        task = {
            "concurrency": points,
            "seconds": SLEEP_SECONDS,
            "period": apart * len(kinds),
            "page": str(page),
        }
        begun = [rig.begin(model, "sleep", parse=parse, **task) for model, parse in kinds]
        for kind, answer in zip(kinds, results(begun, wait=1.0, apart=apart), strict=True):
            for point in answer["points"]:
                found.setdefault((*kind, point["concurrency"]), []).append(point)
                late = max(late, point["late"])

    with tempfile.TemporaryDirectory() as folder, Rig(Path(folder), Spec(hosts=1000)) as rig:
        page = Path(folder) / "page.html"
        page.write_bytes(page_of(rig.web))
        if short:
            side_by_side(kinds, [100, 1000])
        else:
            side_by_side(kinds * RUNS, [*range(10, 301, 10)])
            for _ in range(RUNS):  # they work for longer, so fewer take turns
                side_by_side(kinds, [400, 500, 700, 1000])
    rows = []
    for (model, parse, count), points in sorted(found.items()):
        row: dict[str, Any] = {"model": model, "parse": parse, "concurrency": count}
        row["ratio"] = [round(SLEEP_SECONDS / point["seconds"], 4) for point in points]
        row["cpu_us"] = [round(point["cpu"] / count * 1e6, 1) for point in points]
        rows.append(row)
    return {"sleep_seconds": SLEEP_SECONDS, "late_seconds": late, "rows": rows}


def page_of(web: Web) -> bytes:
    """The first page of the first host."""
    with urllib.request.urlopen(web.url(0), timeout=10) as answer:
        content: bytes = answer.read()
        return content


def network(short: bool) -> dict[str, Any]:
    """Cumulative bytes by period and model; in a namespace with ``tc``, or by a shaping server."""
    if namespace.may_shape():
        command = [sys.executable, "-m", "bench.models.greenlets_vs_threads", "--network"]
        said = namespace.run_inside(command + (["--short"] if short else []))
        return {"shaped_by": "tc tbf", **json.loads(said)}
    return {"shaped_by": "the server", **_network(short, by_server=True)}


def _network(short: bool, *, by_server: bool) -> dict[str, Any]:
    """The third experiment; inside the namespace unless the server shapes."""
    seconds = 0.5 if short else 2.5
    alone: dict[str, list[list[int]]] = {model: [] for model in MODELS}
    cpu: dict[str, list[float]] = {model: [] for model in MODELS}
    spec = Spec(hosts=AT_ONCE, bits_per_second=LINK_BITS if by_server else 0)
    with tempfile.TemporaryDirectory() as folder, Rig(Path(folder), spec) as rig:
        if not by_server:
            namespace.shape(LINK_BITS)

        def together(models: Sequence[str]) -> dict[str, dict[str, Any]]:
            task = {"concurrency": AT_ONCE, "periods": PERIODS, "seconds": seconds}
            begun = [rig.begin(model, "link", **task) for model in models]
            return dict(zip(models, results(begun, wait=FILL_SECONDS), strict=True))

        for _ in range(1 if short else RUNS):
            for model in MODELS:
                found = together([model])[model]
                alone[model].append(found["bytes"])
                cpu[model].append(found["cpu"])
        both = {model: found["bytes"] for model, found in together(MODELS).items()}
    return {
        "link_bits": LINK_BITS,
        "period_seconds": seconds,
        "alone": alone,
        "together": both,
        "cpu_seconds": cpu,
    }


# -- what is shown


def share_of_link(sums: Sequence[int], period: float, bits: int) -> float:
    """Of what the link could have carried, the part that arrived as bodies of answers."""
    return sums[-1] * 8 / (bits * period * len(sums))


def parting(rows: Sequence[dict[str, Any]], parse: bool) -> int | None:
    """From how many units on greenlets are ahead by more than :data:`AHEAD`; None: never."""
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
    """What became of the source's three findings, in words."""
    plain, read = (parting(found["overhead"]["rows"], parse) for parse in (False, True))
    later = "later than it saw" if (plain or inf) > SOURCE_PARTING else "as it saw"
    if plain is None:
        later = "not as it saw"
    more = _more_data(found["network"])
    if more < -1:
        link = "here threads bring more, which the source's did not"
    elif more < 5:
        link = "the threads of today fill such a link as well, which the source's did not"
    elif more < SOURCE_MORE * 0.75:
        link = "the threads of today do better than the source's"
    else:
        link = "as the source saw"
    greenlets, threads = (_kb_a_unit(found["memory"], model) for model in MODELS)
    return (
        f"Beside source A. Memory: a request under way takes {shown(greenlets)} KB with greenlets"
        f" and {shown(threads)} KB with threads, the pages in hand and what the process remembers"
        f" of them included. Overhead: its curves part from {SOURCE_PARTING} units on; here"
        f" greenlets are ahead by more than {AHEAD * 100:g} % of the time {_from(plain)}, and with"
        f" a page read {_from(read)}: {later}. Network: its greenlets brought {SOURCE_MORE} % more"
        f" data over such a link; here it is {more:+.1f} %: {link}."
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
    """Percent that greenlets brought more than threads, by the median runs of each alone."""
    greenlets, threads = (_median_run(net["alone"][model])[-1] for model in MODELS)
    return (greenlets / threads - 1) * 100


def _median_run(runs: list[list[int]]) -> list[int]:
    return sorted(runs, key=lambda sums: sums[-1])[len(runs) // 2]


def _plots(record: Record, found: dict[str, Any]) -> None:
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
        "overhead", figure, "Ideal over actual time of a sleep; the source's curves part at 100"
    )
    _plot_network(record, found["network"])


def _plot_network(record: Record, net: dict[str, Any]) -> None:
    """Data of each period, and their sums, each beside what the source's rate would bring."""
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


def _tables(record: Record, found: dict[str, Any]) -> None:
    """Tables and figures."""
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
        "of the link, the source",
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


def run(short: bool) -> None:
    """All three experiments; writes the result and the plots."""
    record = Record(NAME, "Greenlets and threads under the same crawler", short)
    record.note(
        "Both processes run the crawler's own modules: robots.txt, download, reading, link checker,"
        " writer, SQLite, Redis. Under threads each name of gevent stands for its twin of the"
        " standard library (`bench/models/on_threads.py`). In the second experiment a page is not"
        " stored."
    )
    found: dict[str, Any] = {"memory": memory(short), "overhead": overhead(short)}
    found["network"] = network(short)
    for key, values in found.items():
        record.runs(key, values)
    _tables(record, found)
    _plots(record, found)
    record.finish()


def main(arguments: list[str]) -> int:
    short = "--short" in arguments
    if "--network" in arguments:
        namespace.bring_up()
        print(json.dumps(_network(short, by_server=False)))
        return 0
    run(short)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
