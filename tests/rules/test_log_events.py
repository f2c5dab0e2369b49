"""Events in logs have one form: what it is about, and a past participle.

``child_started``, ``orders_not_read``: words in lower case, joined by underscores. "not" may stand
before the participle, and an adverb that belongs to it after it: ``duty_given_up``. Events that the
rules of Prometheus and docs/operations.md send people to look for are those of the code.
"""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.support.checkout import ROOT

FOLDERS = ("schema", "store", "broker", "logger", "worker", "monitor", "cli")
METHODS = {"debug", "info", "warning", "error", "exception", "critical"}
IRREGULAR = (
    "begun", "chosen", "cut", "done", "forgotten", "found", "given", "heard", "held", "kept",
    "left", "lost", "read", "sent", "set", "shut", "taken", "told", "withdrawn", "written",
)  # fmt: skip
FORM = re.compile(
    rf"[a-z0-9]+(_[a-z0-9]+)*?(_not)?_([a-z]+ed|{'|'.join(IRREGULAR)})"
    r"(_(again|off|out|up))?"
)
NOT_A_PARTICIPLE = ("need", "speed", "feed", "seed")


def events(source: str) -> list[str]:
    """Return the literal events of each call of a logger, and of each Trouble and its end."""
    found = []
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call):
            continue
        if ast.unparse(call.func) == "Trouble":
            named = call.args[1:3]
        elif isinstance(call.func, ast.Attribute) and _is_log(call.func):
            named = call.args[:1]
        else:
            continue
        found += [event for one in named for event in _literals(one)]
    return found


def _literals(event: ast.expr) -> list[str]:
    """Return the texts that an expression may have; what is put into an f-string is a word."""
    if isinstance(event, ast.IfExp):
        return _literals(event.body) + _literals(event.orelse)
    if isinstance(event, ast.JoinedStr):
        parts = [next(iter(_literals(part)), "x") for part in event.values]
        return ["".join(parts)]
    known = isinstance(event, ast.Constant) and isinstance(event.value, str)
    return [str(ast.literal_eval(event))] if known else []


def _is_log(function: ast.Attribute) -> bool:
    """Return whether ``function`` is a method of a logger: ``log.info``,
    ``log.logger("broker").info``."""
    owner = function.value
    if isinstance(owner, ast.Call):
        owner = owner.func
    name = ast.unparse(owner).rpartition(".")[2]
    return function.attr in METHODS and name in ("log", "_log", "logger")


def has_form(event: str) -> bool:
    """Return whether an event has the form."""
    return FORM.fullmatch(event) is not None and not event.endswith(NOT_A_PARTICIPLE)


@pytest.mark.parametrize("folder", FOLDERS)
def test_events_in_logs_have_one_form(folder: str) -> None:
    wrong, seen = [], 0
    for path in sorted((ROOT / folder).rglob("*.py")):
        for event in events(path.read_text(encoding="utf-8")):
            seen += 1
            if not has_form(event):
                wrong.append(f"{path.relative_to(ROOT)}: {event!r}")
    assert not wrong
    assert seen or folder in ("schema", "cli")


def test_an_event_of_another_form_is_seen() -> None:
    assert events("self.log.warning('two words', a=1)\nlog.info('one')") == ["two words", "one"]
    for event in (
        "two words", "waiting", "stopped", "worker_up", "debts_wait", "Page_failed",
        "duty_passed_on", "clock_not_vouched_for",
    ):  # fmt: skip
        assert not has_form(event), event
    for event in ("page_failed", "orders_not_read", "duty_given_up", "clock_not_confirmed"):
        assert has_form(event), event


def test_the_two_events_of_a_trouble_are_seen() -> None:
    source = "Trouble(log, 'disk_full', 'disk_has_room', level='info')"
    assert events(source) == ["disk_full", "disk_has_room"]


# -- events that people are sent to look for


LOOKED_FOR = re.compile(r"Look for ([a-z]+(?:_[a-z]+)+) in")
SAID = re.compile(
    r"log(?:\s+of\s+the\s+coordinator)?\s+says\s+`([a-z_]+)`(?:\s+and\s+`([a-z_]+)`)?"
    r"|`([a-z_]+)`(?:\s+and\s+`([a-z_]+)`)?\s+in\s+a\s+broker's\s+log"
)


BY_A_FUNCTION = {"kept_login_not_used"}
"""Events that are handed to a function, which logs them."""


@cache
def emitted() -> set[str]:
    """Return all literal events of the code."""
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return {event for path in paths for event in events(path.read_text(encoding="utf-8"))}


def renamed() -> list[tuple[str, list[str]]]:
    """Return the rows of the table in docs/operations.md: the old event, the new ones."""
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    table = text.partition("### Events that were renamed")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split("|") for line in table.splitlines() if line.startswith("| `")]
    pairs = [pair for row in rows for pair in zip(row[::2], row[1::2], strict=True)]
    names = [[re.findall(r"`(\w+)`", cell) for cell in pair] for pair in pairs]
    return [(old, new) for (old,), new in names]


@pytest.mark.parametrize("name", ["rules.yml", "rules_test.yml"])
def test_events_that_alert_rules_name_are_those_of_the_code(name: str) -> None:
    rules = (ROOT / "deploy" / "prometheus" / name).read_text(encoding="utf-8")
    named = LOOKED_FOR.findall(rules)
    assert len(named) >= 2
    assert set(named) <= emitted()


def test_events_that_the_operations_page_names_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    named = {event for found in SAID.findall(text) for event in found if event}
    assert {"alert_ended", "debt_replay_ended", "disk_space_exhausted"} <= named
    assert named - emitted() == BY_A_FUNCTION


def test_the_table_of_renamed_events_has_former_and_present_ones() -> None:
    rows, known = renamed(), emitted()
    assert len(rows) > 90
    assert not known & {old for old, _ in rows}
    assert {event for _, new in rows for event in new} <= known
