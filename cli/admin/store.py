"""``greencrawl store …``: the servers of the store: their state, and actions on them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from greencrawl.cli import connecting
from greencrawl.cli.ui.display import printable, size
from greencrawl.schema import log
from greencrawl.schema.errors import GreencrawlError, InvalidConfig
from greencrawl.schema.settings import Settings, mask_url
from greencrawl.store.mysql.cluster import topology
from greencrawl.store.sqlite.connection import translated
from greencrawl.store.steward import steward_of

if TYPE_CHECKING:
    from greencrawl.store.mysql.cluster.observe import Observation
    from greencrawl.store.mysql.cluster.register import WriterTerm
    from greencrawl.store.mysql.cluster.steward.servers import Report
    from greencrawl.store.mysql.cluster.steward.steward import Steward
    from greencrawl.store.mysql.connection import Db


@click.group()
def store() -> None:
    """Show the servers of the store, and act on them.

    Brokers look after a store of two masters by themselves. You need `form` once, and the other
    commands after the loss of a server (docs/operations.md).
    """
    log.configure("store", "error")


@store.command()
@click.option("--json", "as_json", is_flag=True, help="Print the state of a ring as JSON.")
@connecting.data_option
def status(as_json: bool, data: str | None) -> int:
    """Show the state of the servers, and what to do.

    The command shows which server takes writes, which ones acknowledge them, and how far the others
    are behind.

    The exit code is 1 if there is something to do.
    """
    settings = connecting.load(data)
    path = connecting.sqlite_path(settings)
    steward = steward_of(settings.store_url, settings.store_steward)
    if as_json and steward is None:
        raise click.UsageError("--json is for a ring of two masters, and GREENCRAWL_STORE is none")
    if path is not None:
        _show_file(path)
        return 0
    if steward is None:
        _show_server(settings)
        return 0
    with closing(steward):
        report = steward.look()
    if as_json:
        click.echo(msgspec.json.encode(report).decode())
    else:
        _show(steward, report)
    return 1 if report.findings else 0


@store.command()
def form() -> None:
    """Make one store of empty servers.

    All servers must run. Each gets a vote. The first master is opened for writing, the second one
    acknowledges commits, and the replicas copy them. Running the command again changes nothing.
    """
    from greencrawl.store.mysql.cluster.steward import by_hand

    with closing(_steward()) as steward:
        by_hand.form(steward)
        _show(steward, steward.look())


@store.command()
@click.argument("server", required=False, default="")
@click.option(
    "--lose",
    is_flag=True,
    help="Also if SERVER lacks acknowledged transactions: those that only the other has are lost.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def takeover(server: str, lose: bool, yes: bool) -> None:
    """Let SERVER take writes from now on.

    SERVER is HOST:PORT, by default the other master.

    Transactions that are under way end first, and nothing is lost. Brokers do this by themselves
    when the writer is lost.
    """
    from greencrawl.store.mysql.cluster.steward import by_hand

    if lose and not yes:
        click.confirm("Pages that only the present writer has will be lost. Go on?", abort=True)
    with closing(_steward()) as steward:
        _say(by_hand.hand_over(steward, server, lose=lose))
    click.echo("the brokers let the other master follow it")


@store.command()
@click.argument("server")
def rejoin(server: str) -> None:
    """Add a server again after it was set up again.

    SERVER (HOST:PORT) may be empty, or a copy of another server.

    You need not run this for a server that comes back with its own data.
    """
    from greencrawl.store.mysql.cluster.steward import by_hand

    with closing(_steward()) as steward:
        by_hand.enrol(steward, server)
    click.echo(f"{server} has a vote again; the brokers let it follow")


@store.command()
@click.option(
    "--folder",
    default="data/cluster",
    metavar="DIR",
    show_default=True,
    help="The folder of their configuration and data.",
)
@click.option("--stop", is_flag=True, help="Stop the servers; their data stays.")
def local(folder: str, stop: bool) -> None:
    """Start five MariaDB servers on loopback, to try a cluster.

    They are two masters and three replicas.

    The servers go on when the command ends. Running it again starts servers that do not run.
    """
    from greencrawl.store.mysql.cluster.local.cluster import LocalCluster
    from greencrawl.store.mysql.cluster.steward import by_hand

    cluster = LocalCluster(Path(folder))
    if stop:
        cluster.stop()
        click.echo(f"stopped; the data stays in {folder}")
        return
    cluster.start()
    steward = steward_of(cluster.url(), cluster.steward)
    assert steward is not None
    with closing(steward):
        by_hand.form(steward)
        _show(steward, steward.look())
    click.echo(
        "\nTo use it:\n"
        f"  export GREENCRAWL_STORE='{cluster.url()}'\n"
        f"  export GREENCRAWL_STORE_STEWARD={cluster.steward}\n"
        "  ./greencrawl crawl https://example.org/ --max-pages 50\n"
        "  ./greencrawl store status\n"
        "The second is for brokers and `greencrawl store`. make cluster-stop stops the servers; "
        f"their data is in {folder}."
    )


def _steward() -> Steward:
    settings = connecting.load()
    steward = steward_of(settings.store_url, settings.store_steward)
    if steward is None:
        raise InvalidConfig([("GREENCRAWL_STORE", "names no ring of two masters")])
    return steward


# -- output


def _show(steward: Steward, report: Report) -> None:
    """Show a row for each server, then what is wrong."""
    rows = Table(box=None, pad_edge=False)
    for name in ("server", "role", "state", "lag", "follows", "commits"):
        rows.add_column(name)
    masters = {str(server) for server in steward.topology.masters}
    for one in report.servers:
        cells = (
            one.name,
            _role(one, report.term, master=one.name in masters),
            _state(one, report.term),
            _lag(one),
            one.following.leader if one.following else "–",
            _commits(one, report.term),
        )
        rows.add_row(*map(Text, map(printable, cells)))
    console = Console()
    console = console if console.is_terminal else Console(width=160)
    console.print(rows, highlight=False)
    if report.term is not None:
        _say(report.term)
    for note in _findings(report):
        click.echo(f"! {printable(note)}")


def _say(term: WriterTerm) -> None:
    by = f"acknowledged by {term.partner}" if term.partner else "acknowledged by nobody else"
    click.echo(f"{term.writer} takes writes since epoch {term.epoch}, {by}")


def _findings(report: Report) -> list[str]:
    new = [one.up and not one.epoch for one in report.servers]
    if report.term is None and all(new):
        return ["these servers form no store yet: greencrawl store form"]
    away = [f"{one.name}: {one.error}" for one in report.servers if not one.up and one.error]
    return [*report.findings, *away]


def _role(one: Observation, term: WriterTerm | None, *, master: bool) -> str:
    if not master:
        return "replica"
    if term is not None and one.name == term.writer:
        return "master, takes writes"
    return "master, acknowledges" if term and one.name == term.partner else "master"


def _state(one: Observation, term: WriterTerm | None) -> str:
    if not one.up:
        return "away"
    if one.following is not None and not one.following.running:
        return "does not follow"
    if term is not None and one.name == term.writer:
        return "open" if one.open and not one.read_only else "not open yet"
    return "read-only" if one.read_only else "NOT read-only"


def _lag(one: Observation) -> str:
    if one.following is None:
        return "–"
    seconds = one.following.behind_seconds
    return "unknown" if seconds is None else f"{seconds:g} s"


def _commits(one: Observation, term: WriterTerm | None) -> str:
    if not one.up or term is None or one.name != term.writer:
        return "–"
    if not one.asks_ack:
        return "alone"
    waiting = f", {one.hanging} wait" if one.hanging else ""
    return f"acknowledged{waiting}" if one.clients else f"nobody acknowledges{waiting}"


def _show_file(path: Path) -> None:
    """Show a SQLite store: its size, and how many rows its tables have."""
    if not path.exists():
        raise GreencrawlError(connecting.nothing_in(path.parent))
    with (
        translated(path),
        closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as database,
    ):
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchone():
            raise GreencrawlError(f"{path} is no store of Greencrawl's")
        names = [
            name
            for (name,) in database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' "
                "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
            )
        ]
        rows = [
            (name, *database.execute(f'SELECT count(*) FROM "{name}"').fetchone()) for name in names
        ]
        migration = database.execute("SELECT max(number) FROM migrations").fetchone()[0]
    click.echo(f"{path}: {size(path.stat().st_size)}, migration {migration:04d}")
    _show_counts(rows)


def _show_server(settings: Settings) -> None:
    """Show one MySQL server; its rows are the server's estimate."""
    from greencrawl.store.mysql.cluster.routing import Cluster

    def ask(db: Db) -> tuple[str, int, list[tuple[str, int]], int]:
        db.execute("SELECT VERSION()")
        version = str((db.fetchone() or ("",))[0])
        db.execute(
            "SELECT table_name, COALESCE(table_rows, 0), "
            "COALESCE(data_length, 0) + COALESCE(index_length, 0) FROM information_schema.tables "
            "WHERE table_schema = DATABASE() ORDER BY table_name"
        )
        found = db.fetchall()
        has = any(name == "migrations" for name, _, _ in found)
        db.execute("SELECT max(number) FROM migrations" if has else "SELECT 0")
        migration = int((db.fetchone() or (0,))[0] or 0)
        tables = [(name, int(rows)) for name, rows, _ in found]
        return version, migration, tables, sum(int(length) for _, _, length in found)

    with closing(Cluster(topology.parse(settings.store_url))) as cluster:
        version, migration, tables, length = cluster.read(ask)
    click.echo(
        f"{mask_url(settings.store_url)}: {version}, about {size(length)}, "
        f"migration {migration:04d}; rows are estimates"
    )
    _show_counts(tables)


def _show_counts(rows: list[tuple[str, int]]) -> None:
    wide = max((len(name) for name, _ in rows), default=0)
    for name, count in rows:
        click.echo(f"{name:<{wide}} {count:>15,}")
