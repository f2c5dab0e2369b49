"""Regular expressions mean the same in every Python version that the project supports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.rules.test_layout import modules
from tests.support.checkout import ROOT

# Before Python 3.11.5 a possessive group that has to try several ways matches nothing
# (https://github.com/python/cpython/issues/106052). An atomic one, (?>(?:…)*), does.
_POSSESSIVE_GROUP = re.compile(r"(?<!\\)\)(?:[*+?]|\{\d+(?:,\d*)?\})\+")


_PERHAPS = re.compile(r"[*+?}][\s\"'rRbBfFuU\\]*\+")
"""Texts that occur in each source with such a group, even if it is split over two literals: parsing
all other sources takes seconds."""


def possessive_groups(source: str) -> Iterator[str]:
    """Return texts of a module that have a possessive group."""
    if not _PERHAPS.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            if _POSSESSIVE_GROUP.search(text):
                yield text


def test_no_regular_expression_has_a_possessive_group() -> None:
    found = {
        str(path): texts
        for path in modules("py")
        if (texts := list(possessive_groups((ROOT / path).read_text(encoding="utf-8"))))
    }
    assert found == {}


def test_a_possessive_group_is_seen() -> None:
    source = "a = rb'(?:x|y)*+'\nb = r'[^)]*+(?>(?:x)*)'\nc = r'(x){2}+'\nd = r'\\)*+'\n"
    assert list(possessive_groups(source)) == ["(?:x|y)*+", "(x){2}+"]
