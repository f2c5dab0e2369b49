"""Pages whose main text is known.

A folder has ``truth.jsonl`` and ``pages/ID.html.gz``; folders in it may have these, too. A line of
``truth.jsonl`` is a page with ``id``, ``url`` and ``type``. It also has either ``main_content``,
all of its main text, or the lists ``with`` and ``without``: what must be in the main text, and what
must not. It may have ``title``, ``author`` and ``publish_date`` or ``date``.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import tldextract

SNIPPETS = "snippets"
"""The kind of pages whose main text is known only by snippets."""

_suffixes = tldextract.TLDExtract(suffix_list_urls=(), include_psl_private_domains=True)


@dataclass(frozen=True, slots=True)
class Sample:
    """A page, and what is known of it.

    ``text`` is None if only snippets are known: those in ``present`` are in its main text, those in
    ``absent`` are not.
    """

    key: str
    kind: str
    site: str
    url: str
    body: bytes
    text: str | None
    present: tuple[str, ...]
    absent: tuple[str, ...]
    title: str
    author: str
    date: str

    def fold(self, count: int) -> int:
        """Return to which of ``count`` parts the page belongs; all pages of a site are in the same
        part."""
        return zlib.crc32(self.site.encode()) % count


def read(folder: Path) -> Iterator[Sample]:
    """Yield all pages under ``folder``.

    Raises OSError if it has none, ValueError for a broken line.
    """
    found = sorted(folder.rglob("truth.jsonl"))
    if not found:
        raise FileNotFoundError(f"{folder} has no truth.jsonl")
    for truth in found:
        with truth.open(encoding="utf-8") as lines:
            for line in lines:
                yield _sample(truth.parent, json.loads(line))


def _sample(folder: Path, row: dict[str, Any]) -> Sample:
    url = row["url"]
    snippets = "with" in row
    return Sample(
        key=f"{folder.name}/{row['id']}",
        kind=row.get("type") or SNIPPETS,
        site=_site(url),
        url=url if urlsplit(url).scheme in ("http", "https") else "http://example.org/",
        body=gzip.decompress((folder / "pages" / f"{row['id']}.html.gz").read_bytes()),
        text=None if snippets else row.get("main_content") or "",
        present=tuple(" ".join(one.split()) for one in row.get("with", ())),
        absent=tuple(" ".join(one.split()) for one in row.get("without", ())),
        title=_said(row.get("title")),
        author=_said(row.get("author")),
        date=_said(row.get("publish_date") or row.get("date")),
    )


def _said(value: str | list[str] | None) -> str:
    return ", ".join(value) if isinstance(value, list) else value or ""


def _site(url: str) -> str:
    """Return the registrable domain of a page; for a page in an archive, that of the original
    page."""
    if (inner := url.rfind("http", 1)) > 0:
        url = url[inner:]
    host = urlsplit(url).hostname or url.rpartition("::")[2].partition("-")[0]
    parts = _suffixes(host)
    return parts.top_domain_under_public_suffix or host
