"""Main text as it is stored: by its places in the page's whole text, which is stored beside it.

A piece of main text is also a piece of the whole text; the joint between two pieces, such as a
blank line, is not. Some three bytes a paragraph say what main text is. These bytes are numbers with
seven bits in each byte, the lowest first; the highest bit is set if more bytes follow. The first
number is the length of the whole text in bytes of UTF-8. Then two numbers follow for each piece.
The first is four times the length of the piece plus its joint. The second is the number of bytes
between the piece and the one before. A joint is an index of :data:`JOINTS`. If the index equals the
length of this list, the length and the bytes of the joint follow. So main text may also have parts
that the whole text lacks.
"""

from __future__ import annotations

JOINTS = (b"\n\n", b"\n", b"\t")
"""The usual joints; ``worker/extract/main/spans.c`` has the same."""
_MOST_BITS = 63


def main_of(text: str, spans: bytes) -> str | None:
    """Return the main text of a page with this whole ``text``; "" if there is none.

    Returns None if ``spans`` is empty, or belongs to another text.
    """
    words = text.encode("utf-8", "replace")
    pieces = _pieces(words, spans)
    if pieces is None:
        return None
    main = b"".join(words[begin:end] + joint for begin, end, joint in pieces)
    return main.decode("utf-8", "replace")


def blocks_of(text: str, spans: bytes) -> list[tuple[str, bool]]:
    """Return the whole text in its order, in blocks: (text, whether it is main text).

    If ``spans`` says nothing, the whole text is one block that is not main text.
    """
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
    """Return where each piece of main text begins and ends, and its joint; None as in main_of()."""
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
    """Reads numbers one after the other.

    Raises IndexError at the end, and for a number that is too long.
    """

    def __init__(self, data: bytes) -> None:
        self.at = 0
        self._data = data

    def next(self) -> int:
        """Return the next number."""
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
        """Read a number, and return as many bytes as it says."""
        length = self.next()
        end = self.at + length
        if end > len(self._data):
            raise IndexError
        found, self.at = self._data[self.at : end], end
        return found
