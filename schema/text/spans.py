"""Main text as it is stored: by where it stands in all text of its page, which is stored beside it.

A piece of main text is a piece of all text; what joins pieces, such as a blank line, is not. Some
three bytes a paragraph say what main text is. They are numbers of seven bits in a byte, the lowest
first; the highest bit is set if more bytes follow. The first is the length of all text in bytes of
UTF-8. Then each piece has two: four times its length plus its joint, and the number of bytes of all
text between the piece before and it. A joint is an index of :data:`JOINTS`; or their count, then
how many bytes it has and these. So parts that all text lacks are found, too.
"""

from __future__ import annotations

JOINTS = (b"\n\n", b"\n", b"\t")
"""The usual ones; ``worker/extract/main/spans.c`` has the same."""
_MOST_BITS = 63


def main_of(text: str, spans: bytes) -> str | None:
    """The main text of a page whose text is ``text``, of which ``spans`` tell; "" if nothing on it
    is main text. None if they tell nothing, or are of another text."""
    words = text.encode("utf-8", "replace")
    pieces = _pieces(words, spans)
    if pieces is None:
        return None
    main = b"".join(words[begin:end] + joint for begin, end, joint in pieces)
    return main.decode("utf-8", "replace")


def blocks_of(text: str, spans: bytes) -> list[tuple[str, bool]]:
    """All text in its order, in blocks: (text, whether it is main text). One block that is not
    where ``spans`` tell nothing."""
    words = text.encode("utf-8", "replace")
    found: list[tuple[bytes, bool]] = []
    at = 0
    for begin, end, _ in _pieces(words, spans) or ():
        found += [(words[at:begin], False), (words[begin:end], True)]
        at = end
    found.append((words[at:], False))
    read = [(block.decode("utf-8", "replace").strip(), is_main) for block, is_main in found]
    return [(block, is_main) for block, is_main in read if block]


def _pieces(words: bytes, spans: bytes) -> list[tuple[int, int, bytes]] | None:
    """Where each piece of main text begins and ends, and its joint; None as of :func:`main_of`."""
    numbers = _Numbers(spans)
    found: list[tuple[int, int, bytes]] = []
    at = 0
    try:
        if not spans or numbers.next() != len(words):
            return None
        while numbers.at < len(spans):
            piece, passed = numbers.next(), numbers.next()
            joint, begin = piece & 3, at + passed
            at = begin + (piece >> 2)
            found.append((begin, at, JOINTS[joint] if joint < len(JOINTS) else numbers.bytes()))
    except IndexError:
        return None
    return found if at <= len(words) else None


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
