"""``greencrawl crawl``: runs a crawl from its first URL to its summary."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from greencrawl.cli import connecting, crawlfile
from greencrawl.cli.commands.explain import in_store
from greencrawl.cli.local import permits
from greencrawl.cli.local.allowed import allowed_now
from greencrawl.cli.local.data_folder import LOCK, REDIS_SERVER_LOCK, await_broker, held
from greencrawl.cli.local.processes import Processes, environment, kept_port
from greencrawl.cli.local.site_server import Site, serve
from greencrawl.cli.local.stopping import on_signals
from greencrawl.cli.options import crawl_options, given
from greencrawl.cli.ui import advice, nothing_stored, summary
from greencrawl.cli.ui.follow import End, follow, is_finished, known_at, last_look, over_text
from greencrawl.cli.ui.summary import Summary
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.net.origins import Origins
from greencrawl.schema.net.permits import OWN
from greencrawl.schema.net.scope import starts
from greencrawl.schema.net.urls import canonicalise
from greencrawl.schema.records import Crawl, CrawlOptions, CreateCrawl, UrlState
from greencrawl.schema.settings import Settings, mask_url
from greencrawl.schema.text.again import limited_text
from greencrawl.worker import hooks
from greencrawl.worker.auth import LoginRefused
from greencrawl.worker.auth.kinds.registry import make
from greencrawl.worker.auth.state.secrets import Secrets
from greencrawl.worker.extract.main import NO_MAIN_TEXT, available
from greencrawl.worker.kernels.choosing import Kernels

NOTHING = 1
"""Exit code of a crawl that ended and has stored nothing at all."""

STOPPED = "stopped; run the same command again to resume"

DEMO_DELAY_SECONDS = 0.02
"""The shipped site is our own; its pages need no delay of a second."""


@dataclass(frozen=True)
class Job:
    """The settings and the crawl of the command line."""

    wanted: CreateCrawl
    settings: Settings
    fresh: bool = False
    stay: bool = False


@click.command()
@click.argument("targets", nargs=-1, metavar="URL...|FILE.toml")
@click.option("--crawl", "name", metavar="NAME", help="Name of the crawl.  [default: first host]")
@connecting.data_option
@click.option(
    "--processes",
    type=click.IntRange(0),
    metavar="N",
    help="Number of worker processes.  [default: 1 per core]",
)
@click.option(
    "--summary",
    "summary_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.json",
    help="Also write the summary to this file.",
)
@click.option(
    "--fresh",
    is_flag=True,
    help="Fetch everything again; stored pages stay until their new versions are stored. Not "
    "with --max-pages and other limits.",
)
@click.option(
    "--every",
    metavar="TIME",
    help="Begin again from the seeds after this time (90m, 12h, 1d), counted from each start.  "
    "[default: never]",
)
@click.option(
    "--again",
    metavar="N|all",
    help="In each period also fetch known pages that have changed, up to this depth, or all.  "
    "[default: only the seeds]",
)
@click.option("--follow", "stay", is_flag=True, help="Keep running between two periods.")
@click.option("--demo", is_flag=True, help="Serve the shipped site on loopback and crawl it.")
@crawl_options
def crawl(
    targets: tuple[str, ...],
    name: str | None,
    data: str | None,
    processes: int | None,
    summary_file: Path | None,
    fresh: bool,
    every: str | None,
    again: str | None,
    stay: bool,
    demo: bool,
    **options: Any,
) -> None:
    """Crawl until nothing is left to fetch.

    The crawl starts from the given URLs, or as FILE.toml says. The command runs a broker and
    workers of its own, shows the progress, and ends with a summary. Ctrl-C stops cleanly; the same
    command resumes. If GREENCRAWL_BROKER is set, that broker gets the crawl, and the command only
    shows it. If no page at all was stored, the exit code is 1, and the reason is printed. For a
    crawl that begins again (--every) the command ends when the crawl first rests, unless --follow
    is given.

    FILE.toml has the options below under the same names (max_pages = 100). It also has seeds =
    [...], and may have name = "...". An option on the command line wins over the file.
    """
    recrawl = _recrawl(every, again)
    asked = given(options) | ({"recrawl": recrawl} if recrawl else {})
    settings = connecting.load(data, processes=None if processes is None else str(processes))
    if summary_file is not None:
        summary.check_writable(summary_file)
    with ExitStack() as site:
        if demo:
            if targets:
                raise click.UsageError("--demo crawls the shipped site: give no URL with it")
            targets, name = (site.enter_context(serve(Site())),), name or "demo"
            asked.setdefault("delay", DEMO_DELAY_SECONDS)
            settings = _demo_settings(settings)
        wanted = crawlfile.build(targets, asked, name)
        if fresh and (limited := limited_text(wanted.name, wanted)):
            raise InvalidConfig([("--fresh", f"{limited}: leave out --fresh, or the limit")])
        if connecting.named_broker() and not demo:
            code, result = _elsewhere(Job(wanted, settings, fresh, stay))
        else:
            hooks.load(wanted.hook)
            Kernels(wanted)
            _check_logins(wanted, settings)
            code, result = _here(Job(wanted, settings, fresh, stay), delete_data=demo)
    if result is not None:
        if demo and os.environ.get("GREENCRAWL_STORE"):
            result = msgspec.structs.replace(result, export=f"GREENCRAWL_STORE= {result.export}")
        summary.show(result, Console(width=None if sys.stdout.isatty() else 160))
        if summary_file is not None:
            summary.write(result, summary_file)
        if not result.pages:
            code = code or NOTHING
            first = shlex.quote(starts(wanted)[0][1])
            elsewhere = connecting.named_broker() and not demo
            begins = _begins(Job(wanted, settings), elsewhere=elsewhere)
            why = nothing_stored.reasons(result, begins) or ["nothing was found to fetch"]
            _say("\n  ".join(["no page is stored:", *why]))
            _say(f"`greencrawl explain {first}` says more")
    click.get_current_context().exit(code)


def _recrawl(every: str | None, again: str | None) -> dict[str, object]:
    """Return what the command line says of ``[recrawl]``."""
    found: dict[str, object] = {"every": every} if every else {}
    if again is not None:
        found["depth"] = int(again) if again.isascii() and again.isdigit() else again
    return found


def _begins(job: Job, *, elsewhere: bool) -> list[UrlState]:
    """Return the states of the first URLs of the crawl; an empty list if they are not known."""
    urls = [url for _, url in starts(job.wanted)][: nothing_stored.URLS]
    name = job.wanted.name
    if elsewhere:
        broker = connecting.answering(job.settings)
        return [state for url in urls for state in broker.url(url, name)] if broker else []
    with connecting.store(job.settings) as store:
        identity, crawl = store.frontier(), store.crawl(name)
        if identity is None:
            return []
        return [in_store(store, crawl, url, identity) for url in urls]


def _check_logins(wanted: CreateCrawl, settings: Settings) -> None:
    """Raise InvalidConfig that names every secret that this host lacks.

    Log each entry without a seed on its hosts.
    """
    begins = [canonicalise(url) for _, url in starts(wanted)]
    secrets = Secrets(settings.credentials_file)
    problems: list[tuple[str, str]] = []
    for entry in wanted.auth:
        try:
            make(entry, secrets.of(entry), OWN)
        except InvalidConfig as error:
            problems += error.problems
        except LoginRefused as error:
            problems.append((f"auth {entry.name}", str(error)))
        if not any(map(Origins(entry.hosts).hold, begins)):
            _say(
                f"auth {entry.name}: no seed is on its hosts "
                f"({', '.join(entry.hosts)}); write http://… for a host without TLS"
            )
    if problems:
        raise InvalidConfig(problems)


def _demo_settings(settings: Settings) -> Settings:
    """Return settings for the demo, which allow the address of its site.

    The demo has its own folder and store inside the data folder. Each demo empties this folder.
    """
    networks = [*map(str, settings.allow_networks), "127.0.0.1/32"]
    folder = settings.data / connecting.DEMO
    return connecting.load(
        str(folder),
        store=f"sqlite:///{folder / 'content.sqlite'}",
        bodies="sql",
        processes=str(settings.processes),
        allow_networks=",".join(dict.fromkeys(networks)),
    )


# --- with this command's own processes ---------------------------------------------------------


def _here(job: Job, *, delete_data: bool) -> tuple[int, Summary | None]:
    """Run the crawl with a broker and workers of this command; return (exit code, summary).

    ``delete_data`` empties the data folder first.
    """
    with ExitStack() as stack:
        if not os.environ.get("GREENCRAWL_BIND"):
            port = stack.enter_context(kept_port())
            job = replace(job, settings=replace(job.settings, bind=("127.0.0.1", port)))
        return _at_address(job, delete_data=delete_data)


def _at_address(job: Job, *, delete_data: bool) -> tuple[int, Summary | None]:
    """Run :func:`_here` with the address for the broker to listen at in the settings."""
    settings = job.settings
    address = connecting.own_address(settings)
    with on_signals() as stop, held(settings.data, "crawl", address):
        # before the store is opened: the other broker may still have it open
        await_broker(settings.data, stop.asked, _say)
        if stop.asked.is_set():
            _say(STOPPED)
            return stop.exit_code, None
        if delete_data:
            _empty(settings.data)
        known = _stored(job)
        again = _allowed(job)
        if known is not None and not again and _is_over(known[0], job):
            _say(over_text(known[0]))
            return 0, known[1]
        processes = Processes(
            _environment(settings, address, _known(job)),
            settings.data / "logs",
            settings.request_seconds,
            settings.data / REDIS_SERVER_LOCK if settings.embedded_redis else None,
        )
        broker = connecting.client(settings, address)
        ready = partial(connecting.is_ready, broker)
        if job.wanted.main_text == "on" and not available():
            _say(f"no main text is stored: {NO_MAIN_TEXT}")
        end: End | None = None

        def look() -> None:
            """Count what was stored while the workers ended."""
            nonlocal end
            if end is not None and end.stopped:
                end = stop.within(partial(last_look, broker, end)) or end

        try:
            processes.start(lambda: bool(stop.within(ready)), stop.asked, _say)
            end = follow(
                broker, job.wanted, stop, processes, fresh=job.fresh, stay=job.stay, again=again
            )
        finally:
            if stop.asked.is_set():
                _say("stopping: requests under way end first (Ctrl-C again kills)")
            processes.stop(stop.impatient, look)
        result = _of_end(job, end)
    if end is None or end.stopped:
        _say(STOPPED)
        return stop.exit_code, result
    return 0, result


def _is_over(known: Crawl, job: Job) -> bool:
    """Return whether the same command would do nothing now."""
    if job.fresh or (job.stay and known.state == "resting"):
        return False
    return is_finished(known, job.wanted)


def _of_end(job: Job, end: End | None) -> Summary | None:
    if end is None:
        return None
    made = end.summary()
    with connecting.store(job.settings, upgrade=True) as store:
        url, export = (
            mask_url(job.settings.store_url),
            advice.to_export(made.crawl, job.settings.data),
        )
        return summary.with_store(made, store, url, export)


def _stored(job: Job) -> tuple[Crawl, Summary] | None:
    """Return the crawl of that name in the store, and its summary; None if there is none."""
    path = connecting.sqlite_path(job.settings)
    if path is not None and not path.exists():
        return None
    with connecting.store(job.settings, upgrade=True) as store:
        known = [crawl for crawl in store.crawls() if crawl.name == job.wanted.name]
        if not known:
            return None
        hint = advice.to_export(known[0].name, job.settings.data)
        return known[0], summary.of_store(store, known[0], mask_url(job.settings.store_url), hint)


def _allowed(job: Job) -> list[str]:
    """Return URLs of the crawl that were refused for their address, and that are now allowed."""
    path = connecting.sqlite_path(job.settings)
    if path is not None and not path.exists():
        return []
    with connecting.store(job.settings, upgrade=True) as store:
        known = [crawl for crawl in store.crawls() if crawl.name == job.wanted.name]
        return allowed_now(store, known[0], job.settings) if known else []


def _known(job: Job) -> list[CrawlOptions]:
    """Return the options of this crawl and of the crawls in the store."""
    path = connecting.sqlite_path(job.settings)
    if path is not None and not path.exists():
        return [job.wanted]
    with connecting.store(job.settings, upgrade=True) as store:
        crawls = store.crawls()
    for crawl in crawls:
        if crawl.state == "active" and crawl.name != job.wanted.name:
            _say(f"crawl {crawl.name} goes on, too; `greencrawl stop {crawl.name}` ends it")
    return [job.wanted, *(crawl.options for crawl in crawls)]


def _environment(
    settings: Settings, address: str, crawls: Sequence[CrawlOptions] = ()
) -> dict[str, str]:
    """Return the environment of the processes; it permits modules and secrets of ``crawls``."""
    host, port = settings.bind
    return environment(
        {**os.environ, **permits.of_crawls(settings, crawls)},
        data=str(settings.data),
        bind=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        broker=address,
        store=settings.store_url,
        bodies=settings.bodies,
        processes=str(settings.processes),
        allow_networks=",".join(map(str, settings.allow_networks)),
    )


def _empty(data: Path) -> None:
    """Delete everything in the demo's own folder except our lock."""
    for entry in data.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != LOCK:
            entry.unlink()


# --- with a broker that runs elsewhere ---------------------------------------------------------


def _elsewhere(job: Job) -> tuple[int, Summary | None]:
    """Give the crawl to the broker that the environment names, and watch it."""
    broker = connecting.required(job.settings)
    known = known_at(broker, job.wanted.name)
    if known and _is_over(known, job):
        _say(over_text(known))
        stats = broker.stats(known.name).crawls[0]
        times = {"started_ms": known.started_ms, "finished_ms": known.finished_ms}
        return 0, msgspec.structs.replace(summary.of_run(stats, (), 0.0, stats.fetched), **times)
    with on_signals() as stop:
        end = follow(broker, job.wanted, stop, None, fresh=job.fresh, stay=job.stay)
    if end is None or end.stopped:
        name = job.wanted.name
        _say(f"the crawl goes on; look again with `greencrawl status {name} --watch`")
        return stop.exit_code, None
    return 0, end.summary()


def _say(text: str) -> None:
    click.echo(advice.complete(text), err=True)
