"""``greencrawl export``: what a crawl stored, as JSON Lines, CSV or WARC; or its hook's records."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import click

from greencrawl.cli import choose, connecting
from greencrawl.cli.reading.stored import TEXTS, with_text
from greencrawl.cli.ui.display import number_of, size
from greencrawl.schema.errors import GreencrawlError, InvalidConfig, InvalidUrl
from greencrawl.schema.net.urls import canonicalise, host_of
from greencrawl.schema.records import Crawl, PageFilter
from greencrawl.schema.text.moments import SINCE, STATUS, since_ms, status_range
from greencrawl.store.base import Store
from greencrawl.store.export.formats import FORMATS, BodyOptions, Format
from greencrawl.store.export.items import columns_of
from greencrawl.store.export.resumable import Position, Resumable, Wanted
from greencrawl.store.export.resumable import export as export_all

_SHOW_SECONDS = 0.2
_DEFAULT = next(iter(FORMATS))
_MEANINGS = "; ".join(f"{name}: {choice.meaning}" for name, choice in FORMATS.items())


@click.command()
@click.argument("crawl", required=False)
@click.option(
    "--format",
    "format_",
    type=click.Choice(list(FORMATS)),
    help=f"{_MEANINGS}.  [default: by FILE's ending, else {_DEFAULT}]",
)
@click.option("--crawl", "named", metavar="NAME", help="The crawl; the same as the argument.")
@click.option(
    "--since",
    metavar="TIME",
    help=f"Only what was fetched at that moment or later: {SINCE}.  [default: all]",
)
@click.option("--host", metavar="HOST", help="Only of this host, with its port unless 80 or 443.")
@click.option("--status", metavar="STATUS", help=f"Only with {STATUS}.  [default: all]")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File to write; the same command continues an interrupted export.  "
    "[default: standard output, as -]",
)
@click.option(
    "--text",
    type=click.Choice(TEXTS),
    default=TEXTS[0],
    help=f"All text of a page, its main text, or that as Markdown.  [default: {TEXTS[0]}]",
)
@click.option(
    "--items",
    is_flag=True,
    help="Only the records that the hook's `items` found, each on a line or row of its own.",
)
@click.option(
    "--bodies",
    is_flag=True,
    help="Also write the bodies of pages, in base64; WARC always has them.",
)
@click.option("--raw", is_flag=True, help="Leave CSV cells that begin a formula as they are.")
@click.option("--pages-only", is_flag=True, help="Leave out the URLs without a page.")
@click.option(
    "--restart", is_flag=True, help="Start an interrupted export again from its beginning."
)
@connecting.data_option
def export(
    crawl: str | None,
    format_: str | None,
    named: str | None,
    since: str | None,
    host: str | None,
    status: str | None,
    output: Path | None,
    text: str,
    items: bool,
    bodies: bool,
    raw: bool,
    pages_only: bool,
    restart: bool,
    data: str | None,
) -> None:
    """Write what a crawl stored.

    The command writes the pages, and then the URLs without a page, with the reason (not in WARC
    files). With --items it writes the records of the hook instead. CRAWL may be left out when there
    is only one. The command reads the store itself: no broker needs to run, and a crawl may go on
    meanwhile.
    """
    if crawl and named and crawl != named:
        raise InvalidConfig([("--crawl", f"names {named}, and the argument {crawl}")])
    format_ = format_ or _by_ending(output)
    choice = FORMATS[format_]
    if text != TEXTS[0] and choice.is_archive:
        raise click.UsageError(f"--text is not for {format_}: an archive has no text")
    if items and (choice.items is None or bodies or text != TEXTS[0]):
        able = " and ".join(name for name, one in FORMATS.items() if one.items)
        raise click.UsageError(f"--items is for {able}, without --bodies and --text")
    typed = {
        "format": format_,
        "since": since,
        "host": host,
        "status": status,
        "bodies": bodies or choice.is_archive,
        "pages_only": pages_only,
        "raw": raw,
        **({"text": text} if text != TEXTS[0] else {}),
        **({"items": True} if items else {}),
    }
    wanted = _filter(since, host, status)
    with connecting.store(connecting.load(data)) as store:
        chosen = Wanted(
            crawl=choose.one(store.crawls(), crawl or named), pages=wanted, pages_only=pages_only
        )
        if output is None or output == Path("-"):
            _to_stdout(store, chosen, typed)
        elif output.exists() and not output.is_file():
            with _special(output) as out:
                _stream(store, chosen, typed, out)
        else:
            _to_file(store, chosen, typed, output, restart)


def _by_ending(output: Path | None) -> str:
    """Return the format that the name of a file says: ``x.csv``, ``x.warc.gz``."""
    endings = output.suffixes[-2:] if output is not None else []
    return next((name for name in FORMATS if f".{name}" in endings), _DEFAULT)


def _filter(since: str | None, host: str | None, status: str | None) -> PageFilter:
    """Return the options of the export, from the command line. Raises click.UsageError."""
    try:
        return PageFilter(
            host=_host(host) if host else "",
            status=status_range(status) if status else PageFilter().status,
            since_ms=since_ms(since) if since else 0,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _host(text: str) -> str:
    """Return a host as the store names it, from ``Example.org`` or ``example.org:8080``."""
    try:
        if not any(mark in text for mark in "/?#@\\"):
            return host_of(canonicalise(f"http://{text.strip()}/"))
    except InvalidUrl:
        pass
    raise ValueError(f"{text[:60]!r} is no host")


def _format(
    store: Store,
    typed: Mapping[str, Any],
    crawl: Crawl,
    name: str = "",
    columns: Sequence[str] = (),
) -> Format:
    """Return the format of the command line. ``columns`` are those of a table of records."""
    choice, bodies = FORMATS[typed["format"]], BodyOptions(typed["bodies"], typed["raw"])
    if typed.get("items") and choice.items is not None:
        return choice.items(columns, bodies)
    format_ = choice.make(crawl, name, bodies)
    return with_text(format_, typed.get("text", TEXTS[0]), store)


def _columns(store: Store, wanted: Wanted, typed: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns of a table of records; () for other exports. Raises TooManyColumns."""
    needed = typed.get("items") and FORMATS[typed["format"]].is_table
    return columns_of(store, wanted.crawl.id, wanted.pages) if needed else ()


def _to_stdout(store: Store, wanted: Wanted, typed: Mapping[str, Any]) -> None:
    _stream(store, wanted, typed, sys.stdout.buffer)


def _special(output: Path) -> BinaryIO:
    """Open a pipe or a device, which is written to and never replaced by a file."""
    try:
        return output.open("wb")
    except OSError as error:
        raise GreencrawlError(f"cannot write {output}: {error.strerror}") from error


def _stream(store: Store, wanted: Wanted, typed: Mapping[str, Any], out: BinaryIO) -> None:
    columns = _columns(store, wanted, typed)
    format_ = _format(store, typed, wanted.crawl, columns=columns)
    position = export_all(store, wanted, format_, out)
    out.flush()
    if position.no_body:
        click.echo(_unkept(position), err=True)


def _to_file(
    store: Store, wanted: Wanted, typed: Mapping[str, Any], output: Path, restart: bool
) -> None:
    options = {"crawl": wanted.crawl.id, **typed}
    with Resumable(output, options, wanted.pages.since_ms, restart=restart) as run:
        if run.resumed:
            click.echo(f"continuing after {number_of(run.position.rows, 'row')}", err=True)
        pages = PageFilter(
            host=wanted.pages.host, status=wanted.pages.status, since_ms=run.since_ms
        )
        chosen = Wanted(crawl=wanted.crawl, pages=pages, pages_only=wanted.pages_only)
        if not run.resumed:
            run.columns = _columns(store, chosen, typed)
        format_ = _format(store, typed, wanted.crawl, output.name, run.columns)
        progress = _Progress(run.position, _total(store, chosen, format_))
        try:
            position = run.run(store, chosen, format_, progress)
        except KeyboardInterrupt:
            progress.end()
            click.echo(
                f"stopped after {number_of(run.position.rows, 'row')}: the same command goes on",
                err=True,
            )
            raise
        finally:
            progress.end()
    finals = format_.finals and not wanted.pages_only
    click.echo(_summary(position, output, finals=finals, items="items" in typed), err=True)


def _total(store: Store, wanted: Wanted, format_: Format) -> int:
    """Return about how many rows there will be; 0 if that is not known."""
    if wanted.pages != PageFilter() or not sys.stderr.isatty() or format_.detail == "items":
        return 0
    counts = store.counts(wanted.crawl.id)
    kinds = ["pages"]
    if format_.finals and not wanted.pages_only:
        kinds += ["dead", "gone", "excluded", "parked"]
    return sum(counts.get(kind, 0) for kind in kinds)


def _summary(position: Position, output: Path, *, finals: bool, items: bool) -> str:
    pages = number_of(position.pages, "page")
    parts = [f"records of {pages}" if items else pages]
    if finals:
        parts.append(f"{number_of(position.finals, 'URL')} without a page")
    text = f"{', '.join(parts)}: {size(position.length)} in {output}"
    return f"{text}\n{_unkept(position)}" if position.no_body else text


def _unkept(position: Position) -> str:
    return (
        f"{number_of(position.no_body, 'page')} without a body: it was not kept (the crawl's "
        "option bodies), or its file cannot be read (is GREENCRAWL_BODIES set as for the workers?)"
    )


class _Progress:
    """Shows one line on a terminal, which is rewritten."""

    def __init__(self, begun: Position, total: int) -> None:
        self._begun = begun.rows
        self._total = total
        self._start = self._shown = time.monotonic()
        self._on = sys.stderr.isatty()
        self._width = 0

    def __call__(self, position: Position) -> None:
        now = time.monotonic()
        if not self._on or now - self._shown < _SHOW_SECONDS:
            return
        self._shown = now
        rows = position.rows
        rate = (rows - self._begun) / max(now - self._start, 0.001)
        of = f" of about {self._total:,}" if rows <= self._total else ""
        line = f"{rows:,}{of} rows, {size(position.length)}, {rate:,.0f} rows/s"
        click.echo("\r" + line.ljust(self._width), nl=False, err=True)
        self._width = len(line)

    def end(self) -> None:
        """Clear the line."""
        if self._width:
            click.echo("\r" + " " * self._width + "\r", nl=False, err=True)
