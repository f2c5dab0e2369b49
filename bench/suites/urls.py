"""URLs of the Web Platform Tests, and crawler-commons' pairs of odd and normal ones.

A crawler needs the URLs of WPT with http and https, without fragment and credentials; all others
have to be refused. The expected results follow from those of the suite.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urljoin

import ada_url
import w3lib.url
import yarl

from bench.suites.table import RAISED, Figure, tried
from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.normalising import normalise
from greencrawl.schema.net.urls import canonicalise

PAIRS_LEAST = 95
PROFILE = ("percent", "host-dot", "slashes", "empty", "query-order")
"""Rules that crawler-commons' normaliser has as well."""

Read = Callable[[str, str | None, str], str]
"""A function that makes a URL from a reference, its base and the page's encoding; it raises an
error if the result is no URL."""


class Case(NamedTuple):
    """A case; ``want`` is None for input that has to be refused."""

    given: str
    base: str | None
    encoding: str
    want: str | None


def _crawled(href: str) -> str | None:
    """Return the part of a URL that a crawler asks for."""
    if not href.startswith(("http://", "https://")):
        return None
    scheme, _, rest = href.partition("#")[0].partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"


def _rows(path: Path) -> list[dict[str, Any]]:
    return [row for row in json.loads(path.read_text()) if isinstance(row, dict)]


def _references(path: Path) -> list[Case]:
    return [
        Case(
            row["input"], row["base"] or None, "utf-8",
            None if row.get("failure") else _crawled(row["href"]),
        )
        for row in _rows(path)
    ]  # fmt: skip


def _queries(path: Path) -> list[Case]:
    return [
        Case(f"http://h/?{row['input']}", None, encoding, f"http://h/?{want}")
        for row in _rows(path)
        for encoding, want in row["output"].items()
    ]


def _hosts(path: Path) -> list[Case]:
    found = []
    for row in _rows(path):
        want = row["output"] and f"https://{row['output']}/x"
        found.append(Case(f"https://{row['input']}/x", None, "utf-8", want))
    return found


def _pairs(path: Path) -> list[Case]:
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    rows = csv.reader(line for line in lines if not line.startswith("#"))
    return [Case(given, None, "utf-8", want.strip()) for given, want in rows]


def _right(read: Read) -> Callable[[Case], bool]:
    def right(case: Case) -> bool:
        try:
            found = read(case.given, case.base, case.encoding)
        except RAISED:
            return case.want is None
        return found == case.want

    return right


def _ours(read: Read) -> Callable[[Case], bool]:
    """Return the same test, but ours may only raise what callers know."""

    def right(case: Case) -> bool:
        try:
            return read(case.given, case.base, case.encoding) == case.want
        except InvalidUrl:
            return case.want is None

    return right


def _canonical(given: str, base: str | None, encoding: str) -> str:
    return canonicalise(given, base, encoding)


def _normal(given: str, base: str | None, encoding: str) -> str:
    return normalise(given, PROFILE)


def _crawl_only(found: str) -> str:
    crawled = _crawled(found)
    if crawled is None:
        raise ValueError(found)
    return crawled


def _ada(given: str, base: str | None, encoding: str) -> str:
    return _crawl_only(ada_url.join_url(base, given) if base else ada_url.normalize_url(given))


def _yarl(given: str, base: str | None, encoding: str) -> str:
    url = yarl.URL(given)
    return _crawl_only(str(yarl.URL(base).join(url) if base else url))


def _w3lib(given: str, base: str | None, encoding: str) -> str:
    safe = w3lib.url.safe_url_string(given, encoding=encoding)
    return _crawl_only(urljoin(base, safe) if base else safe)


def figures(folder: Path) -> list[Figure]:
    """Return the figures of each suite, for ours, ada, yarl and w3lib."""
    others = {"ada-url": _right(_ada), "yarl": _right(_yarl), "w3lib": _right(_w3lib)}
    found = []
    for name, cases in (
        ("WPT urltestdata", _references(folder / "wpt-urltestdata.json")),
        ("WPT percent-encoding", _queries(folder / "wpt-percent-encoding.json")),
        ("WPT toascii", _hosts(folder / "wpt-toascii.json")),
    ):
        found.append(tried(name, cases, _ours(_canonical), others, len(cases)))
    pairs = _pairs(folder / "url-normalizer.csv")
    normal = {
        "w3lib": _right(lambda given, base, encoding: w3lib.url.canonicalize_url(given)),
        "yarl": _right(lambda given, base, encoding: str(yarl.URL(given))),
        "ada-url": _right(lambda given, base, encoding: ada_url.normalize_url(given)),
    }
    found.append(tried("crawler-commons' pairs", pairs, _ours(_normal), normal, PAIRS_LEAST))
    return found
