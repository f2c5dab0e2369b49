"""``greencrawl set``: single options of a crawl, while it runs."""

from __future__ import annotations

from collections.abc import Sequence

import click

from greencrawl.cli import choose, connecting, key_values
from greencrawl.cli.ui.display import printable
from greencrawl.schema.records import CrawlOptions


@click.command()
@click.argument("crawl")
@click.argument("options", nargs=-1, required=True, metavar="KEY=VALUE…")
@connecting.data_option
def set(crawl: str, options: Sequence[str], data: str | None) -> None:
    """Change options of a crawl: `greencrawl set news delay=2`.

    Options that are not named stay as they are.

    KEY is an option in docs/configuration.md; `KEY=` sets the default. Write a list value by value
    (`exclude=a exclude=b`) or as JSON. Workers follow within a second.
    """
    wanted = key_values.parsed(options, CrawlOptions)
    broker = connecting.required(connecting.load(data))
    known = choose.one(broker.crawls(), crawl)
    changed = broker.change(known.name, wanted, by=key_values.person())
    for name in wanted:
        value = getattr(changed.options, name)
        click.echo(printable(f"{changed.name}: {name} = {value}"))
