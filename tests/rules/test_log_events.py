"""Events in logs have one form: words in lower case, joined by underscores."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.checkout import ROOT

FOLDERS = ("schema", "store", "broker", "logger", "worker", "monitor", "cli")
METHODS = {"debug", "info", "warning", "error", "exception", "critical"}
EVENT = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")


def events(source: str) -> list[str]:
    """Return the literal first argument of each call of a logger."""
    return [
        call.args[0].value
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in METHODS
        and ast.unparse(call.func.value).rpartition(".")[2] in ("log", "_log")
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_events_in_logs_have_one_form(folder: str) -> None:
    wrong, seen = [], 0
    for path in sorted((ROOT / folder).rglob("*.py")):
        for event in events(path.read_text(encoding="utf-8")):
            seen += 1
            if not EVENT.fullmatch(event):
                wrong.append(f"{path.relative_to(ROOT)}: {event!r}")
    assert not wrong
    assert seen or folder in ("schema", "cli")


def test_an_event_of_another_form_is_seen() -> None:
    assert events("self.log.warning('two words', a=1)\nlog.info('one')") == ["two words", "one"]
    assert not EVENT.fullmatch("two words")
