"""The rules of one product token, compiled: which of them decides about a URL.

Rules without ``*`` are in a sorted table: one binary search finds the longest that a URL begins
with, however many there are. Rules with ``*`` are kept by what stands before the first one, and
only those whose beginning fits are looked at: their pieces are searched for from the left, which is
enough, since if any placement of the pieces fits, so does that. Nothing is tried twice.

Two bounds keep the work for a URL under :data:`BUDGET`, about 0.1 ms, whatever a file says:

* Of a token's rules with ``*`` the first :data:`MAX_WILDCARDS` are compiled, as long as they have
  no more than :data:`MAX_STARS` ``*`` together. Of the others a Disallow is read up to its first
  ``*``, and an Allow is not read at all.
* Work is counted before it is done, by its worst case. Where the rest of the budget does not
  suffice to tell, the URL is forbidden.

Both forbid more than the file does, never less, so that RFC 9309 is kept: it says what may not be
fetched. It wants 500 KiB of a file to be read, and they are.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable
from typing import Final, NamedTuple

from greencrawl.worker.robots.paths import pattern_of, target_of
from greencrawl.worker.robots.prefixes import STEP, Prefixes, Steps

MAX_WILDCARDS = 2000
MAX_STARS = 10_000
BUDGET = 80_000
"""Units of work for a URL of up to 1,000 octets, for longer ones in proportion. One takes about a
nanosecond."""
_LONG = 2000
_FEW = 16
"""So many wildcards are tried one by one; among more those are looked up that may match."""
_MANY = 500
"""More than so many are not even tried: the budget would not suffice."""
_CALL, _SEARCHED, _COMPARED = 100, 1.5, 2.5
"""Units of a call of ``str.find``, and for each octet that it passes over or compares again."""
_PLACED = 200
"""Units of finding a piece at a place, and of looking whether it is there as a whole."""
_LOOKED_UP = 25
"""Units, for each octet of a URL, of looking wildcards up."""
_SORTED = 50
"""Units for each wildcard that was found so."""
_PART = 16
"""Octets at most that are searched for of a piece."""
_CUT = 1 << 31
"""Marks, in a code, a rule that was read up to its first ``*``."""
UNDECIDED: Final = 1 << 62
"""The code of a URL about which the budget does not suffice to tell."""


class Line(NamedTuple):
    """One Allow or Disallow: its path as it stands, and where its line begins in the text."""

    value: bytes
    allow: bool
    offset: int


class _Wildcard:
    """A pattern with ``*`` that is not its last letter: ``head``, then ``pieces`` in this order.

    ``last`` is what a URL has to end with, None if its end is free. A piece is kept with a part of
    it in which no letter comes twice: to search for that takes the same time in every text, nearly.
    ``key`` is the longest of these.
    """

    __slots__ = ("_least", "code", "head", "key", "last", "pieces")

    def __init__(self, code: int, head: str, pieces: list[str], last: str | None) -> None:
        self.code = code
        self.head = head
        self.pieces = tuple([(piece, *_searched(piece)) for piece in pieces])
        self.last = last
        self._least = len(head) + sum(map(len, pieces)) + len(last or "")
        keys = [part for _, part, _ in self.pieces]
        self.key = max([*keys, _searched(last)[0]] if last else keys, key=len)

    def matches(self, target: str) -> bool:
        """Whether it does, where ``key`` is somewhere in ``target``."""
        if not self._may_match(target):
            return False
        at = len(self.head)
        for piece, _, _ in self.pieces:
            at = target.find(piece, at)
            if at < 0:
                return False
            at += len(piece)
        return self.last is None or at <= len(target) - len(self.last)

    def worst(self) -> tuple[float, float]:
        """Units that this may take, and more for each octet of the URL."""
        again = max((_again(piece) for piece, _, _ in self.pieces), default=0)
        octet = _SEARCHED * 2 + _COMPARED * again
        return _CALL * (len(self.pieces) + 3), octet

    def counted(self, target: str, left: float) -> tuple[bool, float]:
        """The same, and what is left of the budget: below 0 it was not enough to tell."""
        left -= _CALL
        if not self._may_match(target):
            return False, left
        at, length = len(self.head), len(target)
        for piece, part, offset in self.pieces:
            while True:
                found = target.find(part, at + offset)
                left -= _PLACED + _SEARCHED * ((found if found >= 0 else length) - at)
                if found < 0 or left < 0:
                    return False, left
                at = found - offset
                if part is piece or target.startswith(piece, at):
                    break
                at += 1
            at += len(piece)
        return self.last is None or at <= length - len(self.last), left

    def _may_match(self, target: str) -> bool:
        if len(target) < self._least or not target.startswith(self.head):
            return False
        return self.last is None or target.endswith(self.last)


def _searched(piece: str) -> tuple[str, int]:
    """The part of a piece that is searched for, and where in it that begins."""
    if len(piece) <= _PART and len(set(piece)) == len(piece):
        return piece, 0
    best = begin = 0
    size = 0
    seen: dict[str, int] = {}
    for at, letter in enumerate(piece[: 2 * _PART]):
        begin = max(begin, seen.get(letter, -1) + 1, at + 1 - _PART)
        seen[letter] = at
        if at + 1 - begin > size:
            best, size = begin, at + 1 - begin
    return piece[best : best + size], best


def _again(piece: str) -> int:
    """How often an octet of a text may be compared in a search for ``piece``.

    Two places where a piece begins in part overlap only if its first letter comes again in it.
    """
    return piece.count(piece[0]) if len(piece) > 1 else 0


_Tries = tuple[tuple[int, str, _Wildcard], ...]


class _Head:
    """The wildcards that begin alike, most specific first; ``above`` those of a shorter beginning.

    ``worst`` and ``worst_octet`` are units that it may take to try them all, and more for each
    octet of the URL, those above included.
    """

    __slots__ = ("_fours", "_keys", "_short", "above", "tries", "worst", "worst_octet")

    def __init__(self, wildcards: list[_Wildcard], above: _Head | None) -> None:
        wildcards.sort(key=lambda w: w.code, reverse=True)
        self.above = above
        self.tries: _Tries = tuple([(w.code, w.key, w) for w in wildcards])
        worst = [w.worst() for w in wildcards]
        self.worst: float = sum([fixed for fixed, _ in worst])
        self.worst_octet: float = sum([octet for _, octet in worst])
        if above is not None:
            self.worst += above.worst
            self.worst_octet += above.worst_octet
        self._fours: dict[int, list[int]] = {}
        self._keys: frozenset[int] = frozenset()
        self._short: list[int] = []
        if len(wildcards) > _FEW:
            self._look_up()

    def _look_up(self) -> None:
        """Note each by the last four octets of its longest piece, where one has as many."""
        for number, (_, _, wildcard) in enumerate(self.tries):
            longest = max(
                [wildcard.last or "", *[piece for piece, _, _ in wildcard.pieces]], key=len
            )
            if len(longest) >= 4:
                part = int.from_bytes(longest[-4:].encode(), sys.byteorder)
                self._fours.setdefault(part, []).append(number)
            else:
                self._short.append(number)
        self._keys = frozenset(self._fours)

    def candidates(self, octets: bytes) -> _Tries | None:
        """Those that may match, most specific first. None: too many to try."""
        found = set(self._short)
        for first in range(min(4, len(octets) - 3)):
            parts = struct.unpack_from(f"={(len(octets) - first) // 4}I", octets, first)
            for part in self._keys.intersection(parts):
                found.update(self._fours[part])
                if len(found) > _MANY:
                    return None
        if len(found) > _MANY:
            return None
        return tuple([self.tries[number] for number in sorted(found)])


class Group:
    """What a file says to one product token: its rules merged, arranged so that to ask is cheap.

    ``delay``: seconds between requests that are asked for, the largest of several, or None.
    A rule is known by its code: its length and whether it allows, by which rules are compared, and
    where its line begins in ``text``.
    """

    __slots__ = ("_heads", "_nodes", "_plain", "_text", "delay")

    def __init__(self, text: bytes, delay: float | None) -> None:
        self.delay = delay
        self._text = text
        self._plain = Prefixes()
        self._heads = Prefixes()
        self._nodes: list[_Head] = []

    @classmethod
    def steps(cls, text: bytes, lines: Iterable[Line], delay: float | None) -> Steps[Group]:
        """Compile a token's rules, whose lines stand in ``text``."""
        group = cls(text, delay)
        begins: dict[str, int] = {}
        exact: dict[str, int] = {}
        wild: dict[str, int] = {}
        stars = 0
        for number, (value, allow, offset) in enumerate(lines):
            if not number % STEP:
                yield
            pattern = pattern_of(value)
            if pattern is None:
                continue
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
        by_head: dict[str, list[_Wildcard]] = {}
        for number, (pattern, code) in enumerate(wild.items()):
            if not number % STEP:
                yield
            anchored = pattern[-1] == "$"
            head, *pieces = (pattern[:-1] if anchored else pattern).split("*")
            last = pieces.pop() if anchored else None
            if not anchored and not pieces[-1]:
                pieces.pop()
            # Every path begins with "/": so there are not two long lists to look into.
            by_head.setdefault(head or "/", []).append(_Wildcard(code, head, pieces, last))
        self._heads = heads = yield from Prefixes.steps(dict.fromkeys(by_head, 1), {})
        for text, above in zip(heads.texts, heads.parents, strict=True):
            yield
            self._nodes.append(_Head(by_head[text], self._nodes[above] if above >= 0 else None))

    def forbids(self, url: str) -> str | None:
        """The line of the file that forbids ``url``; None if it may be fetched."""
        code = self._decide(url)
        return None if not code or code >> 32 & 1 else self._line(code)

    def line_for(self, url: str) -> str | None:
        """The line of the file that decides about ``url``, or None if none speaks of it."""
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
        """The code of the most specific rule that matches: most octets, Allow if two are equal.

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
            return _decide_counting(target, head, code)
        while head is not None:
            for rank, key, wildcard in head.tries:
                if rank <= code:
                    break
                if key in target and wildcard.matches(target):
                    code = rank
                    break
            head = head.above
        return code


def _decide_counting(target: str, head: _Head | None, code: int) -> int:
    """The same where it may take too long: work is counted, and ends where the budget does."""
    length, octets = len(target), b""
    left: float = BUDGET * max(1.0, length / _LONG)
    look = _CALL + _SEARCHED * length
    while head is not None:
        left -= _CALL
        tries, looked_up = head.tries, False
        looks = len(tries) * look
        if looks > left / 2 and len(tries) > _FEW:
            octets = octets or target.encode()
            found = head.candidates(octets)
            if found is None:
                return UNDECIDED
            tries, looked_up = found, True
            looks = _LOOKED_UP * length + _SORTED * len(tries)
        left -= looks
        if left < 0:
            return UNDECIDED
        for rank, key, wildcard in tries:
            if rank <= code:
                break
            if looked_up or key in target:
                fits, left = wildcard.counted(target, left)
                if left < 0:
                    return UNDECIDED
                if fits:
                    code = rank
                    break
        head = head.above
    return code
