"""The forms in which people may write a time and statuses."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from greencrawl.cli.options import since, status
from greencrawl.schema.text.moments import since_ms, status_range

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2h", NOW - 7_200_000),
        ("3d", NOW - 3 * 86_400_000),
        ("90s", NOW - 90_000),
        ("15 m", NOW - 900_000),
        ("1w", NOW - 7 * 86_400_000),
        ("999999999w", 0),
        ("2026-03-01", 1_772_323_200_000),
        ("2026-03-01T12:00", 1_772_366_400_000),
        ("2026-03-01 12:00:00.250Z", 1_772_366_400_250),
        ("2026-03-01T12:00+02:00", 1_772_359_200_000),
        ("1969-01-01", 0),
    ],
)
def test_a_moment_is_a_date_a_time_or_an_age(text: str, moment: int) -> None:
    assert since_ms(text, NOW) == moment


@pytest.mark.parametrize("text", ["", "2", "h", "-2h", "2y", "tomorrow", "2026-13-01", "٢h"])
def test_a_text_that_is_no_moment_is_refused_with_the_allowed_forms(text: str) -> None:
    with pytest.raises(ValueError, match="how long ago"):
        since_ms(text, NOW)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("200", (200, 200)), ("4xx", (400, 499)), ("5XX", (500, 599)), ("100-999", (100, 999))],
)
def test_a_filter_of_statuses_is_one_status_a_class_or_a_range(
    text: str, wanted: tuple[int, int]
) -> None:
    assert status_range(text) == wanted


@pytest.mark.parametrize(
    "text",
    ["", "20", "0xx", "6xx", "9XX", "099", "399-300", "200-", "2000", "xx"],
)
def test_a_text_that_is_no_range_of_statuses_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="a class from 1xx to 5xx"):
        status_range(text)


def test_missing_options_since_and_status_select_everything() -> None:
    @click.command()
    @since
    @status
    def probe(since: int, status: tuple[int, int]) -> None:
        click.echo(f"{since} {status}")

    assert CliRunner().invoke(probe, []).output.strip() == "0 (0, 999)"
    given = CliRunner().invoke(probe, ["--since", "2026-03-01", "--status", "4xx"]).output
    assert given.strip() == "1772323200000 (400, 499)"
    refused = CliRunner().invoke(probe, ["--since", "soon"])
    assert refused.exit_code == 2
    assert "how long ago" in refused.output
