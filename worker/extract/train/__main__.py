"""``python -m greencrawl.worker.extract.train FOLDER``: train the model of main text.

It measures such models by cross-validation over sites. Then it writes the model and its card beside
``main/text.py``, or into ``--out``: both, or neither if it fails or is stopped.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path

from greencrawl.worker.extract.main.text import MODEL
from greencrawl.worker.extract.train import samples

MOST_BYTES = 60_000
"""A model has at most this many bytes, because it is part of the package."""


def main(arguments: list[str]) -> int:
    """Train; return the exit status."""
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
    counts = f"{len(rows.samples)} pages, {len(rows.labels)} blocks, {len(rows.names)} features"
    print(f"{counts}; each of {1 if given.no_scores else 1 + fit.FOLDS} models takes a while")
    model = fit.learn(rows, fit.all_pages(rows), settings)
    print(f"a model of all pages after {time.monotonic() - began:.0f} s", flush=True)
    if len(model) > MOST_BYTES:
        print(f"the model has {len(model)} bytes, more than {MOST_BYTES}", file=sys.stderr)
        return 1
    text = ""
    if not given.no_scores:
        found = fit.cross_validated(rows, settings, said=partial(print, flush=True))
        text = card.card(rows, settings, found, len(model))
        print(text)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / MODEL.name).write_bytes(model)
    if text:
        (given.out / card.NAME).write_text(text, encoding="utf-8")
    print(f"{given.out / MODEL.name}: {len(model)} bytes after {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
