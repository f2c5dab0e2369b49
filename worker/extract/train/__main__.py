"""``python -m greencrawl.worker.extract.train FOLDER``: learn the model of main text.

It writes the model beside ``main/text.py``, or into ``--out``, then tries by cross-validation over
sites what such models are worth, and writes the card.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from greencrawl.worker.extract.main.text import MODEL
from greencrawl.worker.extract.train import samples


def main(arguments: list[str]) -> int:
    """Train; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m greencrawl.worker.extract.train",
        description="Learn the model of main text from pages whose main text is marked.",
    )
    parser.add_argument("folder", type=Path, help="has truth.jsonl and pages/, or folders that do")
    parser.add_argument("--out", type=Path, default=MODEL.parent, metavar="FOLDER")
    parser.add_argument("--no-scores", action="store_true", help="no cross-validation, no card")
    given = parser.parse_args(arguments)
    try:
        from greencrawl.worker.extract.train import card, fit
    except ImportError as error:
        print(f"{error.name} is missing: pip install -r requirements-train.txt", file=sys.stderr)
        return 1
    began = time.monotonic()
    try:
        rows = fit.rows_of(samples.read(given.folder))
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        print(f"the pages cannot be read: {error}", file=sys.stderr)
        return 1
    settings = fit.Settings()
    print(f"{len(rows.samples)} pages, {len(rows.labels)} blocks, {len(rows.names)} features")
    model = fit.learn(rows, fit.all_pages(rows), settings)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / MODEL.name).write_bytes(model)
    if not given.no_scores:
        found = fit.cross_validated(rows, settings)
        text = card.card(rows, settings, found, len(model))
        (given.out / card.NAME).write_text(text, encoding="utf-8")
        print(text)
    print(f"{given.out / MODEL.name}: {len(model)} bytes after {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
