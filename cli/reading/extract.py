"""``greencrawl extract``: the main text of a page, and the reasons for it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import click
import requests
import urllib3

from greencrawl import __version__
from greencrawl.cli.reading.failed import NOT_REQUESTABLE, reason
from greencrawl.cli.ui import advice
from greencrawl.cli.ui.display import printable
from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.records import FailureKind
from greencrawl.worker.extract.main import NO_HTML, NO_MAIN_TEXT
from greencrawl.worker.extract.main.library import Extracted, picture_of
from greencrawl.worker.extract.main.library import extract as read
from greencrawl.worker.extract.main.picture import MARK
from greencrawl.worker.http import codings

MOST_BYTES = 16 * 1024 * 1024
"""A page may have this many bytes; a longer one is cut off."""
SECONDS = 30.0
"""Seconds without a byte after which a request has failed."""
WIDTH = 100
"""At most this many characters of a block are shown."""
_PIECE = 64 * 1024
_OTHER_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_DECODE = FailureKind.DECODE.label


@click.command()
@click.argument("source", metavar="URL|FILE", required=False)
@click.option("--full", "what", flag_value="full", help="Print all of its visible text.")
@click.option("--markdown", "what", flag_value="markdown", help="Print the main text as Markdown.")
@click.option("--comments", "what", flag_value="comments", help="Print readers' comments.")
@click.option(
    "--about",
    "what",
    flag_value="about",
    help="Print title, author, date, site and other data of the page.",
)
@click.option(
    "--why",
    is_flag=False,
    flag_value="",
    metavar="[FILE.html]",
    help="Show each block of text with its score; in FILE.html as a picture of the page's layout.",
)
@click.option("--url", metavar="URL", default="", help="The URL that a FILE came from.")
def extract(source: str | None, what: str | None, why: str | None, url: str) -> None:
    """Show the main text of one page: of a URL, or of a file.

    For a URL the command sends one request, without reading robots.txt. `--why` shows for each
    block of text the probability that it is main text (from 0 to 1), its element, its length in
    characters, and the reasons for the score. A + marks a block that was chosen, a c marks a
    reader's comment. The picture is one file without scripts, which fetches nothing. Hold the
    pointer over a text in the picture to see the reasons.
    """
    if source is None and why:  # `--why URL`: what follows the option is the page
        source, why = why, ""
    if source is None:
        raise click.UsageError("which page? Give a URL or a FILE")
    if source.startswith(("http://", "https://")):
        body, content_type, url = _fetched(source)
    elif _OTHER_SCHEME.match(source):
        raise GreencrawlError(f"{source} is neither an http nor an https URL")
    else:
        path = Path(source)
        body, content_type = _file(path), None
        url = url or f"http://localhost/{quote(path.name, errors='replace')}"
    page = read(body, url, content_type)
    if why is None and page.remark == NO_HTML:
        raise GreencrawlError(f"{source}: {page.remark}")
    if what not in ("full", "about") and not page.has_main:
        click.echo(advice.complete(f"no main text is shown: {NO_MAIN_TEXT}"), err=True)
    if why is not None and page.remark:
        click.echo(printable(page.remark), err=True)
    if why:
        _draw(page, Path(why))
    else:
        _write("\n".join(_lines(page, "why" if why == "" else what)))


def _draw(page: Extracted, path: Path) -> None:
    """Write the picture of a page; overwrite only another picture. Raises GreencrawlError."""
    try:
        if path.exists() and not path.read_bytes().startswith(MARK.encode()):
            raise GreencrawlError(f"{path} exists and is no picture of a page: name another file")
        path.write_text(picture_of(page), encoding="utf-8", errors="replace")
    except OSError as error:
        raise GreencrawlError(f"cannot write {path}: {error.strerror}") from error
    click.echo(f"{path}: open it in a browser", err=True)


def _lines(page: Extracted, what: str | None) -> Iterator[str]:
    if what == "about":
        about = page.about._asdict() | {"language": page.language}
        for name, value in about.items():
            for one in value if isinstance(value, tuple) else [value] if value else ():
                yield printable(f"{name.replace('_', ' '):<13} {one}")
    elif what == "why":
        for block in page.blocks:
            text = printable(block.text.replace("\n", " ")[:WIDTH])
            chosen = "+" if block.chosen else "c" if block.comment else " "
            line = (
                f"{block.score:.2f} {chosen} {printable(block.tag):<10} {block.length:>5}  {text}"
            )
            yield f"{line}  ({block.reason})" if block.reason else line
    else:
        texts = {"full": "text", "markdown": "markdown", "comments": "comments"}
        yield getattr(page, texts.get(what or "", "main"))


def _write(text: str) -> None:
    if sys.stdout.isatty():
        text = "\n".join(map(printable, text.split("\n")))
    sys.stdout.buffer.write(f"{text}\n".encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


def _file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES)
    except OSError as error:
        raise GreencrawlError(f"cannot read {path}: {error.strerror}") from error


def _fetched(url: str) -> tuple[bytes, str | None, str]:
    """Return body, content-type and last URL of an answer, redirects followed."""
    headers = {"User-Agent": f"greencrawl/{__version__}"}
    body, targets = b"", list[str]()

    def note(answer: requests.Response, **_: object) -> None:
        targets.extend(answer.headers.get("location", "").split() if answer.is_redirect else ())

    hooks = {"response": note}
    try:
        with requests.get(
            url, headers=headers, timeout=SECONDS, stream=True, hooks=hooks
        ) as answer:
            answer.raise_for_status()
            whole = True
            for piece in answer.raw.stream(_PIECE, decode_content=False):
                body += piece
                if len(body) >= MOST_BYTES:
                    whole = False
                    break
        coding = answer.headers.get("content-encoding", "")
        decoded = codings.decode(body, coding, MOST_BYTES, complete=whole)
        if decoded.error:
            raise GreencrawlError(f"cannot fetch {url}: {_DECODE}: {decoded.error}")
        return decoded.body, answer.headers.get("content-type"), answer.url
    except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
        why = reason(error)
        if why == NOT_REQUESTABLE and targets:
            why = f"it redirects to {printable(targets[-1])[:200]}, which is {why}"
        raise GreencrawlError(f"cannot fetch {url}: {why}") from error
