"""The title in a page: without the name of its site, and as its heading has it."""

from __future__ import annotations

from collections.abc import Sequence

from greencrawl.worker.extract.main.names import fold, longest_part, parts_of

_PERMALINK = "¶#§ \xa0"
"""Signs after the headings of documentation."""
_LEAST_SIGNS = 4
_LEAST_WORDS = 3
_ALIKE = 0.6
"""The share of a heading's words that a title must have if both mean the same."""


def choose(title: str, said: Sequence[str], site: str, headings: Sequence[str]) -> str:
    """Return the title of a page.

    ``title`` is the text of its ``title`` element; ``said`` has the titles in its metadata;
    ``site`` is the name of its site, "" if unknown; ``headings`` has its headings of the first
    level, in order.

    The best choice is a heading that the titles repeat as a whole, above all a heading that begins
    the ``title``. The next choice is a heading that shares most of its words with the titles. The
    last choice is a title without the name of the site.
    """
    parts = [fold(part) for part in parts_of(title)]
    sites = {fold(site)}
    if len(parts) > 1 and parts[0] not in sites:
        sites.add(parts[-1])  # a heading with this name may be the logo
    known = [fold(value) for value in (*said, title) if value]
    folded = [
        (fold(heading), heading.rstrip(_PERMALINK))
        for heading in headings
        if fold(heading) not in sites
    ]
    repeated = [
        (short, heading)
        for short, heading in folded
        if len(short) >= _LEAST_SIGNS and any(short in value for value in known)
    ]
    if repeated:
        first = parts[0] if parts else ""
        return max(repeated, key=lambda one: (one[0] == first, len(one[0])))[1]
    if len(sites) > 1 and not any(fold(heading) == parts[-1] for heading in headings):
        sites.discard(parts[-1])
    shortened = [longest_part(value, sites) for value in (*said, title) if value]
    words = {word for value in known for word in value.split()}
    for short, heading in folded:
        if any(value and fold(value) in short for value in shortened) or _is_alike(short, words):
            return heading
    if shortened:
        return shortened[0]
    return folded[0][1] if folded else ""


def _is_alike(heading: str, words: set[str]) -> bool:
    own = heading.split()
    return len(own) >= _LEAST_WORDS and sum(word in words for word in own) >= _ALIKE * len(own)
