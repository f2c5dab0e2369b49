"""The compiled rules of one product token: they decide which rule holds for a URL.

Rules without ``*`` are in a sorted table: one binary search finds the longest that a URL begins
with, however many there are. Rules with ``*`` are grouped by the text before their first ``*``, and
only rules whose start fits are tried. The pieces between the ``*`` are searched for from the left.
That is enough: if any placement of the pieces fits, the leftmost one fits, too. No placement is
tried twice.

Two bounds keep the work for a URL under :data:`BUDGET`, 0.1 to 0.15 ms, whatever a file says:

* The first :data:`MAX_WILDCARDS` of a token's rules with ``*`` are compiled, as long as they have
  no more than :data:`MAX_STARS` ``*`` together. After that a Disallow with ``*`` is read up to its
  first ``*``, and an Allow with ``*`` is not read at all.
* Work is counted before it is done, by its worst case. If the rest of the budget is too small to
  decide, the URL is forbidden.

Both bounds may forbid more than the file does, never less. So RFC 9309 is kept: it says what may
not be fetched. It also requires that 500 KiB of a file are read, and they are read.
"""

from __future__ import annotations

import struct
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple

from greencrawl.worker.process.steps import Steps
from greencrawl.worker.robots.paths import pattern_of, target_of
from greencrawl.worker.robots.prefixes import STEP, Prefixes
from greencrawl.worker.robots.wildcards import CALL, SEARCHED, Wildcard

MAX_WILDCARDS = 2000
MAX_STARS = 10_000
BUDGET = 100_000
"""Units of work for a URL of up to :data:`_LONG` octets; longer ones get more, in proportion.

A unit takes at most a nanosecond in usual files, and up to 1.5 in hostile ones.
"""
_LONG = 2000
_FEW = 2
"""Up to this number, rules with the same start are tried one by one; if there are more, only those
that may match."""
_MANY = 500
"""More than this many are not even tried: the budget would not suffice."""
_LOOKED_UP = 22
"""The look-up of parts of four octets in a URL costs this many units an octet."""
_COUNTED, _SPLIT = 0.5, 90
"""To count a letter in a URL costs the first number of units an octet; to note what follows a match
costs the second number."""
_SORTED = 50
"""Units for each wildcard that was found in this way."""
_CUT = 1 << 31
"""Marks, in a code, a rule that was read up to its first ``*``."""
_INDEX = frozenset(["index.html", "index.htm", "index.html$", "index.htm$"])
UNDECIDED: Final = 1 << 62
"""The code of a URL for which the budget does not suffice."""


class Line(NamedTuple):
    """One Allow or Disallow: its path as written, and where its line begins in the text."""

    value: bytes
    allow: bool
    offset: int


_Tries = tuple[tuple[int, str, Wildcard], ...]


class _Head:
    """Wildcards with the same start, most specific first; ``above`` are those with a shorter start.

    To try all of them costs ``worst`` units, and ``worst_octet`` more units for each octet of the
    URL; ``count`` is their number. All three numbers include the wildcards ``above``.
    """

    __slots__ = ("_short", "above", "count", "fours", "tries", "worst", "worst_octet")

    def __init__(self, wildcards: list[Wildcard], above: _Head | None) -> None:
        wildcards.sort(key=lambda w: w.code, reverse=True)
        self.above = above
        self.tries: _Tries = tuple([(w.code, w.key, w) for w in wildcards])
        worst = [w.worst() for w in wildcards]
        self.worst: float = sum([fixed for fixed, _ in worst])
        self.worst_octet: float = sum([octet for _, octet in worst])
        self.count = len(wildcards)
        if above is not None:
            self.count += above.count
            self.worst += above.worst
            self.worst_octet += above.worst_octet
        self.fours: dict[int, list[int]] = {}
        """Four octets within one piece → indexes of wildcards."""
        self._short: dict[str, dict[str, list[int]]] = {}
        """Wildcards with shorter pieces: by the first letter of their key, then by its other
        letters."""
        if len(wildcards) > _FEW:
            self._look_up()

    def _look_up(self) -> None:
        """Index each wildcard by the rarest part of its longest piece."""
        parts: list[tuple[int, ...]] = []
        for _, _, wildcard in self.tries:
            pieces = [piece for piece, _, _ in wildcard.pieces]
            parts.append(_fours(max([wildcard.last or "", *pieces], key=len)))
        often = Counter(chain.from_iterable(parts))
        for number, (_, key, _) in enumerate(self.tries):
            if parts[number]:
                self.fours.setdefault(min(parts[number], key=often.__getitem__), []).append(number)
            else:
                others = self._short.setdefault(key[0], {})
                others.setdefault(key[1:], []).append(number)

    def candidates(self, seen: _Seen) -> _Tries | None:
        """Return the rules that may match, the most specific first; None if there are too many to
        try."""
        found: set[int] = set()
        if self.fours:
            for part in self.fours.keys() & seen.fours():
                found.update(self.fours[part])
        for letter, others in self._short.items():
            for rest in seen.after(letter, others):
                found.update(others[rest])
        seen.left -= _SORTED * len(found)
        if seen.left < 0 or len(found) > _MANY:
            return None
        return tuple([self.tries[number] for number in sorted(found)])


def _fours(piece: str) -> tuple[int, ...]:
    """Return some of a piece's parts of four octets: the last ones and the first ones."""
    octets, last = piece.encode(), len(piece) - 4
    places = (last, last - 1, last - 2, last - 3, 3, 2, 1, 0)
    return tuple(
        [int.from_bytes(octets[at : at + 4], sys.byteorder) for at in places if 0 <= at <= last]
    )


class _Seen:
    """The contents of a URL, looked up once for all wildcards, as long as the budget lasts.

    ``left`` is the rest of the budget: below 0, the answers here are not complete.
    """

    __slots__ = ("_after", "_fours", "_keys", "_target", "left")

    def __init__(self, target: str, keys: frozenset[int]) -> None:
        self.left: float = BUDGET * max(1.0, len(target) / _LONG)
        self._target = target
        self._keys = keys
        self._fours: set[int] | None = None
        self._after: dict[str, set[str]] = {}

    def fours(self) -> set[int]:
        """Return the parts of four octets in the URL that are keys of the index of wildcards."""
        if self._fours is None:
            self._fours = set()
            length = len(self._target)
            self.left -= _LOOKED_UP * length
            octets = self._target.encode() if self.left >= 0 else b""
            for first in range(min(4, len(octets) - 3)):
                parts = struct.unpack_from(f"={(length - first) // 4}I", octets, first)
                self._fours.update(self._keys.intersection(parts))
        return self._fours

    def after(self, letter: str, rests: Mapping[str, object]) -> Iterable[str]:
        """Return the ``rests``, of two letters at most, that follow ``letter`` somewhere in the
        URL.

        No rest contains ``letter``, so each ends before ``letter`` comes again.
        """
        known = self._after.get(letter)
        if known is not None:
            return rests.keys() & known
        target = self._target
        self.left -= CALL + _COUNTED * len(target)
        places = target.count(letter)
        split, look = CALL + _SPLIT * places, CALL + SEARCHED * len(target)
        if places and len(rests) * look < split:
            self.left -= len(rests) * look
            return [rest for rest in rests if self.left >= 0 and letter + rest in target]
        self.left -= split
        if self.left < 0:
            return ()
        pairs = {rest[:2] for rest in target.split(letter)[1:]}
        known = pairs.union([pair[:1] for pair in pairs], [""] if pairs else ())
        self._after[letter] = known
        return rests.keys() & known


def _meant(value: bytes, allow: bool) -> Iterator[str]:
    """Yield the patterns of a rule: its own, if it can match a URL.

    A rule that allows ``/x/index.html`` also allows ``/x/``, which is the same page.
    """
    pattern = pattern_of(value)
    if pattern is None:
        return
    yield pattern
    if allow and "/index.htm" in pattern:
        folder, slash, name = pattern.rpartition("/")
        if name in _INDEX:
            yield f"{folder}{slash}$"


class Group:
    """The rules of a file for one product token, merged and arranged so that a check is cheap.

    ``delay``: the requested seconds between requests, the largest of several, or None. Each rule
    has a code. The code consists of the rule's length and whether it allows, which decide between
    rules, and of the place in ``text`` where its line begins.
    """

    __slots__ = ("_heads", "_keys", "_nodes", "_plain", "_text", "delay")

    def __init__(self, text: bytes, delay: float | None) -> None:
        self.delay = delay
        self._text = text
        self._plain = Prefixes()
        self._heads = Prefixes()
        self._nodes: list[_Head] = []
        self._keys: frozenset[int] = frozenset()

    @classmethod
    def steps(cls, text: bytes, lines: Iterable[Line], delay: float | None) -> Steps[Group]:
        """Compile a token's rules, whose lines are in ``text``."""
        group = cls(text, delay)
        begins: dict[str, int] = {}
        exact: dict[str, int] = {}
        wild: dict[str, int] = {}
        stars = 0
        for number, (value, allow, offset) in enumerate(lines):
            if not number % STEP:
                yield
            for pattern in _meant(value, allow):
                code = (2 * len(pattern) + allow) << 32 | offset
                table, key = begins, pattern
                if pattern[-1] == "$":
                    pattern = pattern[:-1]
                    table, key = exact, pattern
                if "*" in pattern:
                    table, key = wild, pattern + "$" * (table is exact)
                    if pattern.find("*") == len(pattern) - 1:  # nothing after it
                        table, key = begins, pattern[:-1]
                    elif key not in wild:
                        stars += pattern.count("*")
                        if len(wild) >= MAX_WILDCARDS or stars > MAX_STARS:
                            stars -= pattern.count("*")
                            if allow:
                                continue
                            table, key, code = begins, pattern.partition("*")[0], code | _CUT
                if table.get(key, 0) >> 32 < code >> 32:
                    table[key] = code
        group._plain = yield from Prefixes.steps(begins, exact)
        del begins, exact
        if wild:
            yield from group._compile(wild)
        return group

    def _compile(self, wild: dict[str, int]) -> Steps[None]:
        by_head: dict[str, list[Wildcard]] = {}
        for number, (pattern, code) in enumerate(wild.items()):
            if not number % STEP:
                yield
            anchored = pattern[-1] == "$"
            head, *pieces = (pattern[:-1] if anchored else pattern).split("*")
            last = pieces.pop() if anchored else None
            if not anchored and not pieces[-1]:
                pieces.pop()
            # Every path begins with "/": this avoids looking into two long lists.
            by_head.setdefault(head or "/", []).append(Wildcard(code, head, pieces, last))
        self._heads = heads = yield from Prefixes.steps(dict.fromkeys(by_head, 1), {})
        for text, above in zip(heads.texts, heads.parents, strict=True):
            yield
            self._nodes.append(_Head(by_head[text], self._nodes[above] if above >= 0 else None))
        self._keys = frozenset().union(*[node.fours for node in self._nodes])

    def forbids(self, url: str) -> str | None:
        """Return the line of the file that forbids ``url``; None if it may be fetched."""
        code = self._decide(url)
        return None if not code or code >> 32 & 1 else self._line(code)

    def line_for(self, url: str) -> str | None:
        """Return the line of the file that decides about ``url``, or None if there is none."""
        code = self._decide(url)
        return self._line(code) if code else None

    def _line(self, code: int) -> str:
        if code == UNDECIDED:
            return "too many of its wildcards may match to try them all"
        offset = code & (_CUT - 1)
        end = self._text.find(b"\n", offset)
        line = self._text[offset:end] if end >= 0 else self._text[offset:]
        cut = f" (read up to *: over {MAX_WILDCARDS} wildcards)" if code & _CUT else ""
        return line.decode("utf-8", "replace").strip() + cut

    def _decide(self, url: str) -> int:
        """Return the code of the most specific rule that matches: most octets, Allow if two are
        equal.

        0 if none does, and for /robots.txt itself: that always may be fetched.
        """
        plain, heads = self._plain, self._heads
        if not plain.texts and not heads.texts:
            return 0
        target = target_of(url)
        if target.startswith("/robots.txt") and target.partition("?")[0] == "/robots.txt":
            return 0
        code = plain.code(target) if plain.texts else 0
        at = heads.find(target) if heads.texts else -1
        if at < 0:
            return code
        head: _Head | None = self._nodes[at]
        assert head is not None
        length = len(target)
        if head.worst + head.worst_octet * length > BUDGET:
            return _decide_counting(target, head, code, self._keys)
        while head is not None:
            for rank, key, wildcard in head.tries:
                if rank <= code:
                    break
                if key in target and wildcard.matches(target):
                    code = rank
                    break
            head = head.above
        return code


def _decide_counting(target: str, last: _Head, code: int, keys: frozenset[int]) -> int:
    """Decide like :meth:`Group._decide` if this may take too long: count the work, and return
    UNDECIDED if the budget does not suffice."""
    seen = _Seen(target, keys)
    look = CALL + SEARCHED * len(target)
    many = last.count * look > _LOOKED_UP * len(target)
    head: _Head | None = last
    while head is not None:
        seen.left -= CALL
        tries: _Tries | None = head.tries
        looked_up = many and len(head.tries) > _FEW
        if looked_up:
            tries = head.candidates(seen)
        else:
            seen.left -= len(head.tries) * look
        if tries is None or seen.left < 0:
            return UNDECIDED
        for rank, key, wildcard in tries:
            if rank <= code:
                break
            if looked_up or key in target:
                fits, seen.left = wildcard.counted(target, seen.left)
                if seen.left < 0:
                    return UNDECIDED
                if fits:
                    code = rank
                    break
        head = head.above
    return code
