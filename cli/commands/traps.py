"""``greencrawl traps``: lists parked URLs by their shapes, and releases them."""

from __future__ import annotations

import click

from greencrawl.broker.client import BrokerClient
from greencrawl.cli import choose, connecting
from greencrawl.cli.ui import advice
from greencrawl.cli.ui.display import moment, printable
from greencrawl.schema.records import EVERY_SHAPE, Crawl, ParkedShape
from greencrawl.schema.settings import Settings
from greencrawl.schema.text.parked import release_command

SHAPES = 1000
"""At most this many shapes are listed."""


@click.command()
@click.argument("crawl", required=False)
@click.option(
    "--release", "shape", metavar="SHAPE", help="Queue the URLs that are parked by this shape."
)
@click.option("--all", "everything", is_flag=True, help="Queue all parked URLs.")
@connecting.data_option
def traps(crawl: str | None, shape: str | None, everything: bool, data: str | None) -> None:
    """List URLs that were parked as traps, by their shape.

    CRAWL may be left out when there is only one. Each line is a shape, with values that are
    separated by tabs: the number of URLs, when the first and the latest one was parked, the shape,
    the reason, and one of the URLs. --release SHAPE (as it is listed) or --all queues the URLs: at
    once if a broker runs, otherwise when the crawl is run again. No URL of such a shape is parked
    again. A crawl that was done becomes active.
    """
    if shape is not None and (everything or not shape):
        raise click.UsageError("--release SHAPE releases one shape, --all releases all")
    settings = connecting.load(data)
    broker = connecting.answering(settings)
    if shape is not None or everything:
        wanted = None if everything or shape == EVERY_SHAPE else shape
        count = _at(broker, crawl, wanted) if broker else _in_store(settings, crawl, wanted)
        what = "nothing" if wanted is None else "nothing of this shape"
        click.echo(f"{count:,} queued; {what} is parked any more")
        return
    chosen, found = _listed(broker, crawl) if broker else _stored(settings, crawl)
    for one in found:
        fields = (
            one.count, moment(one.first_ms), moment(one.last_ms), one.shape or "-", one.reason,
            one.example,
        )  # fmt: skip
        click.echo("\t".join(printable(str(field)) for field in fields))
    if chosen.released:
        some = "all shapes" if chosen.released == (EVERY_SHAPE,) else f"{len(chosen.released):,}"
        click.echo(f"released: {some}", err=True)
    if found:
        command = f"`{release_command(chosen.name, found[0].shape)}`"
        click.echo(printable(advice.complete(f"{command} releases the first")), err=True)
    else:
        click.echo("no URL is parked", err=True)


def _listed(broker: BrokerClient, crawl: str | None) -> tuple[Crawl, tuple[ParkedShape, ...]]:
    chosen = choose.one(broker.crawls(), crawl)
    return chosen, broker.parked(chosen.name, SHAPES).items


def _stored(settings: Settings, crawl: str | None) -> tuple[Crawl, tuple[ParkedShape, ...]]:
    with connecting.store(settings) as store:
        chosen = choose.one(store.crawls(), crawl)
        return chosen, tuple(store.parked_shapes(chosen.id, SHAPES))


def _at(broker: BrokerClient, crawl: str | None, shape: str | None) -> int:
    reply = broker.release_parked(choose.one(broker.crawls(), crawl).name, shape)
    return reply.added + reply.pending


def _in_store(settings: Settings, crawl: str | None, shape: str | None) -> int:
    """Log the URLs as seeds: the next broker over this store queues them."""
    with connecting.store(settings, upgrade=True) as store:
        chosen, count = choose.one(store.crawls(), crawl), 0
        store.add_released(chosen.id, [shape or EVERY_SHAPE])
        while batch := store.release_parked(chosen.id, shape):
            count += len(batch.urls)
        return count
