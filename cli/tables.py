"""``python -m greencrawl.cli.tables``: writes the generated tables of docs and ``.env.example``.

Settings are in ``greencrawl.schema.settings.KEYS``, options of a crawl in
``greencrawl.schema.records.CrawlOptions``, orders in ``NodeOptions`` beside it. Failures are in
``greencrawl.worker.retry.TABLE``, words of actions in ``greencrawl.schema.net.action_data``,
sources of links in ``greencrawl.schema.text.link_sources``. A test fails while the docs say
something else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec.inspect as inspect

from greencrawl.cli.options import UNBOUNDED, default_text, fields, unwrap
from greencrawl.schema.net.action_data import KINDS, languages, software
from greencrawl.schema.records import NodeOptions
from greencrawl.schema.settings import KEYS, PREFIX
from greencrawl.schema.text.link_sources import SOURCES
from greencrawl.worker import retry

HOME = Path(__file__).resolve().parents[1]
CONFIGURATION = HOME / "docs" / "configuration.md"
POLITENESS = HOME / "docs" / "politeness.md"
AUTHENTICATION = HOME / "docs" / "authentication.md"
DISCOVERY = HOME / "docs" / "discovery.md"
ENV_EXAMPLE = HOME / ".env.example"

_WORDS = 3
"""Words of each kind that the docs show."""

HIDDEN = frozenset({"FAULT"})
"""Settings for tests, which a person's copy of the file does not need."""


def settings_table() -> str:
    """Return a Markdown table of the environment variables."""
    rows = [
        f"| `{PREFIX}{key}` | {_code(default)} | {_cell(meaning)} |"
        for key, (default, _, meaning) in KEYS.items()
    ]
    return "\n".join(["| variable | default | meaning |", "| --- | --- | --- |", *rows])


def options_table() -> str:
    """Return a Markdown table of a crawl's options."""
    rows = []
    for field in fields():
        kind, description = unwrap(field)
        option = f"`--{field.name.replace('_', '-')}`"
        default = default_text(field)
        shown = default if default == "none" else _code(default)
        rows.append(
            f"| `{field.name}` | {option} | {_values(kind)} | {shown} | {_cell(description)} |"
        )
    head = ["| name | option | values | default | meaning |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *rows])


def orders_table() -> str:
    """Return a Markdown table of the orders of nodes."""
    info = inspect.type_info(NodeOptions)
    assert isinstance(info, inspect.StructType)
    rows = []
    for field in info.fields:
        kind, description = unwrap(field)
        rows.append(f"| `{field.name}` | {_values(kind)} | {_cell(description)} |")
    return "\n".join(["| option | values | meaning |", "| --- | --- | --- |", *rows])


def words_table() -> str:
    """Return a Markdown table of the words of actions: how many by language and kind, and the first
    ones."""
    rows = []
    for language in languages():
        cells = []
        for kind in KINDS:
            words = [_cell(word) for word, _ in language.words[kind]]
            more = f" and {len(words) - _WORDS} more" if len(words) > _WORDS else ""
            cells.append(", ".join(words[:_WORDS]) + more)
        rows.append(f"| {language.name} | {' | '.join(cells)} |")
    head = ["| language | logs out | deletes | buys | changes |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *rows])


def software_list() -> str:
    """Return the software whose links of actions are known, in one line."""
    names = sorted({one.software for one in software()}, key=str.casefold)
    return "; ".join(names) + "."


def links_table() -> str:
    """Return a Markdown table of the sources of links."""
    rows = []
    for name, source in SOURCES.items():
        now, other = ("followed", f"-{name}") if source.default else ("not followed", name)
        rows.append(f'| {source.reads} | {now} | `links = ["{other}"]` |')
    return "\n".join(["| source | by default | to change that |", "| --- | --- | --- |", *rows])


def env_example() -> str:
    """Return every setting with its meaning and default, all commented out."""
    lines = [
        "# Settings of the processes; copy to .env, which honcho and greencrawl read, and remove",
        "# the # before what you change. docs/configuration.md says more. Made by `make docs`.",
    ]
    for key, (default, _, meaning) in KEYS.items():
        if key not in HIDDEN:
            lines += ["", f"# {meaning}", f"#{PREFIX}{key}={default}"]
    return "\n".join(lines) + "\n"


def filled(text: str) -> str:
    """Return ``text`` with the present tables between its markers."""

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        return f"<!-- {name}: begin -->\n{TABLES[name]()}\n<!-- {name}: end -->"

    filled_in, count = _MARKED.subn(table, text)
    if not count:
        raise ValueError("no markers of a table are there")
    return filled_in


TABLES: dict[str, Callable[[], str]] = {
    "settings": settings_table,
    "options": options_table,
    "orders": orders_table,
    "failures": lambda: retry.markdown_table().strip(),
    "words": words_table,
    "software": software_list,
    "links": links_table,
}

_MARKED = re.compile(r"<!-- (?P<name>\w+): begin -->.*?<!-- (?P=name): end -->", re.DOTALL)


def _values(kind: inspect.Type) -> str:
    match kind:
        case inspect.LiteralType(values=values):
            return ", ".join(f"`{value}`" for value in values)
        case inspect.VarTupleType(item_type=inspect.LiteralType() as one):
            return f"list of {_values(one)}"
        case inspect.VarTupleType():
            return "list of texts"
        case inspect.IntType(ge=low, le=high):
            return f"{low} … {high}" if high != UNBOUNDED else f"from {low}"
        case inspect.BoolType():
            return "`yes`, `no`"
        case inspect.FloatType(ge=low, le=high):
            return f"{low:g} … {high:g}"
        case _:
            return "text"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Write the files."""
    for file in (CONFIGURATION, POLITENESS, AUTHENTICATION, DISCOVERY):
        file.write_text(filled(file.read_text(encoding="utf-8")), encoding="utf-8")
    ENV_EXAMPLE.write_text(env_example(), encoding="utf-8")


if __name__ == "__main__":
    main()
