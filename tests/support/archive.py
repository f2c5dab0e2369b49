"""WARC files as another program reads them: warcio reads, checks and replays them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from warcio import cli
from warcio.archiveiterator import ArchiveIterator


@dataclass
class Read:
    """A record: its kind, the fields of its header and of HTTP's (lower-case names), and its
    body."""

    kind: str
    fields: dict[str, str]
    status: int = 0
    http: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    line: str = ""
    """The first line of HTTP."""

    @property
    def uri(self) -> str:
        return self.fields.get("warc-target-uri", "")


def records(path: Path) -> Iterator[Read]:
    """Yield all records of a file, with their digests checked. Raises warcio's
    ArchiveLoadFailed."""
    with path.open("rb") as file:
        for record in ArchiveIterator(file, check_digests="raise"):
            head = record.http_headers
            code = head.get_statuscode() if head and record.rec_type != "request" else "0"
            yield Read(
                record.rec_type,
                {name.lower(): value for name, value in record.rec_headers.headers},
                int(code) if code.isdigit() else 0,
                {name.lower(): value for name, value in head.headers} if head else {},
                record.content_stream().read(),
                f"{head.protocol} {head.statusline}" if head else "",
            )


def check(paths: Iterable[Path]) -> str:
    """Return the errors of ``warcio check`` in the files, and its exit code; "" if there are
    none."""
    said, code = io.StringIO(), None
    with redirect_stdout(said), redirect_stderr(said):
        try:
            cli.main(["check", *map(str, paths)])
        except SystemExit as end:
            code = end.code
    text = said.getvalue()
    return f"{text}exit code {code}" if code or text.strip() else ""


class Archive:
    """A replay: URL → the answer, of all ``paths``; the latest of a URL, revisits resolved.

    Raises LookupError for a revisit of a record that is in none of the files.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self.kinds: dict[str, int] = {}
        self.answers: dict[str, Read] = {}
        self.requests: dict[str, Read] = {}
        self.infos: list[Read] = []
        by_id: dict[str, Read] = {}
        revisits: list[Read] = []
        for path in paths:
            for read in records(path):
                self.kinds[read.kind] = self.kinds.get(read.kind, 0) + 1
                by_id[read.fields["warc-record-id"]] = read
                if read.kind == "request":
                    self.requests[read.uri] = read
                elif read.kind == "warcinfo":
                    self.infos.append(read)
                else:
                    if read.kind == "revisit":
                        revisits.append(read)
                    known = self.answers.get(read.uri)
                    if known is None or known.fields["warc-date"] <= read.fields["warc-date"]:
                        self.answers[read.uri] = read
        for revisit in revisits:
            origin = by_id[revisit.fields["warc-refers-to"]]
            for name in ("target-uri", "date"):
                if revisit.fields[f"warc-refers-to-{name}"] != origin.fields[f"warc-{name}"]:
                    raise LookupError(f"{revisit.uri} refers to another {name}")
            if revisit.fields["warc-payload-digest"] != origin.fields["warc-payload-digest"]:
                raise LookupError(f"{revisit.uri} refers to another body")
            revisit.body = origin.body
