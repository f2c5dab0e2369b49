"""The table of guards matches the code, and the command tells a failed test from code that broke
down."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter

import pytest

from tests.guards.__main__ import breakdown
from tests.guards.table import HERE, KINDS, MACHINES, ROOT, Guard, Stale, guards


@pytest.mark.parametrize("guard", guards(), ids=lambda guard: guard.id)
def test_the_code_of_each_guard_occurs_where_the_table_says(guard: Guard) -> None:
    place = ROOT / guard.file
    text = place.read_text()
    without = guard.taken_out(text)
    assert without != text
    if place.suffix == ".py":
        ast.parse(without)


def test_each_guard_has_an_id_of_its_own() -> None:
    ids = [name for kind in KINDS for name in tomllib.loads((HERE / f"{kind}.toml").read_text())]
    assert max(Counter(ids).values()) == 1


def test_every_test_that_the_table_of_guards_names_exists() -> None:
    for name in {name for guard in guards() for name in guard.found_by} - set(MACHINES):
        path, _, function = name.partition("::")
        tree = ast.parse((ROOT / path).read_text())
        found = {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        assert function.partition("::")[0] in found, name
    for module in MACHINES.values():
        assert "\ndef run_machine(" in (ROOT / f"{module.replace('.', '/')}.py").read_text()


def test_changed_code_makes_the_table_of_guards_stale() -> None:
    guard = Guard("X1", "nothing", "a.py", (("old", "new"),), ("duties",))
    assert guard.taken_out("an old one") == "an new one"
    for text in ("none", "old and old"):
        with pytest.raises(Stale, match="X1"):
            guard.taken_out(text)


def test_an_error_other_than_a_failed_assertion_counts_as_a_breakdown() -> None:
    assert breakdown("one\n12:00 NameError: name 'x' is not defined\nred") == (
        "NameError: name 'x' is not defined"
    )
    assert breakdown("one\nAssertionError: two hold upkeep") == ""
