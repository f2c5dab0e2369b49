"""One process that reads broken pages: ``python -m bench.extract.fuzz.reader``, called by others.

It prints a line of JSON for each thousand pages and for the last: how many it has read, and the CPU
of the slowest. If it is killed, the reason is on its standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import islice
from pathlib import Path

from lxml import etree

from bench.extract.fuzz import pages
from greencrawl.schema.text.spans import main_of
from greencrawl.worker.extract import main as main_text
from greencrawl.worker.extract.page import add_links, bound_parses, outline
from greencrawl.worker.extract.text import compiled

URL = "http://example.org/a/b?c"
TYPE = "text/html; charset=utf-8"


def read(body: bytes, *, whole: bool = True) -> float:
    """Read text, links and main text of a page; return the seconds of CPU, including the parse.

    With ``whole`` everything is called that the part in C can do.
    """
    began = time.process_time()
    roots: list[etree._Element] = []
    page, found = outline(body, URL, TYPE, texts=True, spans=True, roots=roots)
    add_links(page, found, [])
    for root in roots:
        main_text.markdown(root, URL)
        if whole:
            if main_of(page.text, page.spans) != main_text.main_text(root):
                raise ValueError("its main text is not what was told of it")
            main_text.comments_text(root)
            main_text.judged(root)
    if whole:
        add_links(*outline(body, URL, TYPE, anchors=True))
    return time.process_time() - began


def main(arguments: list[str]) -> int:
    """Read pages for this many seconds, or this many pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--pages", type=int, default=None)
    parser.add_argument("--compiled", type=Path, help="where what is tried has to be")
    parser.add_argument("folders", type=Path, nargs="*")
    given = parser.parse_args(arguments)
    where = Path(str(compiled and compiled.__file__)).parent
    if compiled is None or where != (given.compiled or where):
        print(f"not what was compiled for this: {where}", file=sys.stderr)
        return 2
    bound_parses()  # as a worker does
    count, dearest, end = 0, 0.0, time.monotonic() + given.seconds
    for body in islice(pages.broken(pages.read(given.folders), given.seed), given.pages):
        dearest = max(dearest, read(body, whole=given.compiled is not None))
        count += 1
        if count % 1000 == 0:
            print(json.dumps({"pages": count, "dearest": dearest}), flush=True)
        if time.monotonic() >= end:
            break
    print(json.dumps({"pages": count, "dearest": dearest}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
