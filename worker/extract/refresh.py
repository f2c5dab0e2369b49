"""The target of a refresh, by the steps that browsers take, in a meta element or a header.

https://html.spec.whatwg.org/#shared-declarative-refresh-steps
"""

from __future__ import annotations

import re

_BLANK = r"[\t\n\f\r ]*+"
_SECONDS = re.compile(
    rf"{_BLANK}(?:[0-9]++|(?=\.))[0-9.]*+(?=[\t\n\f\r ;,]){_BLANK}[;,]?{_BLANK}", re.ASCII
)
_NAME = re.compile(rf"url{_BLANK}={_BLANK}", re.IGNORECASE | re.ASCII)


def refresh_reference(content: str) -> str | None:
    """Return the reference in a ``5; url=/x``; None if it leads nowhere, or to the page itself."""
    seconds = _SECONDS.match(content)
    if seconds is None:
        return None
    rest = content[seconds.end() :]
    name = _NAME.match(rest)
    if name is not None:
        rest = rest[name.end() :]
    if rest[:1] in ('"', "'"):
        rest = rest[1:].partition(rest[0])[0]
    return rest.strip() or None
