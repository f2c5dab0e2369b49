"""The card of a model: its purpose, its training data, and its quality."""

from __future__ import annotations

import time
from collections import Counter
from importlib.metadata import version

from greencrawl.worker.extract.train.fit import FOLDS, Found, Rows, Settings
from greencrawl.worker.extract.train.samples import SNIPPETS

NAME = "MODEL.md"

_TEXT = """\
# The model of main text

`model.bin` gives for each block of a page the probability that it is main text. It was written by
`python -m greencrawl.worker.extract.train FOLDER` on {day}, with LightGBM {lightgbm}; neither is
needed to use it. It holds {size:,} bytes of thresholds and weights, {trees} trees over {features}
numbers a block, and no text of any page. `trees.c` says how they are packed.

## Pages

{pages} pages of {sites} sites, {blocks:,} blocks:

* WCXB, Web Content eXtraction Benchmark, development split, by Murrough Foley, 2026, CC-BY-4.0:
  {marked} pages with all of their main text marked. Changes: the pages were read as blocks, and
  labels were derived from these.
* The evaluation set of trafilatura, by Adrien Barbaresi, Apache-2.0: {snippets} articles with
  snippets that are main text and snippets that are not.

## Scores

By cross-validation in {folds} parts, in which all pages of a site are in one. F1 over words, mean
over pages:

| kind | pages | F1 |
| --- | --- | --- |
{kinds}

{snippets} articles by snippets: precision {precision:.3f}, recall {recall:.3f}, F1 {f1:.3f}.

Labels of products and collections are noisy. Most pages are in English, most of the articles with
snippets in German; other scripts are rare. It does not judge whether a text is true or good.

## Settings

{settings}
"""


def card(rows: Rows, settings: Settings, found: Found, size: int) -> str:
    """Return the card of a model of ``size`` bytes, as Markdown."""
    kinds = Counter(sample.kind for sample in rows.samples if sample.kind != SNIPPETS)
    table = [
        f"| {kind} | {kinds[kind]} | {found.mean(rows.samples, kind):.3f} |"
        for kind in sorted(kinds)
    ]
    marked = sum(kinds.values())
    table.append(f"| all | {marked} | {found.mean(rows.samples):.3f} |")
    return _TEXT.format(
        day=time.strftime("%Y-%m-%d", time.gmtime()),
        lightgbm=version("lightgbm"),
        size=size,
        trees=settings.trees,
        features=len(rows.names),
        pages=len(rows.samples),
        sites=len({sample.site for sample in rows.samples}),
        blocks=len(rows.labels),
        marked=marked,
        snippets=len(rows.samples) - marked,
        folds=FOLDS,
        kinds="\n".join(table),
        precision=found.snippets.precision,
        recall=found.snippets.recall,
        f1=found.snippets.f1,
        settings=", ".join(
            f"{name.replace('_', ' ')} {getattr(settings, name)}"
            for name in settings.__dataclass_fields__
        ),
    )
