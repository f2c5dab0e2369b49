"""Rules that help a reader: short folders, short modules, a docstring for each public name."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support.checkout import ROOT

FOLDERS = ("schema", "store", "broker", "logger", "worker", "monitor", "cli", "bench")
MOST_MODULES = 12
MOST_LINES = 400
LONGER = {
    "store/base.py",
    "store/mysql/store.py",
    "store/sqlite/store.py",
    "worker/extract/main/blocks.c",
    "worker/extract/speedups.c",
}
"""Each with its reason in docs/architecture.md."""

PATH = re.compile(
    rf"`((?:{'|'.join((*FOLDERS, 'tests', 'docs', 'deploy', 'examples'))})/[\w./-]+)`"
)


def modules(*kinds: str) -> list[Path]:
    """Return files of the folders, by the ends of their names, from the root."""
    return sorted(
        path.relative_to(ROOT)
        for folder in FOLDERS
        for kind in kinds
        for path in (ROOT / folder).rglob(f"*.{kind}")
        if "__pycache__" not in path.parts
    )


def undocumented(node: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[str]:
    """Return public classes, functions and methods that have no docstring."""
    for one in node.body:
        if not isinstance(one, (ast.ClassDef, ast.FunctionDef)) or one.name.startswith("_"):
            continue
        if ast.get_docstring(one) is None:
            yield prefix + one.name
        if isinstance(one, ast.ClassDef):
            yield from undocumented(one, f"{prefix}{one.name}.")


def test_each_public_name_has_a_docstring() -> None:
    wrong = []
    for path in modules("py"):
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        wrong += [f"{path}: {name}" for name in undocumented(tree)]
        if tree.body and ast.get_docstring(tree) is None:
            wrong.append(f"{path}: the module")
    assert wrong == []


def test_a_name_without_a_docstring_is_seen() -> None:
    source = "class A:\n    def b(self): ...\n    def _c(self): ...\ndef d():\n    'Text.'\n"
    assert list(undocumented(ast.parse(source))) == ["A", "A.b"]


def test_no_folder_has_more_than_a_dozen_modules() -> None:
    found = Counter(path.parent for path in modules("py", "lua") if path.name != "__init__.py")
    assert len(found) > 30
    assert {str(folder): n for folder, n in found.items() if n > MOST_MODULES} == {}


def test_every_long_module_has_a_reason_in_the_docs() -> None:
    lines = {
        str(path): len((ROOT / path).read_text(encoding="utf-8").splitlines())
        for path in modules("py", "lua", "c", "h")
    }
    assert {path for path, count in lines.items() if count > MOST_LINES} == LONGER
    reasons = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert all(f"`{path}`" in reasons for path in LONGER)


def test_files_that_the_docs_name_are_there() -> None:
    named, pages = Counter[str](), [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    missing = []
    for page in pages:
        for path in PATH.findall(page.read_text(encoding="utf-8")):
            named[path] += 1
            if not (ROOT / path).exists():
                missing.append(f"{page.relative_to(ROOT)}: {path}")
    assert missing == []
    assert len(named) > 100
