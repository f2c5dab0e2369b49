"""Source A's three experiments: greenlets and threads under the same crawler.

``python -m bench.greenlets_vs_threads [--short]``. The processes are ``bench.model_process``, once
with gevent and once with ``bench.on_threads`` in its place; all else is the same code. Runs of the
two take turns.

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
from pathlib import Path
from typing import IO, Any

from bench import namespace
from bench.record import Record, draw, spread
from bench.web import Spec, Web
from bench.web import host as host_of
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
SHOWN = (10, 50, 100, 200, 300, 500, 1000)
"""Concurrencies that the table has; the plot has all."""
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
        self._system.start_broker()
        self._system.crawl([self.web.url(0)], name="bench", scope="any")
        return self

    def __exit__(self, *_: object) -> None:
        self._system.stop()
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
            [sys.executable, "-m", "bench.model_process", model, str(path)],
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
    points = [0, 1000] if short else [0, 100, 300, 500, 750, 1000]
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
                side_by_side(kinds, [*range(400, 1001, 100)])
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
        command = [sys.executable, "-m", "bench.greenlets_vs_threads", "--network"]
        shown = namespace.run_inside(command + (["--short"] if short else []))
        return {"shaped_by": "tc tbf", **json.loads(shown)}
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


def _plots(record: Record, found: dict[str, Any]) -> None:
    """The three plots."""
    colours = {"greenlets": "tab:green", "threads": "tab:red"}
    figure = draw(7, 4)
    axes = figure.subplots()
    for model in MODELS:
        rows = [row for row in found["memory"] if row["model"] == model]
        counts = [row["concurrency"] for row in rows]
        for key, style, word in (("rss_mb", "-o", "resident"), ("pss_mb", "--s", "proportional")):
            sizes = [statistics.median(row[key]) for row in rows]
            label = f"{model}, {word}"
            axes.plot(counts, sizes, style, color=colours[model], label=label, markersize=4)
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
            axes.plot(counts, ratios, style, color=colours[model], label=label, markersize=3)
    axes.axvline(SOURCE_PARTING, color="grey", linestyle=":", label="source: curves part here")
    axes.set(xlabel="units", ylabel="ideal ÷ actual time")
    axes.legend(fontsize=8)
    record.plot(
        "overhead", figure, "Ideal over actual time of a sleep; the source's curves part at 100"
    )

    figure = draw(7, 4)
    axes = figure.subplots()
    net = found["network"]
    times = [net["period_seconds"] * (i + 1) for i in range(PERIODS)]
    for model in MODELS:
        middle = _median_run(net["alone"][model])
        axes.plot(times, [n / 1e6 for n in middle], "-o", color=colours[model], label=model)
        rate = SOURCE[model] / SOURCE_SECONDS
        curve = [rate * at / 1e6 for at in times]
        axes.plot(times, curve, ":", color=colours[model], label=f"{model}, the source's rate")
    link = [net["link_bits"] / 8 * at / 1e6 for at in times]
    axes.plot(times, link, color="grey", linewidth=0.8, label="the link")
    axes.set(xlabel="seconds", ylabel="MB of pages", ylim=(0, None))
    axes.legend(fontsize=8)
    record.plot(
        "network", figure, "Pages over a link of 10 Mbit/s, sums by period, each model alone"
    )


def _median_run(runs: list[list[int]]) -> list[int]:
    return sorted(runs, key=lambda sums: sums[-1])[len(runs) // 2]


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
    totals = {model: _median_run(runs)[-1] for model, runs in net["alone"].items()}
    shares = [
        (
            model,
            spread([share_of_link(sums, period, bits) for sums in net["alone"][model]]),
            round(SOURCE[model] * 8 / SOURCE_SECONDS / LINK_BITS, 3),
            spread(net["cpu_seconds"][model]),
        )
        for model in MODELS
    ]
    columns = ("model", "of the link, as pages", "of the link, the source", "CPU, s")
    record.table(f"A link of 10 Mbit/s, shaped by {net['shaped_by']}", columns, shares)
    both = net["together"]
    more = (totals["greenlets"] / totals["threads"] - 1) * 100
    record.figure("more_data_percent", more)
    record.figure("share_when_together", both["greenlets"][-1] / sum(s[-1] for s in both.values()))
    for row in found["memory"]:
        record.figure(
            f"rss_mb_{row['model']}_{row['concurrency']}", statistics.median(row["rss_mb"])
        )
    for row in found["overhead"]["rows"]:
        name = f"{row['model']}_{row['concurrency']}{'_parse' if row['parse'] else ''}"
        if row["concurrency"] in SHOWN:
            record.figure(f"ratio_{name}", statistics.median(row["ratio"]))
    record.note(
        f"Source A saw greenlets bring 22.8 % more data over such a link, and threads fall behind"
        f" in overhead from {SOURCE_PARTING} units on. Here greenlets brought {more:+.1f} %: "
        + (
            "the threads of today fill such a link as well."
            if abs(more) < 5
            else "the same order as the source's."
        )
    )


def _exact(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3f} ({min(values):.3f}–{max(values):.3f})"


def run(short: bool) -> None:
    """All three experiments; writes the result and the plots."""
    record = Record(NAME, "Greenlets and threads under the same crawler", short)
    record.note(
        "Both processes run the crawler's own modules: robots.txt, download, reading, link checker,"
        " writer, SQLite, Redis. Under threads each name of gevent stands for its twin of the"
        " standard library (`bench/on_threads.py`). In the second experiment a page is not stored."
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
