"""``python -m bench.extract.reading FOLDER…``: what main text adds to the reading of a page.

Each page is read as a worker reads it, and made a row of the store, alternately with main text and
without, in one process on one core. The median of some rounds counts. The pages are those of the
benchmarks, 20 KB each, and those of FOLDERs as ``python -m bench.extract`` takes them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.extract.readers import PARSE_SECONDS
from bench.rig.sites import SYNTHETIC, write_pages
from greencrawl.schema.records import StoredPage
from greencrawl.store.rows import Codec
from greencrawl.worker.extract.hostile import TooExpensive
from greencrawl.worker.extract.page import bound_parses, outline
from greencrawl.worker.extract.train.samples import SNIPPETS, read

ROUNDS = 7
MADE = 60
"""Number of pages of the benchmarks that are read."""
URL = "http://example.org/a/b.html"
TYPE = "text/html; charset=utf-8"


class Cost(NamedTuple):
    """Costs of a page: milliseconds of CPU, and bytes of its row, without main text and with it."""

    without: float
    beside: float
    bytes_without: int
    bytes_beside: int


def main(arguments: list[str]) -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.extract.reading", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="*", metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--pages", type=int, help="of each kind, at most")
    given = parser.parse_args(arguments)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    bound_parses()
    codec = Codec()
    print(f"{'pages':24} {'':>5}  {'ms without':>10}  {'added':>6}  {'bytes':>7}  {'added':>6}")
    for kind, bodies in _pages(given.folders).items():
        found = [
            cost
            for body in bodies[: given.pages]
            if (cost := _cost(codec, body, given.rounds)) is not None
        ]
        print(_line(kind, found), flush=True)
    return 0


def _pages(folders: list[Path]) -> dict[str, list[bytes]]:
    pages = {SYNTHETIC.what: list(_made())}
    for folder in folders:
        for sample in read(folder):
            kind = "articles by snippets" if sample.kind == SNIPPETS else "all of their text known"
            pages.setdefault(kind, []).append(sample.body)
    return pages


def _made() -> Iterator[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        write_pages(Path(folder), MADE)
        for i in range(MADE):
            yield (Path(folder) / f"{i}.html").read_bytes()


def _cost(codec: Codec, body: bytes, rounds: int) -> Cost | None:
    """Return the costs of a page; None for a page that a worker reads in another process, since its
    parse takes too long."""
    took: tuple[list[int], list[int]] = [], []
    sizes = [0, 0]
    try:
        for _ in range(rounds):
            for on in (False, True):
                began = time.process_time_ns()
                sizes[on] = _read(codec, body, spans=on)
                took[on].append(time.process_time_ns() - began)
    except TooExpensive:
        return None
    without, beside = (statistics.median(some) / 1e6 for some in took)
    return Cost(without, beside, *sizes)


def _read(codec: Codec, body: bytes, *, spans: bool) -> int:
    """Read a page and make its row; return its bytes for text, body and main text."""
    page, _ = outline(
        body, URL, TYPE, samples=False, spans=spans, seconds=PARSE_SECONDS, brief=True
    )
    row = StoredPage(
        crawl=1, fingerprint=1, url=URL, status=200, body=body, text=page.text, spans=page.spans,
        digest=b"0" * 16,
    )  # fmt: skip
    made = codec.page_rows([row])[0]
    return len(made[-1]) + len(page.spans)


def _line(kind: str, costs: list[Cost]) -> str:
    without, beside, bytes_without, bytes_beside = (
        statistics.fmean(column) for column in zip(*costs, strict=True)
    )
    return (
        f"{kind:24} {len(costs):5}  {without:10.3f}  {beside - without:6.3f}  "
        f"{bytes_without:7.0f}  {bytes_beside - bytes_without:6.0f}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
