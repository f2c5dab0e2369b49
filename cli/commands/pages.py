"""``greencrawl pages`` and ``greencrawl page``: what is stored, for people."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import click
from rich.cells import cell_len, set_cell_size

from greencrawl.broker.api.messages import ListedPage, PageReply, PagesReply, PageVersion
from greencrawl.broker.service import pages as reading
from greencrawl.cli import choose, connecting, options
from greencrawl.cli.crawlfile import with_scheme
from greencrawl.cli.reading.source import AtBroker, InStore, one, source
from greencrawl.cli.reading.stored import main_text
from greencrawl.cli.ui.display import change_text, moment, number_of, printable, size
from greencrawl.schema.errors import GreencrawlError, InvalidUrl
from greencrawl.schema.net.urls import canonicalise, host_of
from greencrawl.schema.records import Crawl, PageFilter
from greencrawl.schema.settings import Settings
from greencrawl.schema.text.declared import declared_text, withheld_text
from greencrawl.schema.text.patterns import Pattern
from greencrawl.schema.wire import to_json
from greencrawl.store.base import Store
from greencrawl.store.export.objects import iso8601

IN_TERMINAL = 50
"""Pages that are listed on a terminal unless ``--limit`` says otherwise."""
A_REQUEST = 500
SECONDS = 60.0
"""The longest wait for one answer in seconds: a search reads many pages."""
NARROWEST = 80
"""Least columns of a line, on any terminal."""


class Wanted(NamedTuple):
    """The options of a list; ``pattern`` "" stands for none."""

    pages: PageFilter
    pattern: str
    after: str


Ask = Callable[[int, str], PagesReply]
"""(limit, after) → some pages."""


@click.command()
@click.argument("crawl", required=False)
@click.option("--host", metavar="HOST", default="", help="Only pages of this host.")
@options.status
@options.since
@click.option(
    "--grep",
    metavar="REGEX",
    default="",
    help="Only pages whose URL, title or text matches this (RE2; (?i) ignores case).",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help=f"At most this many.  [default: {IN_TERMINAL} in a terminal, otherwise all]",
)
@click.option(
    "--after", metavar="CURSOR", default="", help="Continue an earlier list after this cursor."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@connecting.data_option
def pages(
    crawl: str | None,
    host: str,
    status: tuple[int, int],
    since: int,
    grep: str,
    limit: int | None,
    after: str,
    as_json: bool,
    data: str | None,
) -> None:
    """List the stored pages of a crawl.

    Pages are listed in the order in which they were stored. Redirects are listed too, although
    `status` does not count them.

    Each line has the time of the fetch, status, size, URL and title. If the output is no terminal,
    these are separated by tabs, and the page's id comes between size and URL. CRAWL may be left out
    when there is only one. `greencrawl page` shows a single page.
    """
    wanted = Wanted(PageFilter(host=_host(host), status=status, since_ms=since), grep, after)
    if grep:
        _checked(grep)
    terminal = sys.stdout.isatty()
    most = limit or (IN_TERMINAL if terminal and not as_json else None)
    write = _json_line if as_json else _columns() if terminal else _tabs
    with _listing(connecting.load(data), crawl, wanted) as ask:
        following, count = _list(ask, after, most, write)
    if following:
        click.echo(f"there may be more: add --after {following}", err=True)
    elif not count and not as_json:
        click.echo("no page matches", err=True)
    elif terminal and not as_json:
        click.echo("that is all", err=True)


def _list(
    ask: Ask, after: str, most: int | None, write: Callable[[ListedPage], str]
) -> tuple[str, int]:
    """Write up to ``most`` pages as they are found; return the cursor of the rest, or "", and how
    many pages were found.

    While nothing is found, a terminal shows the progress.
    """
    left = most
    looked_at = count = 0
    telling = sys.stderr.isatty()
    while True:
        answer = ask(A_REQUEST if left is None else min(A_REQUEST, left), after)
        if telling and looked_at:
            click.echo("\r\x1b[K", err=True, nl=False)
        looked_at += answer.looked_at
        for page in answer.items:
            click.echo(write(page))
        count += len(answer.items)
        after = answer.next
        if left is not None:
            left -= len(answer.items)
        if not after or left == 0:
            return after, count
        if telling:
            click.echo(f"\rlooked at {number_of(looked_at, 'page')} …", err=True, nl=False)


@contextmanager
def _listing(settings: Settings, crawl: str | None, wanted: Wanted) -> Iterator[Ask]:
    broker = connecting.answering(settings)
    if broker is not None:
        name, chosen = choose.one(broker.crawls(), crawl).name, wanted.pages
        low, high = chosen.status

        def ask(limit: int, after: str) -> PagesReply:
            return broker.pages(
                name,
                host=chosen.host,
                status="" if chosen.status == PageFilter().status else f"{low:03}-{high:03}",
                since=(iso8601(chosen.since_ms) or "") if chosen.since_ms else "",
                grep=wanted.pattern,
                limit=limit,
                after=after,
                seconds=SECONDS,
            )

        yield ask
        return
    with connecting.store(settings) as store:
        yield _in_store(store, choose.one(store.crawls(), crawl), wanted)


def _in_store(store: Store, crawl: Crawl, wanted: Wanted) -> Ask:
    reader = reading.Reader(store)
    pattern = _checked(wanted.pattern) if wanted.pattern else None

    def ask(limit: int, after: str) -> PagesReply:
        try:
            look = reader.look(crawl.id, wanted.pages, pattern, limit=limit, after=after)
        except ValueError as error:
            raise GreencrawlError(f"--after: {error}") from error
        return PagesReply(tuple(map(reading.listed, look.pages)), look.next, look.looked_at)

    return ask


def _checked(pattern: str) -> Pattern:
    try:
        return Pattern(pattern)
    except ValueError as error:
        raise click.UsageError(f"--grep: {error}") from error


def _host(given: str) -> str:
    if not given:
        return ""
    try:
        url = canonicalise(with_scheme(given))
    except InvalidUrl as error:
        raise click.UsageError(f"--host: {error}") from error
    if url.split("/", 3)[3]:
        raise click.UsageError(f"--host: {given[:60]!r} is more than a host")
    return host_of(url)


# -- lines


def _json_line(page: ListedPage) -> str:
    return to_json(page).decode()


def _tabs(page: ListedPage) -> str:
    at = iso8601(page.fetched_ms) or "-"
    title = f"-> {page.target}" if page.target else page.title or withheld_text(page.directives)
    fields = (at, page.status, page.body_bytes, page.id, page.url, title)
    return "\t".join(printable(str(field)) for field in fields)


def _columns() -> Callable[[ListedPage], str]:
    """Return a function that aligns columns to the terminal; Chinese characters take two cells."""
    width = max(NARROWEST, shutil.get_terminal_size().columns) - 1
    taken = len("2026-03-01 12:00  200  999.9 kB  ")
    urls = (width - taken - 2) * 3 // 5
    titles = width - taken - 2 - urls

    def line(page: ListedPage) -> str:
        at = moment(page.fetched_ms)[:16]
        title = page.title or withheld_text(page.directives)
        about = f"→ {page.target}" if page.target else title
        return (
            f"{at}  {page.status:3}  {size(page.body_bytes):>8}  "
            f"{_cells(page.url, urls)}  {_cells(about, titles).rstrip()}".rstrip()
        )

    return line


def _cells(text: str, width: int) -> str:
    """Return ``text`` in exactly ``width`` cells of the terminal, cut with an ellipsis or
    padded."""
    shown = printable(text)
    if cell_len(shown) <= width:
        return set_cell_size(shown, width)
    return set_cell_size(set_cell_size(shown, width - 1).rstrip() + "…", width)


# -- one page


@click.command()
@click.argument("page", metavar="ID|URL")
@click.option("--crawl", metavar="NAME", help="The crawl, if several have the URL.")
@click.option("--text", "what", flag_value="text", help="Print its main text.")
@click.option("--markdown", "what", flag_value="markdown", help="Its main text as Markdown.")
@click.option("--full", "what", flag_value="full", help="Print all of its text, in one line.")
@click.option("--body", "what", flag_value="body", help="Print its body, as it was fetched.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the text or the body to this file.  [default: standard output]",
)
@connecting.data_option
def page(
    page: str, crawl: str | None, what: str | None, output: Path | None, data: str | None
) -> None:
    """Show one stored page, its fetches and its changes.

    Name the page by its URL, or by its id as `greencrawl pages --json` shows it.
    """
    if output == Path("-"):
        output = None
    elif output is not None and what is None:
        raise click.UsageError("-o needs --text, --markdown, --full or --body")
    if what == "body" and output is None and sys.stdout.isatty():
        raise click.UsageError("a body may hold anything: name a file (-o FILE) or use a pipe")
    with source(data) as where:
        _show(where, page, crawl, what, output)


def _show(
    source: AtBroker | InStore,
    given: str,
    crawl: str | None,
    what: str | None,
    output: Path | None,
) -> None:
    page_id = one(source, given, crawl)
    if what is None:
        for line in described(source.get(page_id)):
            click.echo(printable(line))
        return
    if what != "body":
        main = what != "full"
        text = main_text(source, page_id, what == "markdown") if main else source.text(page_id)
        if output is None and sys.stdout.isatty():
            for line in text.splitlines():
                click.echo(printable(line))
            return
        content = f"{text}\n".encode("utf-8", "replace")
    else:
        content = source.body(page_id)
    if output is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    try:
        output.write_bytes(content)
    except OSError as error:
        raise GreencrawlError(f"cannot write {output}: {error.strerror}") from error
    click.echo(f"{len(content):,} bytes in {output}", err=True)


def described(page: PageReply) -> Iterator[str]:
    """Yield a page for a person, line by line."""
    about = (
        ("crawl", page.crawl),
        ("id", page.id),
        ("URL", page.url),
        ("redirects to", page.target),
        ("title", page.title),
        ("fetched", f"{moment(page.fetched_ms)}, in {page.elapsed_ms / 1000:.3f} s"),
        ("status", page.status),
        ("body", f"{page.body_bytes:,} bytes{', cut off' if page.truncated else ''}"),
        ("type", page.headers.get("content-type", "")),
        ("text", f"{page.text_chars:,} characters" if page.text_chars else ""),
        ("main text", "" if page.main is None else f"{len(page.main):,} characters"),
        ("language", page.language),
        ("encoding", page.encoding),
        ("depth", page.depth),
        ("says", declared_text(page.url, page.canonical, page.directives)),
        ("links", f"{len(page.links):,} queued" if page.links else ""),
        ("fields", to_json(page.fields).decode() if page.fields else ""),
        ("items", f"{len(page.items):,}" if page.items else ""),
    )
    for name, value in about:
        if value != "":
            yield f"{name:<13} {value}"
    yield f"{'fetches':<13} {len(page.versions):,}, the latest first"
    for version in page.versions:
        yield f"  {version_line(version)}"


def version_line(version: PageVersion) -> str:
    """Return one fetch as a line."""
    return (
        f"{moment(version.fetched_ms)}  {version.status}  {size(version.body_bytes):>8}  "
        f"{change_text(version):<9}  {version.digest[:16]}".rstrip()
    )
