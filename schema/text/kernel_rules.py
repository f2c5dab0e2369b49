"""A crawl's ``kernels``: the kernel of each URL, and the user's modules among them.

Patterns become RE2 expressions, which take time linear in the URL whatever a user writes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from greencrawl.schema.records import CrawlOptions, KernelRule
from greencrawl.schema.records.auth import BUILT_IN_KERNELS
from greencrawl.schema.text.patterns import Pattern

_OWN = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_BEGINS = ("http://", "https://", "*")
_SHOWN = 200


class KernelRules:
    """The compiled rules of a crawl. Raises ValueError for an invalid pattern."""

    def __init__(self, rules: Sequence[KernelRule]) -> None:
        self._rules = [(_pattern(rule.match), rule.kernel) for rule in rules]

    def place(self, url: str) -> int | None:
        """Return the place of the first rule that matches the canonical ``url``."""
        for place, (pattern, _) in enumerate(self._rules):
            if pattern.found_in(url):
                return place
        return None

    def named(self, url: str) -> str:
        """Return the kernel of that rule, "" if none matches."""
        place = self.place(url)
        return "" if place is None else self._rules[place][1]


def check_kernels(rules: Sequence[KernelRule]) -> list[tuple[str, str]]:
    """Return what is wrong with rules beyond their types: ``(field, problem)`` pairs."""
    problems = []
    for index, rule in enumerate(rules):
        if not rule.match.startswith(_BEGINS):
            what = "must be a URL with http:// or https:// in which * stands for any characters"
            problems.append((f"kernels[{index}].match", what))
        try:
            _pattern(rule.match)
        except ValueError:
            problems.append((f"kernels[{index}].match", "cannot be matched in bounded time"))
        if rule.kernel == "json":
            what = "reads `sources`, which say what a list holds; name one there"
            problems.append((f"kernels[{index}].kernel", what))
        elif rule.kernel not in BUILT_IN_KERNELS and not _OWN.fullmatch(rule.kernel):
            what = "must be http, sitemap or feed, or a class of yours as module:Class"
            problems.append((f"kernels[{index}].kernel", what))
    return problems


def own_kernels(options: CrawlOptions) -> tuple[str, ...]:
    """Return the user's classes that a crawl names as kernels, each once."""
    named = dict.fromkeys(rule.kernel for rule in options.kernels)
    return tuple(name for name in named if name not in BUILT_IN_KERNELS)


def own_code(options: CrawlOptions) -> str:
    """Return all that a worker has to import for a crawl, in one line; "" for nothing.

    A worker that cannot import it refuses the crawl with this text, and is asked again when the
    text changes.
    """
    named = ", ".join(filter(None, (options.hook, *own_kernels(options))))
    if len(named) <= _SHOWN:
        return named
    digest = hashlib.blake2b(named.encode(), digest_size=8).hexdigest()
    return f"{named[:_SHOWN]}… {digest}"


def _pattern(match: str) -> Pattern:
    return Pattern("^" + ".*".join(re.escape(part) for part in match.split("*")) + r"\z")
