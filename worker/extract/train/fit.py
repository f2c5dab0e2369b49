"""Trains trees on labelled blocks, and tests them on sites that they were not trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import lightgbm
import numpy as np
from lxml import etree
from numpy.typing import NDArray

from greencrawl.worker.extract.main.text import main_text
from greencrawl.worker.extract.page import tree_of
from greencrawl.worker.extract.text import compiled
from greencrawl.worker.extract.train.labels import labels
from greencrawl.worker.extract.train.packed import packed
from greencrawl.worker.extract.train.samples import SNIPPETS, Sample
from greencrawl.worker.extract.train.scores import Snippets, f1

FOLDS = 5


@dataclass(frozen=True, slots=True)
class Settings:
    """How trees are made.

    ``snippet_weight``: the weight of a page whose text is known by snippets; a page whose text is
    marked as a whole has the weight 1. A block has the weight of its length to the power of
    ``length_power``, or of ``snippet_power`` if the page is known by snippets. A page has the
    weight of their sum to the power of ``page_power``. ``recall``: see ``packed``.
    """

    trees: int = 240
    leaves: int = 20
    depth: int = -1
    rate: float = 0.08
    feature_share: float = 0.3
    row_share: float = 0.8
    least_rows: int = 40
    l2: float = 5.0
    length_power: float = 0.75
    page_power: float = 0.25
    snippet_weight: float = 3.0
    snippet_power: float = 0.3
    recall: float = 0.8
    seed: int = 1

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of LightGBM. With one thread the same pages give the same trees."""
        return {
            "objective": "cross_entropy",
            "num_leaves": self.leaves,
            "max_depth": self.depth,
            "learning_rate": self.rate,
            "feature_fraction": self.feature_share,
            "bagging_fraction": self.row_share,
            "bagging_freq": 1,
            "min_data_in_leaf": self.least_rows,
            "lambda_l2": self.l2,
            "max_bin": 255,
            "num_threads": 1,
            "seed": self.seed,
            "deterministic": True,
            "force_col_wise": True,
            "verbosity": -1,
        }


@dataclass(slots=True)
class Rows:
    """Blocks of pages.

    Each block has: in ``values`` a row of features; in ``labels`` its label, NaN if unknown; in
    ``lengths`` its number of characters; in ``pages`` the index of its sample.
    """

    samples: list[Sample]
    values: NDArray[np.uint8]
    labels: NDArray[np.float32]
    lengths: NDArray[np.float32]
    pages: NDArray[np.int32]
    digest: int = 0
    names: list[str] = field(default_factory=list)


def root_of(sample: Sample) -> etree._Element:
    """Return the tree of a page; an empty one if the page cannot be parsed."""
    root, _ = tree_of(sample.body)
    return etree.Element("html") if root is None else root


def rows_of(samples: Iterable[Sample]) -> Rows:
    """Return features and labels of all blocks. Raises RuntimeError if nothing was compiled."""
    if compiled is None:
        raise RuntimeError(
            "it needs the compiled part: python -m greencrawl.worker.extract.compile"
        )
    names, digest = compiled.main_features()
    kept, values, marks, lengths, pages = [], [], [], [], []
    for place, sample in enumerate(samples):
        blocks, row_bytes = compiled.main_blocks(root_of(sample), None)
        kept.append(sample)
        values.append(np.frombuffer(row_bytes, dtype=np.uint8).reshape(len(blocks), len(names)))
        marks.append(labels([block[0] for block in blocks], sample))
        lengths.append(np.array([block[2] for block in blocks], dtype=np.float32))
        pages.append(np.full(len(blocks), place, dtype=np.int32))
    return Rows(
        samples=kept,
        values=np.concatenate(values),
        labels=np.concatenate(marks),
        lengths=np.concatenate(lengths),
        pages=np.concatenate(pages),
        digest=digest,
        names=names,
    )


def all_pages(rows: Rows) -> NDArray[np.bool_]:
    """Select all pages for :func:`learn`."""
    return np.ones(len(rows.samples), dtype=np.bool_)


def learn(rows: Rows, chosen: NDArray[np.bool_], settings: Settings) -> bytes:
    """Train a model on the chosen pages (one truth value a page), and pack it."""
    taken = chosen[rows.pages] & ~np.isnan(rows.labels)
    marks, pages = rows.labels[taken], rows.pages[taken]
    snippets = np.array([one.kind == SNIPPETS for one in rows.samples])[pages]
    powers = np.where(snippets, settings.snippet_power, settings.length_power)
    weights = rows.lengths[taken] ** powers
    sums = np.bincount(pages, weights, len(rows.samples))
    weights *= np.maximum(sums, 1)[pages] ** (settings.page_power - 1)
    weights[snippets] *= settings.snippet_weight
    weights *= len(weights) / weights.sum()
    data = lightgbm.Dataset(rows.values[taken], marks, weight=weights)
    booster = lightgbm.train(settings.parameters(), data, settings.trees)
    trees = [tree["tree_structure"] for tree in booster.dump_model()["tree_info"]]
    return packed(trees, rows.digest, settings.recall)


@dataclass(slots=True)
class Found:
    """Results of models on pages with which they were not trained."""

    texts: list[str]
    f1_of: list[float]
    snippets: Snippets

    def mean(self, samples: Sequence[Sample], kind: str | None = None) -> float:
        """Return the mean F1 over words of the pages of a kind, or of all, whose text is marked as
        a whole."""
        values = [
            value
            for value, sample in zip(self.f1_of, samples, strict=True)
            if sample.text is not None and kind in (None, sample.kind)
        ]
        return sum(values) / max(len(values), 1)


def cross_validated(
    rows: Rows, settings: Settings, folds: int = FOLDS, said: Callable[[str], object] = str
) -> Found:
    """Find the texts of all pages, each by a model that was trained on other sites. ``said`` gets
    the progress."""
    texts = [""] * len(rows.samples)
    for number, (model, places) in enumerate(fold_models(rows, settings, folds), 1):
        said(f"part {number} of {folds}: {len(places)} pages by a model of the others")
        for place in places:
            texts[place] = main_text(root_of(rows.samples[place]), model)
    return judge(rows.samples, texts)


def fold_models(
    rows: Rows, settings: Settings, folds: int = FOLDS
) -> Iterator[tuple[object, NDArray[np.int64]]]:
    """Yield models, each with the indexes of pages whose sites it was not trained on."""
    assert compiled is not None
    parts = np.array([sample.fold(folds) for sample in rows.samples])
    for part in range(folds):
        model = compiled.main_model(learn(rows, parts != part, settings))
        yield model, np.flatnonzero(parts == part)


def judge(samples: Sequence[Sample], texts: list[str]) -> Found:
    """Compare texts with what is known of their pages."""
    found = Found(texts, [], Snippets())
    for sample, text in zip(samples, texts, strict=True):
        found.f1_of.append(0.0 if sample.text is None else f1(text, sample.text))
        if sample.text is None:
            found.snippets.add(text, sample.present, sample.absent)
    return found
