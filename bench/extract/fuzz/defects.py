"""Ten defects as people make them: each is put into a copy of the sources, and has to be found."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from greencrawl.worker.extract.speedups import SOURCES


class Defect(NamedTuple):
    """A defect: in ``file``, below ``worker/extract``, ``text``, which occurs once, becomes
    ``instead``."""

    what: str
    file: str
    text: str
    instead: str


DEFECTS = (
    Defect(
        "room for a text that is read is too small", "main/blocks.c",
        "reserve(page, left + 1)", "reserve(page, left / 2)",
    ),
    Defect(
        "an array grows after its end", "main/blocks.c",
        "if (count < *size)", "if (count <= *size)",
    ),
    Defect(
        "sums have no room for the last one", "main/features.c",
        "PyMem_RawMalloc(((size_t)page->block_count + 1) * sizeof *before)",
        "PyMem_RawMalloc((size_t)page->block_count * sizeof *before)",
    ),
    Defect(
        "the logarithm of nothing is asked for", "main/features.c",
        "uint64_t more = (uint64_t)n + 1;", "uint64_t more = n;",
    ),
    Defect(
        "half of the rows of features are there", "main/main.c",
        "PyMem_RawMalloc(count * width)", "PyMem_RawMalloc(count * width / 2)",
    ),
    Defect(
        "a string of JSON is written beyond its end", "main/said.c",
        "PyMem_RawMalloc(length + 1)", "PyMem_RawMalloc(length / 2)",
    ),
    Defect(
        "a place in a table of tables is one too many", "main/document.c",
        "slot = table % KNOWN_TABLES", "slot = table % (KNOWN_TABLES + 1)",
    ),
    Defect(
        "what was written is freed twice", "main/main.c",
        "    PyMem_RawFree(out.data);\n",
        "    PyMem_RawFree(out.data);\n    PyMem_RawFree(out.data);\n",
    ),
    Defect(
        "candidates are sorted that were never made", "main/choice.c",
        "PyMem_RawMalloc(((size_t)page->block_count + 1) * sizeof *candidates)",
        "PyMem_RawMalloc(((size_t)page->block_count / 2) * sizeof *candidates)",
    ),
    Defect(
        "all text has no room for what is appended", "speedups.c",
        "if (text->size - text->length > more)", "if (text->size - text->length > more / 2)",
    ),
)  # fmt: skip


def copied(folder: Path, defect: Defect | None = None) -> list[Path]:
    """Copy the sources to ``folder`` with a defect; return the compiled ones.

    Raises ValueError if the defect's text is missing or occurs several times.
    """
    root, made = SOURCES[0].parent, []
    root = root if root.name == "extract" else root.parent
    for source in SOURCES:
        target = folder / source.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
        made.append(target)
    if defect is not None:
        target = folder / defect.file
        text = target.read_text()
        if text.count(defect.text) != 1:
            raise ValueError(f"{defect.file} has {text.count(defect.text)} times: {defect.text}")
        target.write_text(text.replace(defect.text, defect.instead))
    return made
