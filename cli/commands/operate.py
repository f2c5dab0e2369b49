"""``greencrawl pause``, ``resume``, ``stop``, ``delete``, ``purge``: a crawl, or a host in it."""

from __future__ import annotations

import sys
from functools import partial

import click

from greencrawl.broker.client import BrokerClient
from greencrawl.cli import choose, connecting
from greencrawl.cli.local.stopping import on_signals
from greencrawl.cli.ui.display import moment, printable
from greencrawl.schema.errors import GreencrawlError, Unavailable
from greencrawl.schema.records import NodeAway, Purge

LOOK_SECONDS = 0.5
"""Seconds between two checks of a deletion's progress."""


@click.command()
@click.argument("crawl", required=False)
@connecting.data_option
def pause(crawl: str | None, data: str | None) -> None:
    """Pause a crawl until it is resumed.

    No more of its URLs are leased; URLs that are already leased are still fetched. CRAWL may be
    left out when there is only one.
    """
    broker = connecting.required(connecting.load(data))
    changed = broker.pause(choose.one(broker.crawls(), crawl).name)
    click.echo(f"{changed.name}: {changed.state}")


@click.command()
@click.argument("crawl", required=False)
@connecting.data_option
def resume(crawl: str | None, data: str | None) -> None:
    """Resume a crawl that is paused, stopped or at a limit.

    If the crawl reached a limit, such as max_pages, raise the limit first.
    """
    broker = connecting.required(connecting.load(data))
    changed = broker.resume(choose.one(broker.crawls(), crawl).name)
    click.echo(f"{changed.name}: {changed.state}")


@click.command()
@click.argument("crawl", required=False)
@click.option("--now", is_flag=True, help="Do not fetch leased URLs any more: give them back.")
@connecting.data_option
def stop(crawl: str | None, now: bool, data: str | None) -> None:
    """End a crawl.

    Waiting URLs stay in the queue. URLs that are already leased (some dozens per host) are still
    fetched, with the usual delay. The command waits until no URL of the crawl is leased. If you
    stop the command, the crawl still ends. `greencrawl resume` and new seeds start the crawl again;
    known seeds, and links that are found late, do not. CRAWL may be left out when there is only
    one.
    """
    settings = connecting.load(data)
    broker = connecting.required(settings)
    changed = broker.stop(choose.one(broker.crawls(), crawl).name, now=now)
    with on_signals() as asked:
        while changed.stopping and not asked.asked.wait(LOOK_SECONDS):
            try:
                ask = partial(broker.crawl, changed.name)
                changed = asked.within(ask, grace_seconds=0.0) or changed
            except Unavailable as error:  # a broker of `greencrawl crawl` ends with its crawl
                with connecting.store(settings) as store:
                    changed = store.crawl(changed.name)
                if changed.stopping:
                    raise error
    because = f" ({changed.reason})" if changed.reason else ""
    click.echo(f"{changed.name}: {changed.state}{because}")


@click.command()
@click.argument("crawl")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connecting.data_option
def delete(crawl: str, yes: bool, data: str | None) -> None:
    """Delete a crawl and everything stored for it.

    WARC files are not deleted (docs/export.md).

    The name is free at once. The command waits until everything is deleted. If you stop the
    command, the broker still goes on. While a Redis node is away, the deletion waits, and the
    command says so. It goes on by itself when the node is back.
    """
    broker = connecting.required(connecting.load(data))
    found = choose.one(broker.crawls(), crawl)
    if not yes:
        _ask(f"Delete crawl {found.name} and all its pages?")
    broker.delete(found.name)
    _follow(broker, found.id, "")


@click.command()
@click.argument("crawl")
@click.argument("host")
@connecting.data_option
def purge(crawl: str, host: str, data: str | None) -> None:
    """Drop the waiting URLs of HOST in a crawl.

    These URLs count as excluded from then on. Stored pages stay. Links to the host that are found
    later are queued as usual: use `exclude` of the crawl to keep them out.
    """
    broker = connecting.required(connecting.load(data))
    asked = broker.purge_host(choose.one(broker.crawls(), crawl).name, host)
    _follow(broker, asked.instance, asked.host)


def _ask(question: str) -> None:
    """Ask a person, and return only after a yes. Raises click.Abort after a no, and GreencrawlError
    if there is no terminal."""
    try:
        click.confirm(question, abort=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo()
        raise GreencrawlError("nothing was deleted; without a terminal, add --yes") from None


def _follow(broker: BrokerClient, instance: int, host: str) -> None:
    """Show a deletion's progress, whenever it changes, until it is complete, or Ctrl-C."""
    far = waits = ""
    with on_signals() as stop:
        while True:
            listed = stop.within(broker.purges, grace_seconds=0.0)
            if listed is None:
                click.echo("the broker goes on", err=True)
                return
            found = [p for p in listed if (p.instance, p.host) == (instance, host)]
            if not found:
                click.echo(f"{host}: purged" if host else "deleted")
                return
            before = far, waits
            far = removed_text(found[0])
            waits = "; ".join(map(_waits, found[0].away))
            if far != before[0]:
                click.echo(far, err=True)
            if waits != before[1]:
                click.echo(f"{waits}. {_GOES_ON}" if waits else "it is back: going on", err=True)
            if stop.asked.wait(LOOK_SECONDS):
                click.echo("the broker goes on", err=True)
                return


def removed_text(purge: Purge) -> str:
    """Return a deletion's progress; without the total if more was removed than was counted."""
    of = f" of about {purge.total:,}" if purge.total >= purge.removed > 0 else ""
    return f"{purge.removed:,}{of} removed"


_GOES_ON = "It goes on by itself then, also without this command (Ctrl-C)."


def _waits(node: NodeAway) -> str:
    if not node.since_ms:
        return f"waits: {printable(node.why)}"
    return f"waits for Redis at {printable(node.node)}, away since {moment(node.since_ms)}"
