"""The line that starts one more worker elsewhere, and what forbids it."""

from __future__ import annotations

import shlex

import pytest

from greencrawl.cli.admin.nodes import join_line
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.settings import load

SHARED = {
    "GREENCRAWL_BROKER": "https://broker.example:8765",
    "GREENCRAWL_WORKER_TOKEN": "it's secret",
    "GREENCRAWL_REDIS": "redis://r1.example:6379,redis://r2.example:6379",
    "GREENCRAWL_STORE": "mysql://u:p@db.example/crawl",
    "GREENCRAWL_ADMIN_TOKEN": "not for workers",
    "GREENCRAWL_REQUEST_SECONDS": "30",
}


def test_the_line_has_what_a_worker_needs_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENCRAWL_BROKER", SHARED["GREENCRAWL_BROKER"])
    words = shlex.split(join_line(load(SHARED)))
    assert words[-3:] == ["python", "-m", "greencrawl.worker"]
    given = dict(word.split("=", 1) for word in words[:-3])
    assert given == {key: value for key, value in SHARED.items() if "ADMIN" not in key} | {
        "GREENCRAWL_REQUEST_SECONDS": "30.0"
    }
    settings = load(given)
    assert settings.worker_token == "it's secret"
    assert settings.redis == load(SHARED).redis


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("GREENCRAWL_BROKER", "http://127.0.0.1:8765"),
        ("GREENCRAWL_REDIS", ""),
        ("GREENCRAWL_REDIS", "redis://localhost:6379"),
        ("GREENCRAWL_STORE", "sqlite:////data/content.sqlite"),
        ("GREENCRAWL_STORE", "mysql://u:p@localhost/crawl"),
        ("GREENCRAWL_STORE", "mysql://u:p@db.example,127.0.0.1:3307/crawl"),
    ],
)
def test_what_only_this_machine_reaches_is_named(
    monkeypatch: pytest.MonkeyPatch, key: str, value: str
) -> None:
    changed = {**SHARED, key: value}
    monkeypatch.setenv("GREENCRAWL_BROKER", changed["GREENCRAWL_BROKER"])
    with pytest.raises(InvalidConfig) as raised:
        join_line(load(changed))
    (problem,) = raised.value.problems
    assert problem[0] == (key if key != "GREENCRAWL_BROKER" else "GREENCRAWL_BIND")
