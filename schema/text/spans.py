"""Main text as it is stored: by where it stands in all text of its page, which is stored beside it.

A piece of main text is a piece of all text; what joins pieces, such as a blank line, is not. Some
three bytes a paragraph say what main text is. They are numbers, of seven bits in a byte, the lowest
first, and the highest bit set where more bytes follow: how many bytes all text has, as UTF-8; then
for each piece four times its bytes plus its joint, and how many bytes of all text lie between the
piece before and it. A joint is an index of :data:`JOINTS`; or their count, then how many bytes it
has and these. So what all text does not have is told, too.
"""

from __future__ import annotations

JOINTS = (b"\n\n", b"\n", b"\t")
"""The usual ones; ``worker/extract/main/spans.c`` has the same."""
_MOST_BITS = 63


def main_of(text: str, spans: bytes) -> str | None:
    """The main text of a page whose text is ``text``, of which ``spans`` tell; "" if nothing on it
    is main text. None if they tell nothing, or are of another text."""
    words = text.encode("utf-8", "replace")
    numbers = _Numbers(spans)
    found: list[bytes] = []
    at = 0
    try:
        if not spans or numbers.next() != len(words):
            return None
        while numbers.at < len(spans):
            piece, passed = numbers.next(), numbers.next()
            length, joint = piece >> 2, piece & 3
            at += passed
            found.append(words[at : at + length])
            found.append(JOINTS[joint] if joint < len(JOINTS) else numbers.bytes())
            at += length
    except IndexError:
        return None
    return b"".join(found).decode("utf-8", "replace") if at <= len(words) else None


def blocks_of(text: str, spans: bytes) -> list[tuple[str, bool]]:
    """All text in its order, in blocks: (text, whether it is main text). One block that is not
    where ``spans`` tell nothing."""
    words = text.encode("utf-8", "replace")
    numbers = _Numbers(spans)
    found: list[tuple[str, bool]] = []
    at = 0

    def add(until: int, is_main: bool) -> None:
        nonlocal at
        if block := words[at:until].decode("utf-8", "replace").strip():
            found.append((block, is_main))
        at = until

    try:
        if not spans or numbers.next() != len(words):
            return [(text, False)]
        while numbers.at < len(spans):
            piece, passed = numbers.next(), numbers.next()
            if piece & 3 == len(JOINTS):
                numbers.bytes()
            add(at + passed, False)
            add(at + (piece >> 2), True)
    except IndexError:
        return [(text, False)]
    add(len(words), False)
    return found


class _Numbers:
    """Reads numbers one after the other. Raises IndexError behind the last, and at one too long."""

    def __init__(self, data: bytes) -> None:
        self.at = 0
        self._data = data

    def next(self) -> int:
        """A number."""
        value = shift = 0
        while (byte := self._data[self.at]) > 127:
            if shift > _MOST_BITS:
                raise IndexError
            value |= (byte & 127) << shift
            shift += 7
            self.at += 1
        self.at += 1
        return value | byte << shift

    def bytes(self) -> bytes:
        """As many bytes as a number says."""
        length = self.next()
        end = self.at + length
        if end > len(self._data):
            raise IndexError
        found, self.at = self._data[self.at : end], end
        return found
