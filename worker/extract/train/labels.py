"""How much of each block is main text."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from greencrawl.worker.extract.train.samples import Sample

SHINGLE = 4
"""Words in a row that identify where a text comes from."""

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+")


def words(text: str) -> list[str]:
    """Return words in lower case; characters of scripts without spaces one by one."""
    return _WORD.findall(text.lower())


def labels(texts: Sequence[str], sample: Sample) -> NDArray[np.float32]:
    """Return for each block's text the share of its words that is main text; NaN if unknown."""
    if sample.text is None:
        return by_snippets(texts, sample)
    return by_shingles(texts, sample.text)


def by_shingles(texts: Sequence[str], truth: str) -> NDArray[np.float32]:
    """Label texts by a marked main text.

    A word counts as marked if one of its shingles, which may cross ends of blocks, is in the truth.
    A shorter text counts if it is a line of the truth.
    """
    marked = words(truth)
    known = {tuple(marked[i : i + SHINGLE]) for i in range(len(marked) - SHINGLE + 1)}
    lines = {tuple(words(line)) for line in truth.splitlines()}
    of_blocks = [words(text) for text in texts]
    stream = [word for block in of_blocks for word in block]
    covered = np.zeros(len(stream), dtype=bool)
    for i in range(len(stream) - SHINGLE + 1):
        if tuple(stream[i : i + SHINGLE]) in known:
            covered[i : i + SHINGLE] = True
    result = np.zeros(len(texts), dtype=np.float32)
    at = 0
    for i, block in enumerate(of_blocks):
        if block:
            result[i] = covered[at : at + len(block)].mean()
            if len(block) < SHINGLE and tuple(block) in lines:
                result[i] = 1
        at += len(block)
    return result


def by_snippets(texts: Sequence[str], sample: Sample) -> NDArray[np.float32]:
    """Label texts by snippets.

    A block that contains a required snippet, or its start or end, is labelled 1, a block with a
    forbidden one 0, and any other NaN.
    """
    result = np.full(len(texts), np.nan, dtype=np.float32)
    begins, whole = [], ""
    for text in texts:
        begins.append(len(whole))
        whole += " ".join(text.split()) + " "
    begins.append(len(whole))
    starts = np.array(begins)
    for snippets, label in ((sample.absent, 0), (sample.present, 1)):
        for snippet in snippets:
            at = whole.find(snippet)
            while at >= 0:
                first = int(np.searchsorted(starts, at, "right")) - 1
                last = int(np.searchsorted(starts, at + len(snippet) - 1, "right"))
                result[first:last] = label
                at = whole.find(snippet, at + 1)
    return result
