"""``greencrawl changes``: pages that are new, changed or gone since a moment."""

from __future__ import annotations

from collections.abc import Iterator

import click

from greencrawl.broker.api.messages import Change
from greencrawl.broker.service import changes as looking
from greencrawl.cli import choose, connecting, options
from greencrawl.cli.ui.display import moment, printable
from greencrawl.schema.settings import Settings
from greencrawl.schema.wire import to_json
from greencrawl.store.export.objects import iso8601

A_REQUEST = 500


@click.command()
@click.argument("crawl", required=False)
@options.since
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@connecting.data_option
def changes(crawl: str | None, since: int, as_json: bool, data: str | None) -> None:
    """List pages that are new, changed or gone.

    Without --since all changes of the crawl are listed.

    A page is changed if its body or its status is not the same as at that moment. It is gone if it
    was requested again and is no longer there. The command reads the histories of pages, which are
    kept for GREENCRAWL_VERSION_DAYS days. CRAWL may be left out when there is only one.
    """
    for change in _found(connecting.load(data), crawl, since):
        if as_json:
            click.echo(to_json(change).decode())
            continue
        title = f"  {change.title}" if change.title else ""
        click.echo(printable(f"{moment(change.at_ms)}  {change.change:<7}  {change.url}{title}"))


def _found(settings: Settings, crawl: str | None, since: int) -> Iterator[Change]:
    broker, after = connecting.answering(settings), ""
    if broker is not None:
        name = choose.one(broker.crawls(), crawl).name
        moment_of = iso8601(since) or "1970-01-01"
        while True:
            reply = broker.changes(name, moment_of, limit=A_REQUEST, after=after)
            yield from reply.items
            after = reply.next
            if not after:
                return
    with connecting.store(settings) as store:
        number = choose.one(store.crawls(), crawl).id
        while True:
            reply = looking.look(store, number, since, A_REQUEST, after)
            yield from reply.items
            after = reply.next
            if not after:
                return
