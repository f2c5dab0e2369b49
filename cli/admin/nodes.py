"""``greencrawl nodes``, ``order``, ``drain``: the nodes of the system, and their orders."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from greencrawl.broker.api.messages import OrderRequest
from greencrawl.broker.client import BrokerClient
from greencrawl.cli import connecting, key_values
from greencrawl.cli.local.stopping import on_signals
from greencrawl.cli.ui.display import duration, failures_text, moment, number_of, printable, size
from greencrawl.schema.bearer import is_loopback
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import GreencrawlError, InvalidConfig
from greencrawl.schema.records import ALL, MemberState, NodeOptions, NodeOrders
from greencrawl.schema.settings import KEYS, PREFIX, SECRETS, Settings
from greencrawl.store.mysql.cluster import topology

LOOK_SECONDS = 0.5
LOG = 20
"""At most this many orders of a node are shown."""
JOIN = (
    "WORKER_TOKEN", "REDIS", "STORE", "BODIES", "TLS_CA", "SESSION_KEY", "PARTITIONS",
    "LEASE_SECONDS", "REQUEST_SECONDS", "ALLOW_NETWORKS", "ALLOW_PORTS", "DNS_SERVERS", "HOOKS",
)  # fmt: skip
"""Settings that a worker elsewhere must share, if they are not the defaults."""


@click.command()
@click.argument("node", required=False)
@click.option("--gone", is_flag=True, help="Also list nodes that have left or are lost.")
@click.option(
    "--join", is_flag=True, help="Print the command that starts a worker on another machine."
)
@click.option(
    "--forget",
    is_flag=True,
    help="Remove NODE, which is gone for good, with its alert and its orders.",
)
@connecting.data_option
def nodes(node: str | None, gone: bool, join: bool, forget: bool, data: str | None) -> None:
    """List the nodes that work together: workers, brokers, loggers.

    Each line is a node, with values that are separated by tabs: name, kind, state, processes, hosts
    with a request under way, requests and pages per second, memory, version. With NODE the command
    shows the reports of this node, the options that it follows and who set them, and its orders.
    """
    settings = connecting.load(data)
    if join:
        click.echo(join_line(settings))
        click.echo(
            "this command has passwords of this system; run it in a checkout on the other machine",
            err=True,
        )
        return
    if forget and node is None:
        raise click.UsageError("--forget needs a NODE")
    broker = connecting.living(settings)
    if forget:
        broker.order(OrderRequest(_name(node or ""), forget=True, by=key_values.person()))
        click.echo(printable(f"{node}: forgotten"))
        return
    members = broker.members(node or "", gone=gone or node is not None).members
    if node is None:
        for name, some in _by_node(members):
            click.echo("\t".join(map(printable, _line(name, some))))
        return
    if not members:
        raise GreencrawlError(f"no node {node}: `greencrawl nodes --gone` lists all")
    for member in members:
        for line in _told(member):
            click.echo(printable(line))
    for line in _ordered(broker, node):
        click.echo(printable(line))


@click.command()
@click.argument("node")
@click.argument("options", nargs=-1, required=True, metavar="KEY=VALUE…")
@connecting.data_option
def order(node: str, options: Sequence[str], data: str | None) -> None:
    """Give orders to a node, or to `all` nodes.

    KEY is processes, greenlets, requests_per_second, paused, drain or log_level. Nodes follow
    within a second. An order is valid, even after restarts, until `KEY=` takes it back. An order to
    one node wins over an order to all nodes.
    """
    wanted = key_values.parsed(options, NodeOptions)
    broker = connecting.living(connecting.load(data))
    _order(broker, node, wanted)
    for line in _ordered(broker, node, log=0):
        click.echo(printable(line))


@click.command()
@click.argument("node")
@connecting.data_option
def drain(node: str, data: str | None) -> None:
    """Let a worker hand back its URLs, before it is switched off.

    The worker also leases no more URLs.

    The command waits until the worker has handed back everything. If you stop the command, the
    worker still does so.
    `greencrawl order NODE drain=` lets it crawl again.
    """
    broker = connecting.living(connecting.load(data))
    _order(broker, node, {"drain": True})
    said = ""
    with on_signals() as asked:
        while True:
            members = broker.members("" if node == "all" else node).members
            some = [one for one in members if one.kind == "worker"]
            silent = [one.id for one in some if one.status != "here"]
            some = [one for one in some if one.status == "here"]
            late = [one for one in some if not _drains(one)]
            held = sum(one.facts.held for one in some)
            if not late and not held:
                if silent:
                    raise GreencrawlError(
                        f"{', '.join(silent)} does not report, so its leased tasks are unknown: "
                        "they end with their leases"
                    )
                click.echo(f"{node}: drained")
                return
            text = f"{number_of(held, 'host')} {'is' if held == 1 else 'are'} held"
            if text != said:
                click.echo(said := text, err=True)
            if asked.asked.wait(LOOK_SECONDS):
                click.echo("the node goes on", err=True)
                return


def _drains(member: MemberState) -> bool:
    """Return whether the member has said that it follows the order."""
    found = member.facts.options.get("drain")
    return found is not None and found.value is True


def _name(node: str) -> str:
    return ALL if node == "all" else node


def _order(broker: BrokerClient, node: str, wanted: Mapping[str, Any]) -> NodeOrders:
    given = NodeOptions(**{name: value for name, value in wanted.items() if value is not None})
    unset = tuple(name for name, value in wanted.items() if value is None)
    return broker.order(
        OrderRequest(_name(node), given, unset, by=key_values.person())  # type: ignore[arg-type]
    )


def _by_node(members: Iterable[MemberState]) -> Iterable[tuple[str, list[MemberState]]]:
    some = sorted(members, key=lambda one: (one.kind, one.node, one.id))
    return ((name, list(found)) for name, found in groupby(some, key=lambda one: one.node))


def _line(name: str, some: Sequence[MemberState]) -> list[str]:
    here = [one for one in some if one.status == "here"]
    states = sorted({one.status for one in some})
    told = [one.facts for one in here]
    return [
        name,
        some[0].kind,
        ", ".join(states),
        "1 process" if len(here) == 1 else f"{len(here)} processes",
        number_of(sum(one.sessions for one in told), "host"),
        f"{sum(one.requests_per_second for one in told):,.1f} requests/s",
        f"{sum(one.pages_per_second for one in told):,.1f} pages/s",
        size(sum(one.rss_bytes for one in told)),
        ", ".join(sorted({one.version for one in some})),
    ]


def _told(member: MemberState) -> Iterable[str]:
    facts = member.facts
    since = f"since {moment(member.joined_ms)}"
    if member.left_ms:
        since = f"{since}, {member.why} {moment(member.left_ms)}"
    elif member.heard_ms:
        since = f"{since}, heard {duration(max(0, epoch_ms() - member.heard_ms) / 1000)} ago"
    at = f" at {member.address}" if member.address else ""
    yield f"{member.id}: {member.status} {since}; {member.kind} {member.version}{at}"
    yield (
        f"  pid {facts.pid} on {facts.machine}, {size(facts.rss_bytes)}, "
        f"{facts.cpu_seconds:,.1f} s of CPU"
    )
    if member.kind == "worker":
        yield (
            f"  {facts.sessions:,} of {facts.greenlets:,} hosts under way, {facts.held:,} held, "
            f"{size(facts.backlog_bytes)} to be stored"
        )
        yield (
            f"  {facts.requests:,} requests ({facts.requests_per_second:,.1f}/s), "
            f"{facts.pages:,} pages ({facts.pages_per_second:,.1f}/s), {size(facts.bytes)}"
        )
    if facts.failures:
        yield f"  {failures_text(facts.failures)}"
    for name, kept in facts.options.items():
        yield f"  {name} = {_shown(kept.value)} ({kept.source})"


def _ordered(broker: BrokerClient, node: str, log: int = LOG) -> Iterable[str]:
    """Return the orders of a node, and who gave them."""
    name = _name(node)
    for one in broker.orders().nodes:
        every = msgspec.structs.asdict(one.options)
        given = {key: value for key, value in every.items() if value is not None}
        if one.member in (name, ALL) and given:
            who = "all" if one.member == ALL else one.member
            said = ", ".join(f"{key}={_shown(value)}" for key, value in given.items())
            yield f"orders for {who}: {said} (revision {one.revision})"
    if not log:
        return
    past = [e for one in {name, ALL} for e in broker.orders_log(node=one, limit=log).items]
    for entry in sorted(past, key=lambda entry: entry.revision, reverse=True)[:log]:
        said = ", ".join(f"{k}={_shown(v)}" for k, v in entry.changed.items())
        to = " for all" if entry.member == ALL and name != ALL else ""
        yield f"{moment(entry.at_ms)} {entry.by_whom or '-'}{to}: {said}"


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def join_line(settings: Settings) -> str:
    """Return the command that starts a worker of this system on another machine.

    Raises InvalidConfig if no other machine can join: the message names the settings that only
    work on this machine.
    """
    own = settings.broker if connecting.named_broker() else (connecting.own_address(settings),)
    problems = [
        (f"{PREFIX}BIND", f"{at} is this machine alone: bind the broker to an address of it, or "
         f"name that in {PREFIX}BROKER")
        for at in own if is_loopback(urlsplit(at).hostname or "")
    ]  # fmt: skip
    redis = (urlsplit(at) for at in settings.redis)
    if settings.embedded_redis or any(
        at.scheme == "unix" or is_loopback(at.hostname or "") for at in redis
    ):
        problems.append((f"{PREFIX}REDIS", "name a Redis that other machines reach"))
    if not settings.store.startswith("mysql"):
        problems.append((f"{PREFIX}STORE", "SQLite is a file of this machine: use MySQL"))
    elif any(is_loopback(one.host) for one in topology.parse(settings.store).servers):
        problems.append((f"{PREFIX}STORE", "name MySQL servers as other machines reach them"))
    if problems:
        raise InvalidConfig(problems)
    given = {"BROKER": ",".join(own)}
    for key in JOIN:
        value = getattr(settings, key.lower())
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        default, parse, _ = KEYS[key]
        if value != parse(default) and (text or key not in SECRETS):
            given[key] = text
    words = [f"{PREFIX}{key}={shlex.quote(text)}" for key, text in given.items()]
    return " ".join([*words, "python -m greencrawl.worker"])
