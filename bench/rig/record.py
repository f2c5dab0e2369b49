"""The record of a benchmark: ``bench/results/<name>.json``, and plots in ``docs/benchmarks/``.

:mod:`bench.document` makes ``docs/benchmarks.md`` from these files alone, so a record has
everything that is shown: tables as rows of cells, names of plots with their captions, notes, and
under ``figures`` the numbers for the table of required figures. The raw values of each run are kept
too.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from bench.rig.report import RESULTS, write_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOTS = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"
OURS = ("gevent", "geventhttpclient", "lxml", "redis", "falcon", "msgspec", "zstandard")
"""Our own packages that determine the speed; every record names their versions."""

Cell = str | int | float


class Record:
    """One benchmark's figures, tables and plots, printed as they come; ``finish()`` writes them."""

    def __init__(
        self,
        name: str,
        title: str,
        short: bool,
        *,
        packages: Sequence[str] = (),
        results: Path = RESULTS,
        plots: Path = PLOTS,
    ) -> None:
        self._results = results
        self._plots = plots
        self._began = time.monotonic()
        self._kept: dict[str, Any] = {
            "name": name,
            "title": title,
            "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "short": short,
            "machine": machine(),
            "versions": versions((*OURS, *packages)),
            "notes": [],
            "figures": {},
            "tables": [],
            "plots": [],
            "runs": {},
        }
        print(f"\n== {title}{' (short)' if short else ''}", flush=True)

    def figure(self, key: str, value: float) -> None:
        """Add a number that the table of required figures looks up by ``key``."""
        self._kept["figures"][key] = value
        print(f"   {key}: {value:,.3f}", flush=True)

    def note(self, text: str) -> None:
        """Add a paragraph under the title."""
        self._kept["notes"].append(text)

    def runs(self, key: str, values: Any) -> None:
        """Add raw values, for later analyses; they are not shown."""
        self._kept["runs"][key] = values

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Add a table. Cells are shown as :func:`shown` says.

        Raises ValueError if a row has another length.
        """
        for row in rows:
            if len(row) != len(columns):
                raise ValueError(f"{title}: {len(columns)} columns, but a row of {len(row)}")
        cells = [[shown(cell) for cell in row] for row in rows]
        self._kept["tables"].append({"title": title, "columns": list(columns), "rows": cells})
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        print(f"\n   {title}")
        for line in (columns, *cells):
            padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            print(f"   {'  '.join(padded)}".rstrip(), flush=True)

    def plot(self, what: str, figure: Figure, caption: str) -> None:
        """Write ``docs/benchmarks/<name>-<what>.svg``; the same figure gives the same bytes."""
        import matplotlib

        file = f"{self._kept['name']}-{what}.svg"
        self._plots.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context({"svg.hashsalt": file, "svg.fonttype": "none"}):
            figure.savefig(
                self._plots / file, bbox_inches="tight", metadata={"Date": None, "Creator": None}
            )
        self._kept["plots"].append({"file": file, "caption": caption})

    def finish(self) -> Path:
        """Write the JSON file; return its path."""
        self._kept["seconds"] = round(time.monotonic() - self._began, 1)
        self._results.mkdir(exist_ok=True)
        path = self._results / f"{self._kept['name']}.json"
        write_json(path, self._kept)
        print(f"\n== {path.name} written after {self._kept['seconds']:.0f} s", flush=True)
        return path


def draw(width: float, height: float) -> Figure:
    """Return an empty figure of this many inches; parts are placed so that they do not overlap."""
    from matplotlib.figure import Figure  # only benchmarks have it, and its import is slow

    return Figure(figsize=(width, height), layout="constrained")


def shown(cell: Cell) -> str:
    """Return a cell as text: three significant digits below 1000, thousands separated above."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int) or abs(cell) >= 1000:
        return f"{cell:,.0f}"
    return f"{cell:.3g}" if abs(cell) < 100 else f"{cell:.0f}"


def spread(values: Sequence[float]) -> str:
    """Return ``median (least–most)`` as a cell; only the value if there is one."""
    middle = shown(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({shown(min(values))}–{shown(max(values))})"


def machine() -> dict[str, Any]:
    """Return processor, cores, memory (GB), kernel, and the present load average (5 min)."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load_average": round(os.getloadavg()[1], 2),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of Python, this project (commit), the servers on PATH, and ``packages``.

    Raises SystemExit saying what to do if one of the packages is not installed.
    """
    found = {"python": platform.python_version(), "greencrawl": _commit()}
    for server, argument in (("nginx", "-v"), ("redis-server", "--version")):
        if answer := _said([_program(server), argument]):
            number = re.search(r"\d+\.\d+\.\d+", answer)
            found[server] = number[0] if number else answer
    try:
        return found | {package: version(package) for package in packages}
    except PackageNotFoundError as error:
        raise SystemExit(f"{error.name} is missing: make setup-bench puts it into .venv") from None


def _program(name: str) -> str:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin") or name


def _commit() -> str:
    """Return the short commit, with a plus if the checkout has other changes; "" outside of git."""
    here = Path(__file__).parent
    commit = _said(["git", "rev-parse", "--short", "HEAD"], here)
    changed = _said(["git", "status", "--porcelain", "--untracked-files=no"], here)
    changed = "".join(x for x in changed.splitlines() if "results/" not in x and "docs/" not in x)
    return commit + ("+" if changed else "")


def _said(command: Sequence[str], folder: Path | None = None) -> str:
    """Return the output of a command, on either channel; "" if it fails or does not exist."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=10)
    except OSError:
        return ""
    return "" if done.returncode else (done.stdout + done.stderr).strip()
