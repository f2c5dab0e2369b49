"""``greencrawl seed``: adds URLs to a crawl at a broker."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice

import click

from greencrawl.broker.client import BrokerClient
from greencrawl.cli import choose, connecting
from greencrawl.cli.crawlfile import with_scheme
from greencrawl.cli.ui import advice
from greencrawl.schema.errors import Refused
from greencrawl.schema.records import Crawl, SeedReply, SeedRequest

BATCH = 1000
"""Number of URLs that one request sends."""

NOT_FOUND, TOO_MANY_REQUESTS = 404, 429
FULL_SECONDS = 5.0


@click.command()
@click.argument("crawl")
@click.argument("urls", nargs=-1, required=True, metavar="URL...|-")
@click.option(
    "--force", is_flag=True, help="Queue URLs again that were already fetched or given up."
)
@click.option(
    "--if-changed",
    is_flag=True,
    help="Like --force, but fetch a stored page only if it has changed.",
)
@connecting.data_option
def seed(
    crawl: str, urls: tuple[str, ...], force: bool, if_changed: bool, data: str | None
) -> None:
    """Add URLs to a crawl.

    `-` reads URLs from standard input, one per line. The command prints how many URLs were added,
    queued again, already known, and rejected. Each rejected URL is printed to standard error with
    the reason, and the exit code is then 1. Pending URLs are stored, and are queued when their
    Redis node is back. Repeating the command changes nothing, unless an option queues known URLs
    again. Even then a URL that waits for its first fetch is not queued twice.
    """
    broker = connecting.required(connecting.load(data))
    known = _crawl(broker, crawl)
    counts = {"added": 0, "again": 0, "duplicate": 0, "rejected": 0, "pending": 0}
    for batch in _batches(map(with_scheme, _given(urls))):
        request = SeedRequest(batch, force=force, if_changed=if_changed)
        for item in _patiently(broker, crawl, request).items:
            counts[item.status] += 1
            if item.status == "rejected":
                click.echo(f"rejected {item.url}: {item.reason}", err=True)
    said = {"again": "queued again"}
    shown = {
        said.get(status, status): number
        for status, number in counts.items()
        if number or status not in ("again", "pending")
    }
    click.echo(", ".join(f"{number:,} {status}" for status, number in shown.items()))
    if limit := advice.at_limit(known.name, known.reason):
        click.echo(advice.complete(limit), err=True)
    click.get_current_context().exit(1 if counts["rejected"] else 0)


def _crawl(broker: BrokerClient, name: str) -> Crawl:
    """Return the crawl of that name. If there is no such crawl, the error names all crawls."""
    try:
        return broker.crawl(name)
    except Refused as error:
        if error.status == NOT_FOUND:
            choose.one(broker.crawls(), name)
        raise


def _patiently(broker: BrokerClient, crawl: str, request: SeedRequest) -> SeedReply:
    """Seed a batch, waiting while Redis is near its memory limit."""
    while True:
        try:
            return broker.seed(crawl, request)
        except Refused as error:
            if error.status != TOO_MANY_REQUESTS:
                raise
            click.echo(f"waiting: {error.problem.get('detail')}", err=True)
            time.sleep(FULL_SECONDS)


def _given(urls: Iterable[str]) -> Iterator[str]:
    for url in urls:
        if url == "-":
            yield from (line.strip() for line in sys.stdin if line.strip())
        else:
            yield url


def _batches(urls: Iterable[str]) -> Iterator[tuple[str, ...]]:
    rest = iter(urls)
    while batch := tuple(islice(rest, BATCH)):
        yield batch
