"""``python -m bench.playback [--pages N] [--folder F]``: can an archive be replayed whole?

A documentation of Debian, served on loopback, is crawled with ``requisites`` on, into WARC files.
Then its server is stopped. pywb replays the files, and Chromium, which can reach nothing else,
shows the pages. A second archive without requisites shows that missing files would be noticed. The
exit code is 1 if anything is missing in the first archive.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench.playback.run import Playback, play_back
from bench.traps.crawl import Failed
from bench.traps.debian import Missing

PAGES = 20


def main(arguments: list[str]) -> int:
    """Replay both archives and print what is missing."""
    parser = argparse.ArgumentParser(prog="python -m bench.playback")
    parser.add_argument("--pages", type=int, default=PAGES, metavar="N")
    parser.add_argument("--folder", type=Path, metavar="F", help="keeps archives and logs")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="greencrawl-playback-") as made:
        folder = given.folder or Path(made)
        try:
            whole = play_back(folder / "whole", given.pages, requisites=True)
            bare = play_back(folder / "bare", given.pages, requisites=False)
        except (Missing, Failed) as error:
            print(f"cannot be tried here: {error}", file=sys.stderr)
            return 2
    print("| archive | rows | pages shown | requests | missing |")
    print("| --- | --- | --- | --- | --- |")
    _row("with requisites", whole)
    _row("without", bare)
    print(f"not at the site either: {', '.join(sorted(whole.absent)) or 'nothing'}")
    for page, missing in whole.missing.items():
        for one in missing:
            print(f"{page}: {one.status} {one.url}")
    shown = len(whole.pages) == given.pages and bare.count > 0
    return 0 if shown and not whole.count else 1


def _row(title: str, found: Playback) -> None:
    pages = len(found.pages)
    print(f"| {title} | {found.rows:,} | {pages} | {found.requests:,} | {found.count:,} |")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
