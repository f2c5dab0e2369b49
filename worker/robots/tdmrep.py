"""``/.well-known/tdmrep.json``: which paths of a site are reserved from text and data mining.

By the report of the W3C's community group (https://www.w3.org/community/reports/tdmrep/) it is a
JSON array of rules. The first rule that fits a URL's path and query counts; ``*`` stands for
anything and a final ``$`` for the end, as in robots.txt.

The cost of a file is bounded: at most :data:`MAX_BODY_BYTES` and :data:`MAX_RULES` of it are read,
and the work for one URL is :data:`BUDGET`, about 0.3 ms. If that is too little to decide, rights
count as reserved.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from greencrawl.schema.records import Directives
from greencrawl.schema.text.declared import policy_url
from greencrawl.worker.robots.paths import pattern_of, target_of
from greencrawl.worker.robots.wildcards import CALL, Wildcard

PATH = "/.well-known/tdmrep.json"
MAX_BODY_BYTES = 256 * 1024
"""A longer file says nothing: cut off, it is invalid JSON."""
MAX_RULES = 1000
"""Rules that are read; later ones are not."""
MAX_LOCATION_CHARS = 1000
"""A rule with a longer ``location`` is left out."""
BUDGET = 300_000
"""Units of work for one URL; see ``greencrawl.worker.robots.wildcards``."""

_RULE_BYTES = 400
_SAID: dict[int | str, Literal["open", "reserved"]] = {
    0: "open", 1: "reserved", "0": "open", "1": "reserved"
}  # fmt: skip
_UNDECIDED = Directives(tdm="reserved")


class _Rule:
    """One rule: ``head`` alone, or a ``wildcard`` if it has ``*``; ``whole`` if it ends with $."""

    __slots__ = ("head", "said", "whole", "wildcard")

    def __init__(self, pattern: str, said: Directives) -> None:
        self.whole = pattern.endswith("$")
        self.head, *pieces = pattern.removesuffix("$").split("*")
        last = pieces.pop() if self.whole and pieces else None
        pieces = [piece for piece in pieces if piece]
        self.wildcard = Wildcard(0, self.head, pieces, last) if pieces or last else None
        self.whole = self.whole and last is None
        self.said = said


class Reservations:
    """The rules of one file. ``bytes`` is about its memory."""

    def __init__(self, rules: list[_Rule]) -> None:
        self._rules = rules
        self.bytes = _RULE_BYTES * (1 + len(rules))

    def of(self, url: str) -> Directives | None:
        """Return what the file says of a canonical URL; None: nothing."""
        if not self._rules:
            return None
        target, left = target_of(url), float(BUDGET)
        for rule in self._rules:
            left -= CALL
            if left < 0:
                return _UNDECIDED
            if rule.wildcard is not None:
                fits, left = rule.wildcard.counted(target, left)
            else:
                fits = target == rule.head if rule.whole else target.startswith(rule.head)
            if fits:
                return rule.said
        return _UNDECIDED if left < 0 else None


NOTHING = Reservations([])
"""The result of a missing or invalid file."""


def parse(body: bytes) -> Reservations:
    """Read a file; nothing is raised, and invalid rules are ignored."""
    if len(body) > MAX_BODY_BYTES:
        return NOTHING
    try:
        found = msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return NOTHING
    if not isinstance(found, list):
        return NOTHING
    rules = [rule for one in found[:MAX_RULES] if (rule := _rule(one)) is not None]
    return Reservations(rules) if rules else NOTHING


def _rule(found: Any) -> _Rule | None:
    if not isinstance(found, dict):
        return None
    location, value = found.get("location"), found.get("tdm-reservation")
    if not isinstance(location, str) or len(location) > MAX_LOCATION_CHARS:
        return None
    if isinstance(value, bool) or not isinstance(value, int | str) or value not in _SAID:
        return None
    pattern = pattern_of(location.strip().encode("utf-8", "replace"))
    if pattern is None:
        return None
    tdm, policy = _SAID[value], found.get("tdm-policy")
    where = policy_url(policy) if isinstance(policy, str) and tdm == "reserved" else ""
    return _Rule(pattern, Directives(tdm=tdm, tdm_policy=where))
