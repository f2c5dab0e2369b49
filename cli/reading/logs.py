"""``greencrawl logs``: the log lines of all processes, as loggers keep them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_args

import click
from msgspec.structs import replace

from greencrawl.broker.client import BrokerClient
from greencrawl.cli import connecting
from greencrawl.cli.local.stopping import on_signals
from greencrawl.cli.ui.display import moment, printable
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import GreencrawlError, Unavailable
from greencrawl.schema.logs.records import Level, LogLine, LogsQuery, LogsReply
from greencrawl.schema.text.moments import SINCE, since_ms
from greencrawl.schema.wire import to_json

A_REQUEST = 500
FOLLOW_SECONDS = 1.0
"""Seconds between two reads."""
LATE_MS = 15_000
"""How late a line may be and still be shown by ``-f``."""
_APART = frozenset({"timestamp", "level", "event", "process"})
"""Keys that are not shown as fields of a line."""

Say = Callable[[LogLine], None]
Line = tuple[str, int, int]


@click.command()
@click.option("--node", default="", metavar="NAME", help="Only lines of this node or process.")
@click.option(
    "--level",
    type=click.Choice(list(get_args(Level))),
    default="debug",
    help="Only lines of this level or above.  [default: all]",
)
@click.option("--crawl", default="", metavar="CRAWL", help="Only lines that name this crawl.")
@click.option("--url", default="", metavar="TEXT", help="Only lines that contain this URL or text.")
@click.option(
    "--since",
    default="",
    metavar="TIME",
    help=f"Only lines from that moment on: {SINCE}.  [default: the last 100]",
)
@click.option("-f", "--follow", is_flag=True, help="Also show new lines, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@connecting.data_option
def logs(
    node: str,
    level: Level,
    crawl: str,
    url: str,
    since: str,
    follow: bool,
    as_json: bool,
    data: str | None,
) -> int:
    """Show the log lines of brokers and workers.

    A broker asks all loggers (`python -m greencrawl.logger`) for them, and puts the lines in order.
    The exit code is 1 if a logger did not answer: standard error names it.
    """
    _check(since)
    broker = connecting.living(connecting.load(data))
    query = LogsQuery(
        node=node, level=level, crawl=crawl, url=url, since=since or "36500d", limit=A_REQUEST
    )
    silent: dict[str, str] = {}
    shown: dict[Line, int] = {}

    def say(line: LogLine) -> None:
        shown[line.member, line.incarnation, line.sequence] = line.at_ms
        click.echo(to_json(line).decode() if as_json else text_of(line))

    if since:
        for reply in _pages(broker, query):
            _tell(reply, silent, say)
    else:
        _tell(broker.logs(replace(query, limit=100, newest=True)), silent, say)
    if follow:
        with on_signals() as stop:
            while not stop.asked.wait(FOLLOW_SECONDS):
                _go_on(broker, query, shown, silent, say)
    return 1 if silent else 0


def _check(since: str) -> None:
    try:
        since_ms(since or "1s")
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--since") from error


def _pages(broker: BrokerClient, query: LogsQuery) -> Iterator[LogsReply]:
    while True:
        reply = broker.logs(query)
        yield reply
        if not reply.next:
            return
        query = replace(query, after=reply.next)


def _go_on(
    broker: BrokerClient,
    query: LogsQuery,
    shown: dict[Line, int],
    silent: dict[str, str],
    say: Say,
) -> None:
    """Show new lines; those of several processes may come late and out of order."""
    since = epoch_ms() - LATE_MS
    for line in [line for line, at_ms in shown.items() if at_ms < since - LATE_MS]:
        del shown[line]

    def say_new(line: LogLine) -> None:
        if (line.member, line.incarnation, line.sequence) not in shown:
            say(line)

    try:
        for reply in _pages(broker, replace(query, since=f"{LATE_MS // 1000}s")):
            _tell(reply, silent, say_new)
    except Unavailable as error:  # a broker that is restarted answers the next time
        if "broker" not in silent:
            click.echo(printable(str(error)), err=True)
        silent["broker"] = str(error)
    else:
        silent.pop("broker", None)


def _tell(reply: LogsReply, silent: dict[str, str], say: Say) -> None:
    """Show an answer, and on standard error what is missing in it."""
    for line in reply.items:
        say(line)
    if not reply.loggers and not reply.silent:
        raise GreencrawlError("there is no logger; start one with `python -m greencrawl.logger`")
    for one in reply.silent:
        if one.logger not in silent:
            said = printable(f"{one.logger} did not answer: {one.why}; its lines are missing")
            click.echo(said, err=True)
    for name in reply.loggers:
        silent.pop(name, None)
    silent.update({one.logger: one.why for one in reply.silent})


def text_of(line: LogLine) -> str:
    """Return a line for people: nothing in it reaches the terminal as a control character."""
    fields = (f"{name}={_value(value)}" for name, value in line.said.items() if name not in _APART)
    at = f"{moment(line.at_ms)}  {line.member:<20}  {line.level:<8}  {line.event}"
    return printable("  ".join([at, *fields]))


def _value(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value).decode()
