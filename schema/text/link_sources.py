"""The sources of links, by name: those followed by default, and those that a crawl may add."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class LinkSource(NamedTuple):
    """A source of links; ``reads`` says, for people, where such links stand."""

    default: bool
    reads: str


SOURCES = {
    "a": LinkSource(True, "`a href`"),
    "area": LinkSource(True, "`area href`"),
    "frame": LinkSource(True, "`frame src`"),
    "iframe": LinkSource(True, "`iframe src`"),
    "srcdoc": LinkSource(True, "the document in an `iframe srcdoc`"),
    "paging": LinkSource(True, "`rel=next` and `rel=prev`, in a `link` or in the header `Link`"),
    "refresh": LinkSource(True, "`meta http-equiv=refresh` and the header `Refresh`"),
    "alternate": LinkSource(
        False, "`rel=alternate`, in a `link` or in the header `Link`: languages, other media"
    ),
    "feeds": LinkSource(
        False,
        "`rel=feed`, or `rel=alternate` with the type of a feed, in a "
        "`link` or in the header `Link`",
    ),
    "amphtml": LinkSource(False, "`rel=amphtml`, in a `link` or in the header `Link`"),
    "canonical": LinkSource(False, "`rel=canonical`, in a `link` or in the header `Link`"),
    "content-location": LinkSource(False, "the header `Content-Location`"),
    "forms": LinkSource(
        False,
        "forms with the method GET and without a field for a person, as they are sent unfilled",
    ),
    "objects": LinkSource(
        False, "`object data`, `embed src`, `applet archive`, `codebase`, and a `param` with a URL"
    ),
    "data": LinkSource(False, "attributes `data-href`, `data-url`, `data-uri`, `data-link`"),
    "json-ld": LinkSource(False, "URLs in a `script type=application/ld+json`"),
    "og": LinkSource(False, "`meta property=og:url`"),
    "xlink": LinkSource(False, "`xlink:href` of an `a` in SVG"),
    "cite": LinkSource(False, "`cite` of `blockquote`, `q`, `ins`, `del`; `longdesc`"),
}
"""Images, styles and scripts are no links: see the option ``requisites``."""

DEFAULT = frozenset(name for name, source in SOURCES.items() if source.default)


def unknown_sources(names: Sequence[str]) -> list[tuple[int, str]]:
    """Return which of a crawl's ``links`` name no source: ``(index, problem)`` pairs."""
    return [
        (index, f"no source of links: {name!r}; there are {', '.join(SOURCES)}")
        for index, name in enumerate(names)
        if name.removeprefix("-") not in SOURCES
    ]


def chosen_sources(names: Sequence[str]) -> frozenset[str]:
    """Return the default sources and the named ones, without those named with "-" in front.

    If two words name one source, the last counts.
    """
    found = set(DEFAULT)
    for name in names:
        if name.startswith("-"):
            found.discard(name[1:])
        else:
            found.add(name)
    return DEFAULT if found == DEFAULT else frozenset(found)
