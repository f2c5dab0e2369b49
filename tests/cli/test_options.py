"""The options of ``crawl`` are the fields of the record."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from greencrawl.cli.commands.crawl import crawl
from greencrawl.cli.options import crawl_options, fields, given, unwrap
from greencrawl.schema.records import CrawlOptions


@click.command()
@crawl_options
def probe(**values: Any) -> None:
    click.echo(repr(given(values)))


def run(*arguments: str) -> str:
    result = CliRunner().invoke(probe, arguments)
    assert result.exit_code == 0, result.output
    return result.output.strip()


def test_every_simple_field_of_a_crawl_has_a_command_line_option() -> None:
    options = {name for parameter in crawl.params for name in parameter.opts}
    apart = {"seeds", "auth", "sources", "kernels", "recrawl"}
    for name in set(CrawlOptions.__struct_fields__) - apart:
        assert f"--{name.replace('_', '-')}" in options


def test_every_option_has_a_description_and_its_default_in_the_help() -> None:
    text = " ".join(CliRunner().invoke(probe, ["--help"], terminal_width=200).output.split())
    for field in fields():
        description = unwrap(field)[1]
        assert description, f"{field.name} has none"
        assert " ".join(description.split()) in text
    assert "[default: breadth]" in text
    assert "[default: greencrawl/0.1]" in text


def test_no_line_of_the_help_is_longer_than_a_terminal_is_wide() -> None:
    output = CliRunner().invoke(crawl, ["--help"], terminal_width=80).output
    assert [line for line in output.splitlines() if len(line) > 80] == []
    assert "a RULE is one of empty, host-dot" in " ".join(output.split())


def test_only_options_that_were_given_are_passed_on() -> None:
    assert run() == "{}"
    assert run("--depth", "0", "--delay", "0.5") == "{'depth': 0, 'delay': 0.5}"
    assert run("--exclude", "a", "--exclude", "b") == "{'exclude': ('a', 'b')}"


def test_a_value_that_is_no_number_is_refused_in_words() -> None:
    refused = CliRunner().invoke(probe, ["--depth", "deep"]).output
    assert "'deep' is not a valid whole number." in refused
    assert "'soon' is not a valid number." in CliRunner().invoke(probe, ["--delay", "soon"]).output


@pytest.mark.parametrize(
    "arguments",
    [("--depth", "-1"), ("--scope", "world"), ("--delay", "soon"), ("--tries", "0")],
)
def test_value_outside_the_records_limits_is_wrong_use(arguments: tuple[str, str]) -> None:
    result = CliRunner().invoke(probe, arguments)
    assert result.exit_code == 2
    assert arguments[0] in result.output
