"""One rule with ``*``: whether a URL fits it, and how much work the check may take."""

from __future__ import annotations

CALL, SEARCHED, _COMPARED = 100, 1.5, 2.5
"""Units for a call of ``str.find``, for each octet that it skips, and for each that it compares
again."""
_PLACED = 200
"""Units of finding a piece at a place, and of checking that the whole piece is there."""
_PART = 16
"""At most this many octets of a piece are searched for."""


class Wildcard:
    """A pattern with a ``*`` that is not the last letter: ``head``, then ``pieces`` in this order.

    ``last`` is what a URL has to end with, None if its end is free. A piece is kept with a part of
    it in which no letter comes twice: searching for such a part takes nearly the same time in every
    text. ``key`` is the longest of these parts.
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
        """Return whether the pattern matches, if ``key`` is somewhere in ``target``."""
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
        """Return the units that a check may take, and the further units for each octet of the
        URL."""
        again = max((_again(piece) for piece, _, _ in self.pieces), default=0)
        octet = SEARCHED * 2 + _COMPARED * again
        return CALL * (len(self.pieces) + 3), octet

    def counted(self, target: str, left: float) -> tuple[bool, float]:
        """Return whether the pattern matches, and the rest of the budget: below 0 it was not enough
        to decide."""
        left -= CALL
        if not self._may_match(target):
            return False, left
        at, length = len(self.head), len(target)
        for piece, part, offset in self.pieces:
            while True:
                found = target.find(part, at + offset)
                left -= _PLACED + SEARCHED * ((found if found >= 0 else length) - at)
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
    """Return the part of a piece that is searched for, and where in the piece it begins."""
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
    """Return how often an octet of a text may be compared in a search for ``piece``.

    Two places where a piece begins in part overlap only if its first letter comes again in it.
    """
    return piece.count(piece[0]) if len(piece) > 1 else 0
