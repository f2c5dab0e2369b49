"""The docs agree with the records."""

from __future__ import annotations

from pathlib import Path

import pytest

from greencrawl.cli import tables
from greencrawl.schema.settings import KEYS, load


@pytest.mark.parametrize(
    "file", [tables.CONFIGURATION, tables.POLITENESS, tables.AUTHENTICATION, tables.DISCOVERY]
)
def test_tables_of_the_docs_are_fresh(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert text == tables.filled(text), "stale: run `make docs`"


def test_env_example_is_fresh() -> None:
    said = tables.ENV_EXAMPLE.read_text(encoding="utf-8")
    assert said == tables.env_example(), "stale: run `make docs`"


def test_env_example_uncommented_is_accepted_and_changes_nothing() -> None:
    lines = [line[1:] for line in tables.env_example().splitlines() if line.startswith("#GREEN")]
    environ = dict(line.split("=", 1) for line in lines)
    assert len(environ) == len(KEYS) - len(tables.HIDDEN)
    assert load(environ) == load({})


def test_missing_markers_are_an_error() -> None:
    with pytest.raises(ValueError, match="markers"):
        tables.filled("# nothing here\n")
