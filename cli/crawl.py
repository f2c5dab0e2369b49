"""``greencrawl crawl``: a crawl from its first URL to its closing summary."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console

from broker.client import BrokerClient
from cli import crawlfile, reach, summary
from cli.datafolder import LOCK, held
from cli.display import Display
from cli.options import crawl_options, given
from cli.processes import Processes, environment
from cli.site_server import Site, serve
from cli.stopping import Stop, on_signals
from cli.summary import Summary
from schema.errors import Refused, Unavailable
from schema.records import Crawl, CrawlOptions, CrawlStats, CreateCrawl, HostState
from schema.settings import Settings
from worker import hooks

T = TypeVar("T")

POLL_SECONDS = 0.5
"""Between two looks at the broker's counters."""

DEMO_DELAY_SECONDS = 0.02
"""The shipped site is our own; its pages need no second each."""


@dataclass(frozen=True)
class Job:
    """What the command line asks for. ``before`` is how many pages the crawl had stored before."""

    wanted: CreateCrawl
    settings: Settings
    fresh: bool = False
    before: int = 0


@dataclass(frozen=True)
class End:
    """How following a crawl ended: its last counters, and whether somebody stopped it."""

    stats: CrawlStats
    slowest: tuple[HostState, ...]
    seconds: float
    stopped: bool


@click.command()
@click.argument("targets", nargs=-1, metavar="URL...|FILE.toml")
@click.option("--crawl", "name", metavar="NAME", help="Name of the crawl.  [default: first host]")
@reach.data_option
@click.option(
    "--processes",
    type=click.IntRange(0),
    metavar="N",
    help="Worker processes.  [default: 1 a core]",
)
@click.option(
    "--summary",
    "summary_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.json",
    help="Write the closing summary there, too.",
)
@click.option("--fresh", is_flag=True, help="Delete what the crawl has stored and start over.")
@click.option("--demo", is_flag=True, help="Serve the shipped site on loopback and crawl it.")
@crawl_options
def crawl(
    targets: tuple[str, ...],
    name: str | None,
    data: str | None,
    processes: int | None,
    summary_file: Path | None,
    fresh: bool,
    demo: bool,
    **options: Any,
) -> None:
    """Crawl until nothing is left to fetch.

    Begins at the URLs given, or as FILE.toml says. Starts a broker and workers of its own,
    shows the progress, and ends with a summary. Ctrl-C stops cleanly; the same command again
    resumes. With GREENCRAWL_BROKER set, the crawl is given to that broker and only watched from
    here.

    FILE.toml holds the options below under the same names (max_pages = 100), with seeds = [...]
    and, if wanted, name = "..."; an option given here wins over the file.
    """
    asked = given(options)
    settings = reach.load(data, processes=None if processes is None else str(processes))
    with ExitStack() as site:
        if demo:
            if targets:
                raise click.UsageError("--demo crawls the shipped site: give no URL beside it")
            targets, name = (site.enter_context(serve(Site())),), name or "demo"
            asked.setdefault("delay", DEMO_DELAY_SECONDS)
            settings = _demo_settings(settings)
        wanted = crawlfile.build(targets, asked, name)
        if reach.named_broker() and not demo:
            code, result = _elsewhere(Job(wanted, settings, fresh))
        else:
            hooks.load(wanted.hook)
            code, result = _here(Job(wanted, settings, fresh), wipe=demo)
    if result is not None:
        summary.show(result, Console(width=None if sys.stdout.isatty() else 160))
        if summary_file is not None:
            summary.write(result, summary_file)
    click.get_current_context().exit(code)


def _demo_settings(settings: Settings) -> Settings:
    """A folder of its own inside the data folder; the site's address allowed."""
    networks = [*map(str, settings.allow_networks), "127.0.0.1/32"]
    return reach.load(
        str(settings.data / "demo"),
        processes=str(settings.processes),
        allow_networks=",".join(dict.fromkeys(networks)),
    )


# --- with processes of our own -----------------------------------------------------------------


def _here(job: Job, *, wipe: bool) -> tuple[int, Summary | None]:
    """Run the crawl with a broker and workers of this command; (exit code, summary).

    ``wipe`` empties the data folder first.
    """
    if not os.environ.get("GREENCRAWL_BIND"):
        job = replace(job, settings=replace(job.settings, bind=("127.0.0.1", _free_port())))
    settings = job.settings
    address = reach.own_address(settings)
    with on_signals() as stop, held(settings.data, "crawl", address):
        if wipe:
            _empty(settings.data)
        known = _stored(job)
        if known is not None and not job.fresh:
            if _is_finished(known[0], job.wanted):
                _say(f"crawl {known[0].name} is finished; to crawl it again, add --fresh")
                return 0, known[1]
            job = replace(job, before=known[1].pages)
        processes = Processes(
            _environment(settings, address), settings.data / "logs", settings.request_seconds
        )
        broker = reach.client(settings, address)
        try:
            processes.start(lambda: reach.is_ready(broker), stop.asked)
            end = follow(job, broker, stop, processes)
        finally:
            if stop.asked.is_set():
                _say("stopping: requests under way end first (Ctrl-C again kills)")
            processes.stop(stop.impatient)
        result = _of_end(job, end)
    if end is None or end.stopped:
        _say("stopped; run the same command again to resume")
        return stop.exit_code, result
    return 0, result


def _of_end(job: Job, end: End | None) -> Summary | None:
    if end is None:
        return None
    made = summary.of_run(end.stats, end.slowest, end.seconds, job.before)
    with reach.store(job.settings) as store:
        url, export = job.settings.store_url, export_hint(made.crawl, job.settings.data)
        return summary.with_store(made, store, url, export, job.before)


def _stored(job: Job) -> tuple[Crawl, Summary] | None:
    """The crawl of that name in the store, and its summary; None if there is none."""
    path = reach.sqlite_path(job.settings)
    if path is not None and not path.exists():
        return None
    with reach.store(job.settings) as store:
        known = [crawl for crawl in store.crawls() if crawl.name == job.wanted.name]
        if not known:
            return None
        hint = export_hint(known[0].name, job.settings.data)
        return known[0], summary.of_store(store, known[0], job.settings.store_url, hint)


def export_hint(name: str, data: Path) -> str:
    """The command that exports the crawl, as it can be typed where this one was."""
    folder = "" if data == Path("data").absolute() else f" --data {shlex.quote(_short(data))}"
    return f"greencrawl export {name}{folder} -o {name}.jsonl"


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _environment(settings: Settings, address: str) -> dict[str, str]:
    host, port = settings.bind
    return environment(
        os.environ,
        data=str(settings.data),
        bind=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        broker=address,
        processes=str(settings.processes),
        allow_networks=",".join(map(str, settings.allow_networks)),
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _empty(data: Path) -> None:
    """Delete everything in the demo's own folder but the lock that we hold."""
    for entry in data.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != LOCK:
            entry.unlink()


# --- with a broker that runs elsewhere ---------------------------------------------------------


def _elsewhere(job: Job) -> tuple[int, Summary | None]:
    """Give the crawl to the broker that the environment names, and watch it."""
    broker = reach.required(job.settings)
    known = _known(broker, job.wanted.name)
    stats = broker.stats(job.wanted.name).crawls[0] if known else None
    if known and stats and not job.fresh and _is_finished(known, job.wanted):
        _say(f"crawl {known.name} is finished; to crawl it again, add --fresh")
        return 0, summary.of_run(stats, (), 0.0, stats.stored)
    if stats and not job.fresh:
        job = replace(job, before=stats.stored)
    with on_signals() as stop:
        end = follow(job, broker, stop, None)
    if end is None or end.stopped:
        name = job.wanted.name
        _say(f"the crawl goes on; look again with `greencrawl status {name} --watch`")
        return stop.exit_code, None
    return 0, summary.of_run(end.stats, end.slowest, end.seconds, job.before)


# --- following a crawl -------------------------------------------------------------------------


def follow(job: Job, broker: BrokerClient, stop: Stop, processes: Processes | None) -> End | None:
    """Create or update the crawl and show it until it is done or ``stop`` is asked for.

    A broker that is away is waited for, and our own processes are started again when they die.
    None when it was stopped before there was anything to count. Raises
    :class:`schema.errors.Refused` when the broker will not have the crawl, and
    :class:`cli.processes.ProcessFailed` when our processes keep dying.
    """
    name = job.wanted.name
    with Display(Console(stderr=True)) as display:

        def ask(call: Callable[[], T]) -> T | None:
            """The answer, however long the broker is away; None once stopped."""
            while not stop.asked.is_set():
                for dead in processes.revive() if processes else ():
                    display.note(f"the {dead} died and was started again")
                try:
                    return call()
                except Unavailable as error:
                    display.note(f"waiting for the broker: {error}")
                    stop.asked.wait(POLL_SECONDS)
            return None

        if job.fresh:
            ask(lambda: _delete(broker, name, stop))
        created = ask(lambda: broker.put_crawl(job.wanted))
        if created is not None and created.state == "paused":
            ask(lambda: broker.resume(name))
        last: tuple[CrawlStats, tuple[HostState, ...]] | None = None
        while (stats := ask(lambda: broker.stats(name))) is not None:
            last = (stats.crawls[0], stats.slowest)
            display.show(*last)
            if last[0].state == "done" or stop.asked.wait(POLL_SECONDS):
                break
        seconds = display.seconds
    if last is None:
        return None
    return End(*last, seconds=seconds, stopped=last[0].state != "done")


def _known(broker: BrokerClient, name: str) -> Crawl | None:
    try:
        return broker.crawl(name)
    except Refused as error:
        if error.status == 404:
            return None
        raise


def _delete(broker: BrokerClient, name: str, stop: Stop) -> None:
    """Delete the crawl and wait until its rows are gone: its name is free only then."""
    if _known(broker, name) is not None:
        broker.delete(name)
    while _known(broker, name) is not None and not stop.asked.wait(0.1):
        continue


def _is_finished(crawl: Crawl, wanted: CreateCrawl) -> bool:
    """Whether running ``wanted`` again would change nothing: it is done, with the same options."""
    fields = {name: getattr(wanted, name) for name in CrawlOptions.__struct_fields__}
    return crawl.state == "done" and crawl.options == msgspec.convert(fields, CrawlOptions)


def _say(text: str) -> None:
    click.echo(text, err=True)
