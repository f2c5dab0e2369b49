"""The language tag of a page, by its own declaration."""

from __future__ import annotations

import re
from functools import lru_cache

# The form of RFC 5646 tags; subtags are not checked against the registry.
_SHAPE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8}){0,4}\Z")


@lru_cache(maxsize=1024)
def tag(declared: str) -> str:
    """Return a declared language in the spelling of RFC 5646, section 2.1.1, or "".

    ``zh_hans-cn`` → ``zh-Hans-CN``. The first of a list counts; a text that is no tag gives "".
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
