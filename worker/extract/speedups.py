"""The compiled part in C, if ``greencrawl.worker.extract.compile`` made it.

It is in the environment of the Python that compiled it. It is used only if it was made of these
sources and lists, and for these releases of lxml and of libxml2, whose structures it reads. Its
name has a digest of all these, so that any other module is not even opened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from lxml import etree

_HERE = Path(__file__).parent
SOURCES = tuple(
    sorted(path for folder in (_HERE, _HERE / "main") for path in folder.glob("*.[ch]"))
)
"""All sources in C, here and in ``main/``."""
PREFIX = "greencrawl_speedups_"


def name_of(blocks: Sequence[str], hidden: Sequence[str]) -> str:
    """Return the name of the module made of the sources, these lists, this lxml and its libxml2.

    A release of lxml comes with different releases of libxml2, so two releases of libxml2 count:
    the one for which lxml was compiled, and the one on which it runs.
    """
    made_of = [
        *(source.read_text() for source in SOURCES),
        *blocks,
        "",
        *hidden,
        "",
        etree.__version__,
        *map(str, (*etree.LIBXML_COMPILED_VERSION, *etree.LIBXML_VERSION)),
    ]
    digest = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:12]
    return PREFIX + digest


def load(blocks: Sequence[str], hidden: Sequence[str]) -> ModuleType | None:
    """Return the compiled module, None if none fits."""
    try:
        return import_module(name_of(blocks, hidden))
    except ImportError:
        return None
