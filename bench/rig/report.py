"""The output of a benchmark: figures, and claims that hold or not; stored in bench/results/."""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support import oracle

RESULTS = Path(__file__).parents[1] / "results"


class Report:
    """Collects figures and claims of one benchmark."""

    def __init__(self, name: str, title: str, results: Path = RESULTS) -> None:
        self.name = name
        self._results = results
        self.figures: dict[str, Any] = {}
        self.claims: list[dict[str, Any]] = []
        self._began = time.monotonic()
        print(f"\n== {title}", flush=True)

    def figure(self, what: str, value: Any, unit: str = "") -> None:
        """Print and store one measured value."""
        self.figures[f"{what} [{unit}]" if unit else what] = value
        shown = f"{value:,.3f}" if isinstance(value, float) else f"{value}"
        print(f"   {what}: {shown} {unit}".rstrip(), flush=True)

    def row(self, what: str, **columns: float | int | str) -> None:
        """Print and store several values that were measured together; a column's name has its
        unit."""
        self.figures[what] = {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in columns.items()
        }
        shown = [f"{name.replace('_', ' ')} {_shown(value)}" for name, value in columns.items()]
        print(f"   {what}: {', '.join(shown)}", flush=True)

    def claim(self, text: str, holds: bool, findings: str = "") -> None:
        """Add a claim, with findings against it."""
        self.claims.append({"claim": text, "holds": holds, "findings": findings})
        print(f"   {'ok  ' if holds else 'FAIL'} {text}", flush=True)
        if findings:
            print("        " + findings.replace("\n", "\n        "), flush=True)

    def none(self, text: str, findings: list[str]) -> None:
        """Add a claim that holds if there are no findings against it."""
        self.claim(text, not findings, oracle.shown(findings))

    def finish(self) -> int:
        """Write the JSON; return the exit code: 0 if there were claims and all hold."""
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
        write_json(path, record)
        print(f"== {'holds' if holds else 'DOES NOT HOLD'}; {path}", flush=True)
        return 0 if holds else 1


_SCALAR = r'(?:"(?:[^"\\]|\\.)*"|[^\s"\[\]{},]+)'
_LIST = re.compile(rf"\[\n\s*({_SCALAR}(?:,\n\s*{_SCALAR})*)\n\s*\]")


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record; a list of numbers or texts is on one line."""
    text = json.dumps(record, indent=2, ensure_ascii=False)
    path.write_text(_LIST.sub(_one_line, text) + "\n")


def _one_line(found: re.Match[str]) -> str:
    return f"[{' '.join(line.strip() for line in found[1].split(chr(10)))}]"


def _shown(value: float | int | str) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else value
