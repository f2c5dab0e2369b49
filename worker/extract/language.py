"""The language tag of a page, by what it says of itself."""

from __future__ import annotations

import re
from functools import lru_cache

# The shape of RFC 5646 tags, without checking subtags against the registry.
_SHAPE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8}){0,4}\Z")


@lru_cache(maxsize=1024)
def tag(declared: str) -> str:
    """A declared language in the spelling that RFC 5646 section 2.1.1 recommends, or "".

    ``zh_hans-cn`` → ``zh-Hans-CN``. The first of a list is taken; a text without the shape of a tag
    is none.
    """
    first = declared.partition(",")[0].strip().replace("_", "-")
    if not _SHAPE.match(first):
        return ""
    language, *subtags = first.split("-")
    return "-".join([language.lower(), *map(_spelt, subtags)])


def _spelt(subtag: str) -> str:
    if len(subtag) == 2:
        return subtag.upper()
    return subtag.title() if len(subtag) == 4 and subtag.isalpha() else subtag.lower()
