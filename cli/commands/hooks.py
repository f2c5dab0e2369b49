"""``greencrawl hooks``: pages on which a crawl's hook failed; can run the hook on them again."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import click

from greencrawl.broker.client import BrokerClient
from greencrawl.cli import choose, connecting
from greencrawl.cli.local.processes import environment
from greencrawl.cli.local.stopping import on_signals
from greencrawl.cli.ui.display import moment, number_of, printable
from greencrawl.schema import log
from greencrawl.schema.clock import monotonic
from greencrawl.schema.records import Crawl, HookCount, HookFailure
from greencrawl.schema.settings import Settings
from greencrawl.store.base import Store
from greencrawl.worker import hooks as functions
from greencrawl.worker.hooks import OF_PAGES

if TYPE_CHECKING:
    from greencrawl.worker.hook_rerun import Count

EXAMPLES = 3
A_REQUEST = 1000
SHOW_SECONDS = 0.2
QUARANTINE = (sys.executable, "-P", "-m", "greencrawl.worker", "--quarantine")


@click.command()
@click.argument("crawl", required=False)
@click.option("--urls", is_flag=True, help="List every page, not only some examples.")
@click.option(
    "--again",
    is_flag=True,
    help="Run on_page, items and links on the stored pages, without a fetch.",
)
@connecting.data_option
def hooks(crawl: str | None, urls: bool, again: bool, data: str | None) -> int:
    """List pages on which the crawl's hook failed.

    The pages are listed by function and message, with their number and some examples. With --urls
    each line is a page: the time of its fetch, function, message and URL, separated by tabs. After
    you have corrected the hook, --again runs it on the stored pages, without a fetch. Fields and
    items are stored with their pages. New links are queued: within seconds by a running broker,
    otherwise when the crawl runs again. If `request` failed, the page has to be fetched again.
    Running workers keep the code that they imported: restart them, so that new pages use the
    corrected module. CRAWL may be left out when there is only one.
    """
    settings = connecting.load(data)
    if again:
        if urls:
            raise click.UsageError("use --urls or --again, not both")
        return _again(settings, crawl)
    with _source(settings, crawl) as source:
        counts = source.counts()
        if urls:
            _list(source, counts)
        else:
            _show(source, counts)
    return 0


class _Source(Protocol):
    """A broker or a store: where the command reads failures of hooks."""

    def counts(self) -> Sequence[HookCount]: ...

    def pages(self, of: HookCount, most: int) -> Iterator[HookFailure]: ...


class _AtBroker:
    def __init__(self, broker: BrokerClient, crawl: Crawl) -> None:
        self._broker = broker
        self._crawl = crawl.name

    def counts(self) -> Sequence[HookCount]:
        return self._broker.hooks(self._crawl).counts

    def pages(self, of: HookCount, most: int) -> Iterator[HookFailure]:
        after = ""
        while True:
            reply = self._broker.hook_failures(
                self._crawl, of.function, of.message, limit=min(most, A_REQUEST), after=after
            )
            yield from reply.items
            after = reply.next
            if not after:
                return


class _InStore:
    def __init__(self, store: Store, crawl: Crawl) -> None:
        self._store = store
        self._crawl = crawl.id

    def counts(self) -> Sequence[HookCount]:
        return self._store.hook_counts(self._crawl)

    def pages(self, of: HookCount, most: int) -> Iterator[HookFailure]:
        after = ""
        while found := self._store.hook_failures(
            self._crawl, of.function, of.message, after=after, limit=min(most, A_REQUEST)
        ):
            yield from (failure for _, failure in found)
            after = found[-1][0]


@contextmanager
def _source(settings: Settings, crawl: str | None) -> Iterator[_Source]:
    broker = connecting.answering(settings)
    if broker is not None:
        yield _AtBroker(broker, choose.one(broker.crawls(), crawl))
        return
    with connecting.store(settings) as store:
        yield _InStore(store, choose.one(store.crawls(), crawl))


def _list(source: _Source, counts: Sequence[HookCount]) -> None:
    for one in counts:
        for page in source.pages(one, A_REQUEST):
            fields = (moment(page.at_ms), page.function, page.message, page.url)
            click.echo("\t".join(map(printable, fields)))


def _show(source: _Source, counts: Sequence[HookCount]) -> None:
    if not counts:
        click.echo("no page is known on which the hook failed", err=True)
    for one in counts:
        pages = "page " if one.pages == 1 else "pages"
        click.echo(f"{one.function:<8}{one.pages:>9,} {pages}  {printable(one.message)}")
        for page in islice(source.pages(one, EXAMPLES), EXAMPLES):
            click.echo(f"    {printable(page.url)}")


# -- again


def _again(settings: Settings, crawl: str | None) -> int:
    from greencrawl.worker.hook_rerun import HookRerun
    from greencrawl.worker.process.quarantine import Quarantine

    log.configure("hooks", "error")  # what a person needs to know is printed below
    with connecting.store(settings, upgrade=True) as store, on_signals() as stop:
        chosen = choose.one(store.crawls(), crawl)
        functions.load(chosen.options.hook)  # a module that cannot be imported is reported at once
        total = _total(store.hook_counts(chosen.id))
        line = _Line(total)
        quarantine = Quarantine(
            settings.stall_seconds,
            command=QUARANTINE,
            environ=environment(os.environ, data=str(settings.data), log_level="error"),
        )
        run = HookRerun(store, chosen, quarantine, line.unread)
        try:
            run.run(lambda count: line.show(count) and not stop.asked.is_set())
        finally:
            quarantine.close()
            line.end()
        _said(
            run.count,
            store.hook_counts(chosen.id),
            running=connecting.answering(settings) is not None,
        )
        if stop.asked.is_set():
            click.echo("stopped; the same command goes on", err=True)
            return stop.exit_code
        return 1 if run.count.failed else 0


def _total(counts: Sequence[HookCount]) -> int:
    """Return the least number of pages to read: one page may have failed in both functions."""
    by_function = [sum(one.pages for one in counts if one.function == name) for name in OF_PAGES]
    return max(by_function)


def _said(count: Count, left: Sequence[HookCount], *, running: bool) -> None:
    click.echo(f"{number_of(count.mended, 'page')} mended, {count.failed:,} failed again")
    if count.links:
        when = "within seconds" if running else "when the crawl is run again"
        click.echo(f"{count.links:,} new links, which are queued {when}")
    if count.unread:
        click.echo(
            f"{count.unread:,} pages have no body to read: it was not kept, or its file cannot be "
            "read (is GREENCRAWL_BODIES set as for the workers?)"
        )
    if asked := sum(one.pages for one in left if one.function not in OF_PAGES):
        click.echo(f"{number_of(asked, 'page')} failed in request, which runs only with a fetch")
    if count.mended and running:
        click.echo(
            "running workers keep the code they imported: restart them so that new pages use the "
            "corrected module"
        )


class _Line:
    """Shows one line on a terminal, which is rewritten."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._on = sys.stderr.isatty()
        self._shown = monotonic()
        self._width = 0

    def show(self, count: Count) -> bool:
        """Show the progress; always return True."""
        now = monotonic()
        if self._on and now - self._shown >= SHOW_SECONDS:
            self._shown = now
            total = max(self._total, count.pages)
            done = 20 * count.pages // max(total, 1)
            line = (
                f"[{'#' * done}{'.' * (20 - done)}] {count.pages:,} of {total:,} pages, "
                f"{count.failed:,} failed again"
            )
            click.echo("\r" + line.ljust(self._width), nl=False, err=True)
            self._width = len(line)
        return True

    def unread(self, url: str) -> None:
        """Report a page that has no body."""
        self.end()
        click.echo(f"no body: {printable(url)}", err=True)

    def end(self) -> None:
        """Clear the line."""
        if self._width:
            click.echo("\r" + " " * self._width + "\r", nl=False, err=True)
            self._width = 0
