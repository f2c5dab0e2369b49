"""``greencrawl export``: what a crawl stored, as JSON Lines."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cli import choose, reach
from schema.errors import GreencrawlError
from store.base import Store
from store.export import export_jsonl


@click.command()
@click.argument("crawl", required=False)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["jsonl"]),
    default="jsonl",
    help="jsonl: one JSON object a line.  [default: jsonl]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write there, complete or not at all.  [default: standard output]",
)
@click.option("--bodies", is_flag=True, help="Include page bodies, base64.")
@reach.data_option
def export(
    crawl: str | None, format_: str, output: Path | None, bodies: bool, data: str | None
) -> None:
    """Write what a crawl stored.

    First its pages, then the URLs that came to no page, with the reason. CRAWL may be left out
    when there is only one. Reads the store itself: no broker needs to run, and a crawl may go
    on meanwhile.
    """
    with reach.store(reach.load(data)) as store:
        chosen = choose.one(store.crawls(), crawl)
        if output is None:
            export_jsonl(store, chosen.id, sys.stdout.buffer, bodies=bodies)
            sys.stdout.buffer.flush()
        else:
            lines = _to_file(store, chosen.id, output, bodies)
            click.echo(f"{lines:,} lines in {output}", err=True)


def _to_file(store: Store, crawl: int, output: Path, bodies: bool) -> int:
    """Write beside ``output`` and move the whole file there; returns the number of lines."""
    part = output.with_name(f"{output.name}.part")
    try:
        with part.open("wb") as file:
            lines = export_jsonl(store, crawl, file, bodies=bodies)
        part.replace(output)
    except OSError as error:
        raise GreencrawlError(f"cannot write {output}: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)
    return lines
