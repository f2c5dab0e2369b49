"""``greencrawl versions`` and ``greencrawl diff``: earlier versions of a page, and the changes."""

from __future__ import annotations

import difflib

import click

from greencrawl.broker.api.messages import PageReply, PageVersion
from greencrawl.cli import connecting
from greencrawl.cli.commands.pages import version_line
from greencrawl.cli.reading.source import AtBroker, InStore, one, source
from greencrawl.cli.ui.display import moment, printable
from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.text.moments import SINCE, since_ms
from greencrawl.worker.extract.main.library import extract


@click.command()
@click.argument("page", metavar="ID|URL")
@click.option("--crawl", metavar="NAME", help="The crawl, if several have the URL.")
@connecting.data_option
def versions(page: str, crawl: str | None, data: str | None) -> None:
    """List the fetches of a page, and whether it had changed.

    The latest fetch comes first.
    """
    with source(data) as where:
        known = where.get(one(where, page, crawl))
    for version in known.versions:
        click.echo(version_line(version))
    if known.gone_since_ms:
        click.echo(f"gone since {moment(known.gone_since_ms)}")


@click.command()
@click.argument("page", metavar="ID|URL")
@click.option(
    "--from",
    "since",
    metavar="TIME",
    default="",
    help=f"The version of that moment: {SINCE}.  [default: the one before the last change]",
)
@click.option("--crawl", metavar="NAME", help="The crawl, if several have the URL.")
@connecting.data_option
def diff(page: str, since: str, crawl: str | None, data: str | None) -> int:
    """Show changes of the main text of a page, as a diff.

    The exit code is 1 if the text has changed, 0 if not, and 2 if this is not known. The command
    needs the body of the earlier version: a crawl with `keep_versions` keeps the last bodies.
    """
    try:
        at_ms = since_ms(since) if since else None
    except ValueError as error:
        raise click.UsageError(f"--from: {error}") from error
    with source(data) as where:
        known = where.get(one(where, page, crawl))
        before, latest = _before(known, at_ms), known.versions[0]
        if before is None:
            click.echo(f"{known.url} has not changed since it was first fetched", err=True)
            return 0
        old, new = _text(where, known, before), _text(where, known, latest)
    names = moment(before.fetched_ms), moment(latest.fetched_ms)
    lines = list(difflib.unified_diff(old, new, *names, n=2, lineterm=""))
    for line in lines:
        click.echo(printable(line))
    return 1 if lines else 0


def _before(known: PageReply, at_ms: int | None) -> PageVersion | None:
    """Return the version to compare with; None if no other version is known.

    Raises GreencrawlError if no fetch at ``at_ms`` or before is known.
    """
    latest = known.versions[0]
    if at_ms is None:
        changed = (version for version in known.versions if version.digest != latest.digest)
        return next(changed, None)
    found = [version for version in known.versions if version.fetched_ms <= at_ms]
    if not found:
        raise GreencrawlError(f"no fetch of {known.url} is known from before {moment(at_ms)}")
    return found[0]


def _text(where: AtBroker | InStore, known: PageReply, version: PageVersion) -> list[str]:
    """Return the lines of a version's main text, or of its whole text if nothing in it is main
    text."""
    body = where.body(known.id, version.fetched_ms)
    read = extract(body, known.target or known.url, known.headers.get("content-type"))
    return (read.main or read.text).splitlines()
