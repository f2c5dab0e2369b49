"""The summary of a crawl: from the store, as a table for people, as JSON for programs."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from greencrawl.broker.service.shared.stored_counts import failures_in
from greencrawl.cli.ui import advice
from greencrawl.cli.ui.display import (
    TRIES,
    duration,
    failed,
    failures_of,
    failures_text,
    hooks_text,
    moment,
    number_of,
    put_off_text,
    size,
    withheld,
)
from greencrawl.schema.errors import GreencrawlError, InvalidConfig
from greencrawl.schema.records import Crawl, CrawlStats, HookCount, HookRefusal, HostState
from greencrawl.store.base import Store


class HostTime(msgspec.Struct, frozen=True):
    """A host, the mean of the seconds of its answers, and their number (0: not counted)."""

    host: str
    seconds: float
    answers: int


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a crawl.

    ``seconds`` and ``pages_per_second`` are of this run of the command, and 0 if it crawled
    nothing; everything else is of the whole crawl. ``pages`` counts pages with a 2xx status. If the
    command crawled nothing, ``started_ms`` and ``finished_ms`` (Unix time) are the first start and
    the last end of the crawl, which may have been stopped in between; otherwise they are 0.

    ``failures`` counts URLs without a page by the kind of failure, as `status` does without a
    broker; a broker elsewhere counts every try, unless URLs were queued again. ``failed_tries``
    counts every try, as the display does; it is null if the command crawled nothing. ``gone``
    counts URLs that do not exist (404, 410), and ``dead`` URLs that were given up after their
    tries. ``excluded`` counts URLs that a rule excludes (robots.txt, and links that log out or
    change something: the kind ``action``). ``parked`` counts URLs of shapes that bring nothing new.
    ``hooks`` counts pages on which the crawl's hook failed, by function and message; ``refused``
    are workers that could not import the hook. ``bytes`` is the size of the stored bodies; at a
    broker elsewhere, of all transferred bodies. ``put_off`` counts sessions that ended through no
    fault of their hosts; their URLs went back.

    Three numbers are those of the broker: ``withheld`` counts pages whose content is not kept, by
    the directive; ``rewritten`` counts links that the crawl's ``normalise`` has changed; and
    ``unchanged`` counts pages that were fetched again and had not changed. ``hosts`` counts hosts
    to which requests were sent; at a broker elsewhere, it is the largest number of hosts that had
    work at the same time.
    """

    crawl: str
    state: str
    reason: str
    pages: int
    bytes: int
    seconds: float
    pages_per_second: float
    failures: dict[str, int]
    gone: int
    dead: int
    excluded: int
    waiting: int
    hosts: int
    slowest_hosts: tuple[HostTime, ...]
    store: str
    export: str
    parked: int = 0
    put_off: dict[str, int] = msgspec.field(default_factory=dict)
    rewritten: int = 0
    unchanged: int = 0
    withheld: dict[str, int] = msgspec.field(default_factory=dict)
    hooks: tuple[HookCount, ...] = ()
    refused: tuple[HookRefusal, ...] = ()
    started_ms: int = 0
    finished_ms: int = 0
    failed_tries: dict[str, int] | None = None


SLOWEST = 5


def of_run(
    stats: CrawlStats, slowest: tuple[HostState, ...], seconds: float, pages_before: int
) -> Summary:
    """Make a summary from the broker's counters alone, for a run that took ``seconds``."""
    pages = max(0, stats.fetched - pages_before)
    failures = failures_of(stats)
    return Summary(
        crawl=stats.crawl,
        state=stats.state,
        reason=stats.reason,
        pages=stats.stored,
        bytes=stats.bytes,
        seconds=round(seconds, 3),
        pages_per_second=round(pages / seconds, 3) if seconds > 0 else 0.0,
        failures=dict(sorted(failures.items())),
        gone=failures.get("gone", 0),
        dead=stats.dead,
        excluded=failures.get("robots", 0),
        waiting=stats.open,
        hosts=stats.hosts,
        slowest_hosts=tuple(
            HostTime(host.host, round(host.latency, 3), 0)
            for host in slowest[:SLOWEST]
            if host.latency > 0
        ),
        store="",
        export="",
        parked=stats.parked,
        put_off=dict(sorted(stats.put_off.items())),
        rewritten=stats.rewritten,
        unchanged=stats.unchanged,
        withheld=withheld(stats.failures),
        hooks=stats.hooks,
        refused=stats.refused,
        failed_tries=dict(sorted(failed(stats.failures).items())),
    )


def with_store(summary: Summary, store: Store, url: str, export: str) -> Summary:
    """Return ``summary`` with the pages, final states and hosts that the store counts: these are
    exact.

    No process continues the crawl: if it is not done, it is "stopped" now. ``url`` says where the
    content is, ``export`` how to export it.
    """
    crawl = store.crawl(summary.crawl)
    counts = store.counts(crawl.id)
    return msgspec.structs.replace(
        summary,
        state="stopped" if summary.state == "active" else summary.state,
        pages=counts["pages"],
        bytes=counts["bytes"],
        gone=counts["gone"],
        dead=counts["dead"],
        excluded=counts["excluded"],
        failures=failures_in(store, crawl),
        hosts=counts["hosts"],
        slowest_hosts=_slowest(store, crawl),
        store=url,
        export=export,
        parked=counts["parked"],
        hooks=tuple(store.hook_counts(crawl.id)),
    )


def of_store(store: Store, crawl: Crawl, url: str, export: str) -> Summary:
    """Make the summary of a crawl that is not running, from the store alone.

    ``failures`` count final states without parked ones; how many URLs wait is not known without the
    frontier (0).
    """
    failures = failures_in(store, crawl)
    counts = store.counts(crawl.id)
    return Summary(
        crawl=crawl.name,
        state=crawl.state,
        reason=crawl.reason,
        pages=counts["pages"],
        bytes=counts["bytes"],
        seconds=0.0,
        pages_per_second=0.0,
        failures=failures,
        gone=counts["gone"],
        dead=counts["dead"],
        excluded=counts["excluded"],
        waiting=0,
        hosts=counts["hosts"],
        slowest_hosts=_slowest(store, crawl),
        store=url,
        export=export,
        parked=counts["parked"],
        hooks=tuple(store.hook_counts(crawl.id)),
        started_ms=crawl.started_ms,
        finished_ms=crawl.finished_ms,
    )


def _slowest(store: Store, crawl: Crawl) -> tuple[HostTime, ...]:
    return tuple(
        HostTime(host, round(seconds, 3), answers)
        for host, seconds, answers in store.slowest_hosts(crawl.id, SLOWEST)
    )


def check_writable(file: Path) -> None:
    """Raise InvalidConfig if a summary could not be written at the end of a long crawl."""
    where = file if file.exists() else file.parent
    if not where.exists():
        raise InvalidConfig([("--summary", f"there is no folder {where}: make it first")])
    if not os.access(where, os.W_OK):
        raise InvalidConfig([("--summary", f"{where} is not writable")])


def write(summary: Summary, file: Path) -> None:
    """Write the summary as JSON. Raises :class:`GreencrawlError` when that is impossible."""
    try:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")
    except OSError as error:
        raise GreencrawlError(f"cannot write the summary to {file}: {error.strerror}") from error


def show(summary: Summary, console: Console) -> None:
    """Print the summary as a table."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    because = f" ({summary.reason})" if summary.reason else ""
    kept = "stored" if summary.store else "transferred"
    rows = [
        ("crawl", summary.crawl),
        ("state", f"{summary.state}{because}"),
        ("pages", f"{summary.pages:,}, {size(summary.bytes)} {kept}"),
        *_times(summary),
        ("not stored", _not_stored(summary)),
        ("slowest hosts", _hosts_text(summary.slowest_hosts)),
    ]
    if summary.failed_tries is not None:
        rows.insert(-1, (TRIES, failures_text(summary.failed_tries)))
    if summary.waiting:
        more = ""
        if summary.reason in advice.LIMITS:
            more = f"; a greater --{summary.reason.replace('_', '-')} goes on"
        rows.insert(3, ("still to do", f"{number_of(summary.waiting, 'URL')}{more}"))
    if summary.parked:
        command = advice.complete(f"`greencrawl traps {summary.crawl}`")
        rows.append(("parked", f"{number_of(summary.parked, 'URL')}; see {command}"))
    if summary.put_off:
        rows.append(("put off", put_off_text(summary.put_off)))
    if summary.unchanged:
        rows.append(("unchanged", f"{number_of(summary.unchanged, 'page')} asked for again"))
    if summary.rewritten:
        rows.append(("links rewritten", f"{summary.rewritten:,} by normalise"))
    if summary.withheld:
        rows.append(("content not kept", failures_text(summary.withheld)))
    if summary.hooks:
        rows.append(("hook failed", hooks_text(summary.hooks)))
    if summary.store:
        rows.append(("content", summary.store))
    if summary.export and summary.pages:
        rows.append(("export", summary.export))
    for name, text in rows:
        table.add_row(name, Text(text))
    console.print(table, highlight=False)


def _times(summary: Summary) -> list[tuple[str, str]]:
    """Return the duration of this run; if it crawled nothing, when the crawl began and ended."""
    if summary.seconds:
        rate = f"{summary.pages_per_second:.1f} pages/s"
        return [("time", f"{duration(summary.seconds)} in this run, {rate}")]
    times = ("began", summary.started_ms), ("ended", summary.finished_ms)
    return [(name, moment(ms)) for name, ms in times if ms]


def _not_stored(summary: Summary) -> str:
    """Return how many URLs have no page, and the kinds of failure unless the tries say the same."""
    counts = f"{summary.gone:,} gone, {summary.dead:,} dead, {summary.excluded:,} excluded"
    told = not summary.failures or summary.failures == summary.failed_tries
    return counts if told else f"{counts} ({failures_text(summary.failures)})"


def _hosts_text(hosts: tuple[HostTime, ...]) -> str:
    return ", ".join(f"{host.host} {host.seconds:.3f} s" for host in hosts) or "none measured"
