"""The guards: pieces of code that keep a promise. If one is removed, a test has to fail.

There is one TOML file for each kind. A guard is a table under its id, with

* ``guards``: its place, and what it protects;
* ``file``, ``text``: the piece of code, or several pieces; each occurs once in the file;
* ``without``: the text that replaces it when the guard is removed;
* ``found_by``: what then fails: a state machine of :data:`MACHINES`, or a test by its pytest id.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KINDS = sorted(path.stem for path in HERE.glob("*.toml"))
MACHINES = {
    "duties": "tests.broker.frontier.coordination.test_duties_machine",
    "recovery": "tests.broker.frontier.recovery.test_recovery_machine",
    "frontier": "tests.broker.frontier.test_frontier_machine",
}
GREEN, RED, WRONG = 0, 10, 11
"""Exit codes of a trial."""


class Stale(Exception):
    """The table names code or a test that does not exist."""


@dataclass(frozen=True)
class Guard:
    id: str
    what: str
    file: str
    swaps: tuple[tuple[str, str], ...]
    """(text, text without the guard)"""
    found_by: tuple[str, ...]

    def taken_out(self, text: str) -> str:
        """Return the file's text without the guard. Raises Stale."""
        for old, new in self.swaps:
            if text.count(old) != 1:
                raise Stale(f"{self.id}: stands {text.count(old)} times in {self.file}: {old}")
            text = text.replace(old, new)
        return text


def guards() -> list[Guard]:
    return [guard for kind in KINDS for guard in _read(HERE / f"{kind}.toml")]


def _read(path: Path) -> list[Guard]:
    found = tomllib.loads(path.read_text())
    return [
        Guard(
            name, row["guards"], row["file"],
            tuple(zip(_several(row["text"]), _several(row["without"]), strict=True)),
            tuple(row["found_by"]),
        )
        for name, row in found.items()
    ]  # fmt: skip


def _several(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given
