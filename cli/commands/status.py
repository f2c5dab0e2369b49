"""``greencrawl status``: the state of crawls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from greencrawl.broker.client import BrokerClient
from greencrawl.broker.service.shared.stored_counts import failures_in
from greencrawl.cli import choose, connecting
from greencrawl.cli.local.stopping import on_signals
from greencrawl.cli.ui import advice
from greencrawl.cli.ui.display import (
    SLOWEST,
    TRIES,
    again_texts,
    alert_text,
    away_text,
    failures_of,
    failures_text,
    full_text,
    hooks_text,
    put_off_text,
    refused_text,
    rest_text,
    size,
    slowest_text,
    withheld_text,
    workers_text,
)
from greencrawl.schema.records import FINISHED, STOPPED, Crawl, CrawlStats, HostState, Stats
from greencrawl.schema.settings import Settings
from greencrawl.store.base import Store

WATCH_SECONDS = 1.0

IDLE = (
    "no worker is running: run the same command again, or start the processes, to go on with a "
    "stopped crawl"
)

OF_REDIS = ("waiting", "leased", "later")
"""Counts of a crawl that the store does not have."""
SUMS_OF_REDIS = ("admitted", "finished", "fetched", "requeued", "retries", "rewritten", "unchanged")
"""Sums over the whole life of a crawl. Only JSON shows them, and the store does not have them."""


@click.command()
@click.argument("crawl", required=False)
@click.option(
    "--watch", is_flag=True, help="Refresh every second, until all crawls are done or until Ctrl-C."
)
@click.option("--json", "as_json", is_flag=True, help="Print the counters as JSON.")
@connecting.data_option
def status(crawl: str | None, watch: bool, as_json: bool, data: str | None) -> None:
    """Show the state of crawls.

    For CRAWL, or for every crawl, the command shows state, counts, failures by kind and the slowest
    hosts. It asks the running broker. If none answers, the numbers are those of the store in the
    data folder, which does not know how many URLs wait. If no process works on a crawl, its state
    is shown as stopped; JSON has the state in the store.
    """
    settings = connecting.load(data)
    broker = connecting.required(settings) if watch else connecting.answering(settings)
    idle = False
    if broker is None:
        idle = connecting.nothing_runs(settings)
        note = f"{connecting.no_broker(settings)}: counts are from the store; ? means unknown"
        click.echo(note, err=True)
        stats = _offline(settings, crawl)
    elif watch:
        _watch(broker, crawl)
        return
    else:
        stats = broker.stats(crawl)
    if as_json:
        click.echo(_json(stats, whole=broker is not None))
    else:
        _console().print(table(stats, whole=broker is not None, idle=idle), highlight=False)


def _json(stats: Stats, *, whole: bool) -> str:
    """Return the counters. If they are not ``whole``, a counter that only Redis knows is null
    (except for a crawl that is done), and a host has only its name and latency."""
    said = msgspec.to_builtins(stats)
    if not whole:
        said["slowest"] = [
            {key: one[key] for key in ("host", "latency")} for one in said["slowest"]
        ]
    for one in said["crawls"]:
        if not whole:
            one |= dict.fromkeys(SUMS_OF_REDIS)
        if not whole and one.get("reason") != FINISHED:
            one |= dict.fromkeys(OF_REDIS)
    return msgspec.json.encode(said).decode()


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=160)


def table(stats: Stats, *, whole: bool = True, idle: bool = False) -> RenderableType:
    """Make a row for each crawl, then the slowest hosts. Numbers that may be higher are marked
    ``>=``.

    If the numbers are not ``whole``, a number that only Redis knows is a question mark (except for
    a crawl that is done), and bytes are those of stored bodies. If all is ``idle``, no process
    works on a crawl: then an active crawl is shown as stopped, as in its summary.
    """
    rows = Table(box=None, pad_edge=False)
    # The last two are rarely needed, and would not fit into 80 columns beside the others.
    spare = [name for name in ("overflow", "parked") if any(getattr(c, name) for c in stats.crawls)]
    for name in ("crawl", "state"):
        rows.add_column(name, overflow="fold")
    of_bodies = "transferred" if whole else "stored bytes"
    for name in ("stored", "waiting", "in flight", "later", "dead", of_bodies, *spare):
        rows.add_column(name, justify="right", no_wrap=True)
    least = ">=" if stats.away else ""  # URLs on a node that is away are not counted
    for one in stats.crawls:
        state: str = STOPPED if idle and one.state == "active" else one.state
        state = f"{state} ({one.reason})" if one.reason else state
        known = whole or one.reason == FINISHED
        waiting = [f"{least}{getattr(one, name):,}" if known else "?" for name in OF_REDIS]
        more = [f"{least}{getattr(one, name):,}" for name in spare]
        stored, dead = f"{least}{one.stored:,}", f"{least}{one.dead:,}"
        cells = (one.crawl, state, stored, *waiting, dead, f"{least}{size(one.bytes)}", *more)
        rows.add_row(*map(Text, cells))
    failures = [
        Text(f"{one.crawl}: {_of_tries(one, whole=whole)}: {failures_text(some)}")
        for one in stats.crawls
        if (some := failures_of(one)) or len(stats.crawls) == 1
    ]
    hooks = [
        Text(
            f"{one.crawl}: hook failed: {hooks_text(one.hooks)}; see "
            + advice.complete(f"`greencrawl hooks {one.crawl}`")
        )
        for one in stats.crawls
        if one.hooks
    ]
    put_off = [
        Text(f"{one.crawl}: put off: {put_off_text(one.put_off)}")
        for one in stats.crawls
        if one.put_off
    ]
    rewritten = [
        Text(f"{one.crawl}: links rewritten by normalise: {least}{one.rewritten:,}")
        for one in stats.crawls
        if one.rewritten
    ]
    kept = [Text(f"{one.crawl}: {text}") for one in stats.crawls if (text := withheld_text(one))]
    again = [Text(f"{one.crawl}: {text}") for one in stats.crawls for text in again_texts(one)]
    limits = [
        Text(advice.complete(text))
        for one in stats.crawls
        if (text := advice.at_limit(one.crawl, one.reason))
    ]
    refused = [Text(f"{one.crawl}: {refused_text(one)}") for one in stats.crawls if one.refused]
    slowest = Text(f"slowest hosts: {slowest_text(stats.slowest)}")
    rest = [Text(rest_text(stats))] if stats.rest_hosts else []
    away = [Text(away_text(one)) for one in stats.away]
    workers = [Text(text)] if (text := workers_text(stats)) else []
    if idle and any(one.state == "active" for one in stats.crawls):
        workers.append(Text(IDLE))
    full = [Text(full_text(one)) for one in stats.full]
    alerts = [Text(alert_text(one), style="yellow") for one in stats.alerts]
    tail = [*limits, *hooks, *rewritten, *kept, *refused, *rest, *away, *full, *alerts]
    return Group(rows, *failures, slowest, *workers, *again, *put_off, *tail)


def _of_tries(one: CrawlStats, *, whole: bool) -> str:
    """Return what its failures count: tries, or if the store counted them, URLs without a page."""
    return TRIES if whole and one.final_states is None else "not stored"


def _watch(broker: BrokerClient, crawl: str | None) -> None:
    with on_signals() as stop, Live(console=_console(), auto_refresh=False) as live:
        while True:
            stats = stop.within(partial(broker.stats, crawl), grace_seconds=0.0)
            if stats is None:
                return
            live.update(table(stats), refresh=True)
            done = all(one.state == "done" for one in stats.crawls)
            if done or stop.asked.wait(WATCH_SECONDS):
                return


def _offline(settings: Settings, crawl: str | None) -> Stats:
    with connecting.store(settings) as store:
        crawls: Sequence[Crawl] = store.crawls()
        chosen = [choose.one(crawls, crawl)] if crawl else crawls
        return Stats(tuple(_of_store(store, one) for one in chosen), _slowest(store, chosen))


def _slowest(store: Store, crawls: Sequence[Crawl]) -> tuple[HostState, ...]:
    """Return the slowest hosts of crawls. A host in several crawls gets its greatest latency."""
    hosts: dict[str, float] = {}
    for crawl in crawls:
        for host, seconds, _ in store.slowest_hosts(crawl.id, SLOWEST):
            if seconds:
                hosts[host] = max(seconds, hosts.get(host, 0.0))
    slowest = sorted(hosts, key=lambda host: -hosts[host])[:SLOWEST]
    return tuple(HostState(host=host, partition=0, latency=hosts[host]) for host in slowest)


def _of_store(store: Store, crawl: Crawl) -> CrawlStats:
    counts = store.counts(crawl.id)
    return CrawlStats(
        crawl=crawl.name,
        state=crawl.state,
        reason=crawl.reason,
        wakes_ms=crawl.wakes_ms,
        period=next(iter(store.periods(crawl.id, 1)), None),
        rounds=tuple(one for one in store.rounds(crawl.id) if not one.ended_ms),
        stored=counts["pages"],
        dead=counts["dead"],
        parked=counts["parked"],
        bytes=counts["bytes"],
        failures=failures_in(store, crawl),
        hooks=tuple(store.hook_counts(crawl.id)),
    )
