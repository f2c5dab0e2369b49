"""What a show prints: figures, and claims that hold or do not; kept as JSON in bench/results/."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tests.support import oracle

RESULTS = Path(__file__).parent / "results"
PLOTS = Path(__file__).parents[1] / "docs" / "benchmarks"


def machine() -> dict[str, Any]:
    """What a figure was measured on. ``load`` is the load average of the last minute."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    models = [line.partition(":")[2].strip() for line in info.splitlines() if "model name" in line]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count(),
        "processor": models[0] if models else platform.machine(),
        "memory_gb": round(pages / 1e9, 1),
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 2),
    }


def versions(*packages: str) -> dict[str, str]:
    """Versions of Python and of the distributions named that are installed."""
    found = {"Python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def spread(values: Iterable[float], digits: int = 3) -> dict[str, float]:
    """Median, least and most of some runs, and how many they were."""
    known = sorted(values)
    return {
        "median": round(statistics.median(known), digits),
        "least": round(known[0], digits),
        "most": round(known[-1], digits),
        "runs": len(known),
    }


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; floats with three significant digits or none behind the point."""
    lines = [" | ".join(header), " | ".join("---" for _ in header)]
    lines += [" | ".join(_cell(value) for value in row) for row in rows]
    return "".join(f"| {line} |\n" for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def write_result(
    name: str, record: dict[str, Any], *, short: bool, packages: Sequence[str] = ()
) -> Path:
    """Write ``record`` to bench/results/NAME.json, with what it was measured on, when and how."""
    RESULTS.mkdir(exist_ok=True)
    head = {
        "name": name,
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "short": short,
        "machine": machine(),
        "versions": versions("gevent", "lxml", "redis", *packages),
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(head | record, indent=1, ensure_ascii=False) + "\n")
    print(f"== written: {path.relative_to(RESULTS.parents[1])}", flush=True)
    return path


def plot_path(name: str) -> Path:
    """Where the plot ``name`` goes, as SVG."""
    PLOTS.mkdir(parents=True, exist_ok=True)
    return PLOTS / f"{name}.svg"


class Report:
    """Collects figures and claims of one show."""

    def __init__(self, name: str, title: str, results: Path = RESULTS) -> None:
        self.name = name
        self._results = results
        self.figures: dict[str, Any] = {}
        self.claims: list[dict[str, Any]] = []
        self._began = time.monotonic()
        print(f"\n== {title}", flush=True)

    def figure(self, what: str, value: Any, unit: str = "") -> None:
        """Print and keep one measured value."""
        self.figures[f"{what} [{unit}]" if unit else what] = value
        shown = f"{value:,.3f}" if isinstance(value, float) else f"{value}"
        print(f"   {what}: {shown} {unit}".rstrip(), flush=True)

    def row(self, what: str, **columns: float | int | str) -> None:
        """Print and keep several values measured together; a column's name says its unit."""
        self.figures[what] = {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in columns.items()
        }
        shown = [f"{name.replace('_', ' ')} {_shown(value)}" for name, value in columns.items()]
        print(f"   {what}: {', '.join(shown)}", flush=True)

    def claim(self, text: str, holds: bool, findings: str = "") -> None:
        """State what must be so, with findings against it."""
        self.claims.append({"claim": text, "holds": holds, "findings": findings})
        print(f"   {'ok  ' if holds else 'FAIL'} {text}", flush=True)
        if findings:
            print("        " + findings.replace("\n", "\n        "), flush=True)

    def none(self, text: str, findings: list[str]) -> None:
        """A claim that holds if a judge found nothing against it."""
        self.claim(text, not findings, oracle.shown(findings))

    def finish(self) -> int:
        """Write the JSON; the exit code: 0 if there were claims and all hold."""
        holds = bool(self.claims) and all(claim["holds"] for claim in self.claims)
        self._results.mkdir(exist_ok=True)
        record = {
            "show": self.name,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
            "seconds": round(time.monotonic() - self._began, 1),
            "holds": holds,
            "claims": self.claims,
            "figures": self.figures,
        }
        path = self._results / f"{self.name}.json"
        path.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
        print(f"== {'holds' if holds else 'DOES NOT HOLD'}; {path}", flush=True)
        return 0 if holds else 1


def _shown(value: float | int | str) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else value
