"""``python -m bench.suites SUITE FOLDER``: one suite, its files in FOLDER.

The exit code is 1 if ours misses its goal. ``--wrong N`` shows N of the cases that are wrong
in ours.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from bench.suites.table import text

SUITES = {
    "crawl-maze": ("crawl_maze", "FOLDER is a checkout of google/security-crawl-maze"),
    "encodings": ("encodings", "html5lib-encoding/ and charsets/: html5lib's and chardet's files"),
    "http": ("http", "odd answers of our own, beside curl; FOLDER may be any"),
    "robots": ("robots", "google/robotstxt-spec-test: FOLDER has robots-ctc.jsonl"),
    "robots-files": ("robots_files", "FOLDER has robots.txt files, as protego's tests/test_data"),
    "sitemaps": ("sitemaps", "crawler-commons' odd sitemaps: FOLDER has them and extension/"),
    "urls": ("urls", "WPT's URLs and crawler-commons' pairs: wpt-*.json, url-normalizer.csv"),
}


def main(arguments: list[str]) -> int:
    """Run one suite and print its table."""
    titles = "\n".join(f"  {name:14}{title}" for name, (_, title) in SUITES.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench.suites", epilog=titles,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--wrong", type=int, default=0, metavar="N")
    given = parser.parse_args(arguments)
    module = importlib.import_module(f"bench.suites.{SUITES[given.suite][0]}")
    figures = module.figures(given.folder)
    print(text(figures, given.wrong))
    return 0 if all(figure.reached for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
