"""The images of a ``srcset``: https://html.spec.whatwg.org/#parse-a-srcset-attribute"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLANK = "\t\n\f\r "
_REFERENCE = re.compile(rf"[{_BLANK},]*+([^{_BLANK}]++)")
_DESCRIPTORS = re.compile(r"(?>(?:[^,(]++|\([^)]*+\)?)*)")


def candidates(srcset: str) -> Iterator[str]:
    """Yield the references of a srcset, in order. A reference that ends with a comma has no
    descriptor."""
    position = 0
    while (found := _REFERENCE.match(srcset, position)) is not None:
        position = found.end()
        reference = found[1].rstrip(",")
        if len(reference) == len(found[1]):
            descriptors = _DESCRIPTORS.match(srcset, position)
            position = descriptors.end() if descriptors else position
        if reference:
            yield reference
