"""Answers that violate the standard in ways that browsers accept, put into the standard's form.

Nothing that decides where a body ends is corrected. Lengths that differ, that are signed or folded,
or that stand beside a Transfer-Encoding are passed on as they came, and the parser refuses them.
"""

from __future__ import annotations

import re

_EMPTY_LINE = re.compile(rb"\n\r?\n")
_STATUS_LINE = re.compile(
    rb"[ \t]*(?:HTTP(?:/([0-9]{1,3})(?:\.([0-9]{1,3}))?)?|ICY)[ \t]+([0-9]{3})(?![0-9])", re.I
)
_BEGINS = (b"HTTP", b"ICY ")
_LONGEST_VERSION = 64
"""Bytes within which a status must stand; otherwise it is no status line."""
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROLS = bytes.maketrans(bytes([*range(1, 32), 127]), b" " * 32)
_FRAMING = (b"content-length", b"transfer-encoding")
_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]*)?\r?\n")
_LONGEST_SIZE_LINE = 4096

_Field = tuple[bytes, bytes]


class NotHttp(Exception):
    """The data cannot be read as an answer, or must not be."""


class HeadRepair:
    """Puts one answer, and the interim ones before it, into the standard's form.

    Anything without a rule stays unchanged, and the parser decides. ``bodiless``: no body follows
    whatever the head says.
    """

    def __init__(self, *, bodiless: bool) -> None:
        self._bodiless = bodiless
        self._pending = bytearray()
        self._searched = 0
        self._begun = False
        self._step = self._head
        self._left = 0  # bytes left in a chunk

    def push(self, data: bytes) -> bytes:
        """Return what ``data`` adds to the answer. Raises NotHttp."""
        self._pending += data
        out: list[bytes] = []
        while (piece := self._step()) is not None:
            out.append(piece)
        return b"".join(out)

    # -- steps: each returns its output, or None if it needs more data

    def _head(self) -> bytes | None:
        if not self._begun and not self._begins():
            return None
        found = _EMPTY_LINE.search(self._pending, self._searched)
        if found is None:
            self._searched = max(0, len(self._pending) - 2)
            return None
        version, status, fields = _read(bytes(self._pending[: found.start()]))
        del self._pending[: found.end()]
        self._searched, self._begun = 0, False
        if status >= 200 or status == 101:
            empty = self._bodiless or status in (101, 204, 304)
            self._step = self._size if _is_chunked(fields) and not empty else self._rest
        lines = [b"%s: %s\r\n" % field for field in fields]
        return b"".join([b"HTTP/%s %d \r\n" % (version, status), *lines, b"\r\n"])

    def _begins(self) -> bool:
        """Return whether the status line is there. Raises NotHttp once it cannot be one."""
        skipped = len(self._pending) - len(self._pending.lstrip(b" \t\r\n"))
        del self._pending[:skipped]
        start = bytes(self._pending[:_LONGEST_VERSION])
        known = start[:4].upper()
        if not any(begin.startswith(known) or known.startswith(begin) for begin in _BEGINS):
            raise NotHttp("begins with no HTTP/")
        found = _STATUS_LINE.match(start)
        self._begun = found is not None and len(start) > found.end()
        if not self._begun and (b"\n" in start or len(start) == _LONGEST_VERSION):
            raise NotHttp("no status")
        return self._begun

    def _size(self) -> bytes | None:
        end = self._pending.find(b"\n") + 1
        if not end and len(self._pending) < _LONGEST_SIZE_LINE:
            return None
        found = _CHUNK_SIZE.fullmatch(self._pending, 0, end)
        if found is None:
            return self._give_up()
        self._left = int(found[1], 16)
        del self._pending[:end]
        self._step = self._data if self._left else self._trailer
        return b"%x\r\n" % self._left

    def _data(self) -> bytes | None:
        if not self._pending:
            return None
        data = bytes(self._pending[: self._left])
        del self._pending[: self._left]
        self._left -= len(data)
        if not self._left:
            self._step = self._data_end
        return data

    def _data_end(self) -> bytes | None:
        if not self._pending or self._pending == b"\r":
            return None
        length = 1 if self._pending.startswith(b"\n") else 2
        if not self._pending.startswith((b"\n", b"\r\n")):
            return self._give_up()
        del self._pending[:length]
        self._step = self._size
        return b"\r\n"

    def _trailer(self) -> bytes | None:
        """Skip the trailer's fields, which have no meaning; a long one is skipped in pieces."""
        end = self._pending.find(b"\n") + 1
        line = bytes(self._pending[:end])
        del self._pending[:end]
        if not end:
            return None
        if line in (b"\n", b"\r\n"):
            self._step = self._rest
            return b"\r\n"
        return b""

    def _rest(self) -> bytes | None:
        data = bytes(self._pending)
        self._pending.clear()
        return data or None

    def _give_up(self) -> bytes | None:
        self._step = self._rest
        return self._rest()


def _read(head: bytes) -> tuple[bytes, int, list[_Field]]:
    """Return version, status and fields of a head whose first line is a status line.

    Raises NotHttp.
    """
    if b"\x00" in head:
        raise NotHttp("a head with a zero byte")
    first, *lines = head.split(b"\n")
    found = _STATUS_LINE.match(first)
    assert found is not None, "it was there when the line began"
    version = (int(found[1] or 1), int(found[2] or (found[1] is not None and found[1] != b"1")))
    fields: list[_Field] = []
    for line in lines:
        text = line.rstrip(b"\r").translate(_CONTROLS)
        name, colon, value = text.partition(b":")
        if text.startswith(b" "):
            if fields:
                fields[-1] = _folded(fields[-1], text.strip())
        elif colon and _NAME.fullmatch(name := name.rstrip()):
            fields.append((name, value.strip()))
    return b"1.1" if version >= (1, 1) else b"1.0", int(found[3]), _one_length(fields)


def _folded(field: _Field, more: bytes) -> _Field:
    """Return a field with the continuation that another line adds. Raises NotHttp."""
    name, value = field
    if name.lower() in _FRAMING:
        raise NotHttp(f"a folded {name.decode('ascii')}")
    return name, b" ".join(filter(None, (value, more)))


def _one_length(fields: list[_Field]) -> list[_Field]:
    """Return the fields with one Content-Length, if all of them say the same."""
    lengths = [value for name, value in fields if name.lower() == b"content-length"]
    told = {one.strip() for one in b",".join(lengths).split(b",")}
    if not lengths or len(told) > 1:
        return fields
    others = [field for field in fields if field[0].lower() != b"content-length"]
    return [*others, (b"Content-Length", told.pop())]


def _is_chunked(fields: list[_Field]) -> bool:
    codings = b",".join(value for name, value in fields if name.lower() == b"transfer-encoding")
    return codings.rpartition(b",")[2].strip().lower() == b"chunked"
