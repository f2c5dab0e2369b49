"""``greencrawl up``: a broker and workers in the foreground."""

from __future__ import annotations

import os
from functools import partial

import click

from greencrawl.cli import connecting
from greencrawl.cli.local import permits
from greencrawl.cli.local.data_folder import REDIS_SERVER_LOCK, await_broker, held
from greencrawl.cli.local.processes import Processes, environment
from greencrawl.cli.local.stopping import Stop, on_signals
from greencrawl.schema.settings import Settings

LOOK_SECONDS = 1.0
"""Seconds between two checks that the processes live."""


@click.command()
@connecting.data_option
@click.option(
    "--processes",
    type=click.IntRange(0),
    metavar="N",
    help="Worker processes.  [default: 1 a core]",
)
def up(data: str | None, processes: int | None) -> None:
    """Run a broker and workers until Ctrl-C.

    The broker listens on GREENCRAWL_BIND (127.0.0.1:8765). Add crawls in the Monitor (open the
    address of the broker in a browser), with curl, or with `greencrawl crawl` and
    GREENCRAWL_BROKER. Watch them with `greencrawl status`. The logs of the processes go to standard
    error.
    """
    settings = connecting.load(data, processes=None if processes is None else str(processes))
    address = connecting.own_address(settings)
    environ = environment(
        {**os.environ, **permits.of_file(settings)},
        data=str(settings.data),
        broker=address,
        processes=str(settings.processes),
    )
    with on_signals() as stop, held(settings.data, "up", address):
        redis = settings.data / REDIS_SERVER_LOCK if settings.embedded_redis else None
        pair = Processes(environ, None, settings.request_seconds, redis)
        try:
            await_broker(settings.data, stop.asked, lambda text: click.echo(text, err=True))
            _serve(pair, settings, address, stop)
        finally:
            pair.stop(stop.impatient)
    click.echo("stopped", err=True)


def _serve(pair: Processes, settings: Settings, address: str, stop: Stop) -> None:
    broker = connecting.client(settings, address)
    ready, asked = partial(connecting.is_ready, broker), stop.asked
    pair.start(lambda: bool(stop.within(ready)), asked)
    if not asked.is_set():
        click.echo(f"broker at {address}, data in {settings.data}; Ctrl-C stops", err=True)
    while not asked.wait(LOOK_SECONDS):
        for death in pair.restart_dead():
            click.echo(f"{death}; started again", err=True)
