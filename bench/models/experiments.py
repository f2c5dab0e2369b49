"""Three experiments, each for greenlets and for threads: memory, overhead, network."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.models.model_rig import MODELS, Rig, page_of, results
from bench.rig import namespace
from bench.rig.web import Spec

LINK_BITS = 10_000_000
AT_ONCE = 60
PERIODS = 10
RUNS = 3
SLEEP_SECONDS = 5.0
FILL_SECONDS = 3.0
"""Time until the link is full and answers come evenly."""


def memory(short: bool) -> list[dict[str, Any]]:
    """Return rows {model, concurrency, rss_mb, pss_mb}, the sizes each a list over the runs."""
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
    """Return rows {model, parse, concurrency, ratio, cpu_us}: ideal over actual time; CPU a
    unit."""
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
            for _ in range(RUNS):  # these take longer, so fewer run at a time
                side_by_side(kinds, [400, 500, 700, 1000])
    rows = []
    for (model, parse, count), points in sorted(found.items()):
        row: dict[str, Any] = {"model": model, "parse": parse, "concurrency": count}
        row["ratio"] = [round(SLEEP_SECONDS / point["seconds"], 4) for point in points]
        row["cpu_us"] = [round(point["cpu"] / count * 1e6, 1) for point in points]
        rows.append(row)
    return {"sleep_seconds": SLEEP_SECONDS, "late_seconds": late, "rows": rows}


def network(short: bool) -> dict[str, Any]:
    """Return cumulative bytes by period and model; in a namespace with ``tc``, or by a server with
    a set rate."""
    if namespace.may_shape():
        command = [sys.executable, "-m", "bench.models.greenlets_vs_threads", "--network"]
        said = namespace.run_inside(command + (["--short"] if short else []))
        return {"shaped_by": "tc tbf", **json.loads(said)}
    return {"shaped_by": "the server", **over_link(short, by_server=True)}


def over_link(short: bool, *, by_server: bool) -> dict[str, Any]:
    """Run the third experiment; inside the namespace unless the server sets the rate."""
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
