"""``greencrawl repair``: refill Redis from the store."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from greencrawl.broker.client import BrokerClient
from greencrawl.cli import connecting
from greencrawl.cli.local.stopping import Stop, on_signals
from greencrawl.cli.ui import advice
from greencrawl.cli.ui.display import PLAIN_SECONDS, duration, printable
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import GreencrawlError, Unavailable
from greencrawl.schema.records import NodeRepair

POLL_SECONDS = 0.5
AWAY_SECONDS = 60.0
"""How long a broker may be silent before the command gives up."""
GOES_ON = "the repair goes on at the broker; `greencrawl repair` joins it again"


@click.command()
@click.option(
    "--all", "everything", is_flag=True, help="Send Redis everything that the store holds."
)
@connecting.data_option
def repair(everything: bool, data: str | None) -> int:
    """Refill Redis from the store.

    Brokers do this by themselves when Redis was restarted, is outdated or is empty. Without --all
    Redis gets what it may have missed since its last tick; with --all it gets everything. If the
    store itself lost data, Redis is emptied first. A repair fetches no page again, but no fetch
    begins while it runs. Ctrl-C ends only the display, not the repair.
    """
    settings = connecting.load(data)
    # The broker need not be ready: it may be waiting for this very command.
    broker = connecting.living(settings)
    try:
        broker.repair(everything)
    except Unavailable as error:
        raise GreencrawlError(f"not begun: {error}") from error
    with on_signals() as stop:
        nodes = _watch(broker, stop)
    if nodes is None:
        click.echo(advice.complete(GOES_ON), err=True)
        return stop.exit_code
    rows, seconds = sum(node.done for node in nodes), max(node.seconds for node in nodes)
    click.echo(f"{len(nodes)} Redis node(s) refilled: {rows:,} rows in {duration(seconds)}")
    return 0


def _watch(broker: BrokerClient, stop: Stop) -> Sequence[NodeRepair] | None:
    """Show the progress of the repair. Return its last state, or None after a signal."""
    console = Console(stderr=True)
    heard = said = monotonic()
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            try:
                nodes = broker.repairs().nodes
                heard = monotonic()
            except Unavailable as error:
                if monotonic() - heard > AWAY_SECONDS:
                    raise GreencrawlError(f"lost the broker: {error}; {GOES_ON}") from error
            else:
                lines = "\n".join(map(line, nodes))
                if console.is_terminal:
                    live.update(Text(lines), refresh=True)
                elif monotonic() - said >= PLAIN_SECONDS:
                    said = monotonic()
                    click.echo(lines, err=True)
                if all(map(_done, nodes)):
                    return nodes
            if stop.asked.wait(POLL_SECONDS):
                return None


def _done(node: NodeRepair) -> bool:
    """Return whether the node is repaired: this broker has done it, or the broker owes the node
    nothing because another broker has done it."""
    return node.phase == "done" or (node.phase == "none" and not node.detail)


def line(node: NodeRepair) -> str:
    """Return one node's line: its phase, rows done of all, rows a second, and why it waits."""
    rate = node.done / node.seconds if node.seconds else 0.0
    share = f" {node.done / node.total:.0%}" if node.total else ""
    text = f"{node.node}: {node.phase}{share}, {node.done:,} of {node.total:,} rows, {rate:,.0f}/s"
    return printable(f"{text}, waits: {node.detail}" if node.detail else text)
