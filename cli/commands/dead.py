"""``greencrawl dead``: URLs that were given up, and another chance for them."""

from __future__ import annotations

from collections.abc import Iterator

import click

from greencrawl.broker.client import BrokerClient
from greencrawl.cli import choose, connecting
from greencrawl.cli.ui.display import moment, printable
from greencrawl.schema.records import Final
from greencrawl.schema.settings import Settings

PAGE = 1000
"""Number of dead letters that one request asks for."""


@click.command()
@click.argument("crawl", required=False)
@click.option(
    "--requeue", is_flag=True, help="Queue all of them again; their failures no longer count."
)
@connecting.data_option
def dead(crawl: str | None, requeue: bool, data: str | None) -> None:
    """List URLs that were given up.

    CRAWL may be left out when there is only one. Each line has time, kind of failure, HTTP status,
    URL and detail, separated by tabs. With --requeue these URLs are tried again: at once if a
    broker runs, otherwise when the crawl is run again.
    """
    settings = connecting.load(data)
    broker = connecting.answering(settings)
    if requeue:
        count = _requeue_at(broker, crawl) if broker else _requeue_in_store(settings, crawl)
        click.echo(f"{count:,} queued again")
        return
    letter = None
    for letter in _listed(broker, crawl) if broker else _stored(settings, crawl):
        fields = (moment(letter.at_ms), letter.kind, letter.code or "-", letter.url, letter.detail)
        click.echo("\t".join(printable(str(field)) for field in fields))
    if letter is None:
        click.echo("no URL was given up", err=True)


def _listed(broker: BrokerClient, crawl: str | None) -> Iterator[Final]:
    name, after = choose.one(broker.crawls(), crawl).name, ""
    while True:
        reply = broker.dead(name, PAGE, after)
        yield from (item.letter for item in reply.items)
        after = reply.next
        if not after:
            return


def _stored(settings: Settings, crawl: str | None) -> Iterator[Final]:
    with connecting.store(settings) as store:
        chosen, after = choose.one(store.crawls(), crawl), ""
        while rows := store.dead(chosen.id, PAGE, after):
            yield from (letter for _, letter in rows)
            after = rows[-1][0]


def _requeue_at(broker: BrokerClient, crawl: str | None) -> int:
    reply = broker.requeue(choose.one(broker.crawls(), crawl).name)
    return reply.added + reply.pending


def _requeue_in_store(settings: Settings, crawl: str | None) -> int:
    """Log the dead letters as seeds: the next broker over this store queues them."""
    with connecting.store(settings, upgrade=True) as store:
        chosen, count = choose.one(store.crawls(), crawl), 0
        now = store.tick()  # URLs that are given up again meanwhile are left to the next command
        while batch := store.requeue_dead(chosen.id, before=now):
            count += len(batch.urls)
        return count
