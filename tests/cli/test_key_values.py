"""KEY=VALUE arguments: their values, and the messages for wrong ones."""

from __future__ import annotations

from typing import Any

import click
import pytest

from greencrawl.cli import key_values
from greencrawl.schema.records import CrawlOptions, NodeOptions


@pytest.mark.parametrize(
    ("pairs", "found"),
    [
        (["greenlets=50", "paused=yes"], {"greenlets": 50, "paused": True}),
        (["drain=off", "requests-per-second=2.5"], {"drain": False, "requests_per_second": 2.5}),
        (["greenlets=", "log_level=debug"], {"greenlets": None, "log_level": "debug"}),
    ],
)
def test_values_of_an_order_are_read_by_the_types_of_its_fields(
    pairs: list[str], found: dict[str, Any]
) -> None:
    assert key_values.parsed(pairs, NodeOptions) == found


@pytest.mark.parametrize(
    ("pairs", "found"),
    [
        (["delay=2", "traps=on"], {"delay": 2.0, "traps": "on"}),
        (["exclude=a=b", "exclude=c"], {"exclude": ("a=b", "c")}),
        (['exclude=["a","b"]', "include="], {"exclude": ("a", "b"), "include": None}),
        (['recrawl={"every": "1d"}'], {"recrawl": {"mode": "period", "every": "1d", "depth": 0}}),
    ],
)
def test_options_of_a_crawl_are_single_values_lists_or_json(
    pairs: list[str], found: dict[str, Any]
) -> None:
    assert key_values.parsed(pairs, CrawlOptions) == found


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("greenlets", "KEY=VALUE"),
        ("speed=5", "one of: processes"),
        ("greenlets=many", "greenlets must be a whole number from 1 to 10,000, not 'many'"),
        ("greenlets=0", "greenlets must be a whole number from 1 to 10,000, not '0'"),
        ("requests-per-second=-1", "requests_per_second must be a number from 0 to 100,000"),
        ("paused=perhaps", "paused must be yes or no, not 'perhaps'"),
        ("log_level=loud", "log_level must be one of debug, error, info, warning, not 'loud'"),
        ("log_level={", "no JSON"),
    ],
)
def test_a_wrong_key_or_value_is_named(pair: str, said: str) -> None:
    with pytest.raises(click.UsageError, match=said):
        key_values.parsed([pair], NodeOptions)


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("max_pages=x", "max_pages must be a whole number from 0 on, not 'x'"),
        ("traps=maybe", "traps must be one of off, on, not 'maybe'"),
        ("hook=" + "a" * 300, "hook must be a text, from 0 to 256 characters long, not 'aa"),
        ("normalise=all", "each value of normalise must be one of empty, host-dot"),
        ('exclude=[""]', "each value of exclude must be a text, from 1 to 1,024 characters long"),
        ("exclude=[1]", "each value of exclude must be a text"),
        ("contact=\u00e9", "contact must be printable ASCII"),
        ("user_agent=a b", "user_agent must be a product token"),
        ("recrawl=daily", "recrawl must be a table"),
        ('recrawl={"every": "now"}', "recrawl.every must be a number of s, m, h, d or w"),
    ],
)
def test_the_message_for_a_wrong_value_says_which_values_the_option_has(
    pair: str, said: str
) -> None:
    with pytest.raises(click.UsageError) as error:
        key_values.parsed([pair], CrawlOptions)
    assert str(error.value).startswith(said)


def test_an_order_names_its_person_even_without_a_user_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "@" in key_values.person()

    def nobody() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert key_values.person().startswith("unknown@")
