"""One HTTP/1.x answer as it arrives: llhttp (by geventhttpclient) under caps of our own."""

from __future__ import annotations

from geventhttpclient._parser import HTTPParseError, HTTPResponseParser

MAX_HEAD_BYTES = 64 * 1024
"""Bytes of status line and headers, interim (1xx) answers included."""
MAX_HEADERS = 200

_HEAD_END = b"\r\n\r\n"


class Answer(HTTPResponseParser):
    """Collects head and body from the bytes fed to it. Interim 1xx answers are passed over.

    ``headers`` are as in ``schema.records.Fetched``: lower-case names, repeated ones joined by
    ", ", bytes read as Latin-1. ``body`` is as transferred, after chunking, before
    content-encoding. ``received`` counts every byte fed. ``status`` is 0 until ``head_done``.
    ``cookies`` are the Set-Cookie values one by one: joined they could not be told apart.
    ``bodiless``: it answers a HEAD, so no body follows whatever its headers say.

    The parser reads every head, and every body whose end it must find. One whose length the head
    told is counted here: the parser would copy it.
    """

    body: bytes | bytearray = b""
    cookies: tuple[str, ...] = ()
    received = 0
    status = 0
    head_done = False
    complete = False
    violation = ""
    """What was wrong with the answer, or empty."""
    _missing = 0  # bytes of a body of known length that are still to come
    _excess = False
    _head_bytes = 0
    _head_fields = 0

    def __init__(self, *, bodiless: bool = False) -> None:
        super().__init__()
        self.headers: dict[str, str] = {}
        self._bodiless = bodiless
        self._fields: list[str] = []  # of the head under way: name, value, name, value, …

    @property
    def reusable(self) -> bool:
        """True when the answer was read to its end and the connection may carry another."""
        return self.complete and not self._excess and bool(self.should_keep_alive())

    def take(self, data: bytes) -> None:
        """Feed what was received; ``b""`` says that the peer closed.

        Sets ``complete`` at the end of the message, or ``violation``. A peer that closed before
        the end leaves both unset.
        """
        end = -1 if self.received else data.find(_HEAD_END)
        self.received += len(data)
        if end >= 0:
            end += len(_HEAD_END)
            self._parse_whole_head(data[:end])
            data = data[end:]
        if self._missing:
            self._take_body(data)
        elif data or end < 0:
            self._parse(data)
        if not self.head_done and self.received > MAX_HEAD_BYTES:
            self.violation = f"headers beyond {MAX_HEAD_BYTES} bytes"
        elif self._head_bytes > MAX_HEAD_BYTES or self._head_fields > MAX_HEADERS:
            self.violation = f"headers beyond {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} fields"

    def _parse_whole_head(self, head: bytes) -> None:
        """What most answers begin with. Names and values go straight from the parser to a list, in
        turn as they must come here, which saves a third of what a head costs.
        """
        fields: list[str] = []
        self._on_header_field = fields.append  # type: ignore[method-assign,assignment]
        self._on_header_value = fields.append  # type: ignore[method-assign,assignment]
        self._parse(head)
        del self._on_header_field, self._on_header_value
        if not self.violation:
            self._end_head(fields, len(head))
        if self.head_done and not self.complete:
            # 0 for chunks and for a body that ends with the connection: those need the parser.
            self._missing = max(0, self.get_remaining_content_length())

    def _parse(self, data: bytes) -> None:
        try:
            self.feed(data)
        except HTTPParseError as error:
            # b"" raises where the answer was not over; and after its end, what is wrong with more
            # bytes is of no interest: the parser has failed, so the connection is not reusable.
            if data and not self.complete:
                self.violation = str(error.args[0]) if error.args else "not HTTP"

    def _take_body(self, data: bytes) -> None:
        """The next bytes of a body of known length."""
        if len(data) > self._missing:
            # Empty lines are as good as nothing, for the parser too (RFC 9112, section 2.2).
            self._excess = bool(data[self._missing :].strip(b"\r\n"))
            data = data[: self._missing]
        self._missing -= len(data)
        self.complete = not self._missing
        self._add_body(data)

    def _add_body(self, data: bytes | bytearray) -> None:
        if not self.body:
            self.body = data  # most often all there is: it need not be copied
            return
        if isinstance(self.body, bytes):
            self.body = bytearray(self.body)
        self.body += data

    # -- called by the parser, in this order

    def _on_message_begin(self) -> None:
        if self.complete:
            self._excess = True

    def _on_status(self, reason: str) -> None:
        pass  # the reason phrase means nothing (RFC 9112, section 4)

    def _on_header_field(self, text: str) -> None:
        if self.head_done:
            return  # a trailer
        if len(self._fields) % 2:
            self._fields[-1] += text
        else:
            self._fields.append(text)

    def _on_header_value(self, text: str) -> None:
        if self.head_done:
            return
        if len(self._fields) % 2:
            self._fields.append(text)
        else:
            self._fields[-1] += text

    def _on_headers_complete(self) -> bool:
        if not self.head_done:
            code = self.get_code()
            if code >= 200 or code == 101:  # 101 is final: nobody asked for another protocol
                self.status, self.head_done = code, True
            if self._fields:
                fields, self._fields = self._fields, []
                self._end_head(fields, sum(map(len, fields)) + 2 * len(fields))
        return self._bodiless

    def _on_body(self, data: bytearray) -> None:
        if not self.complete:
            self._add_body(data)

    def _on_message_complete(self) -> None:
        if self.head_done:
            self.complete = True

    def _end_head(self, fields: list[str], size: int) -> None:
        """A head of ``size`` bytes has ended, be it an interim one; its names and values."""
        self._head_bytes += size
        self._head_fields += len(fields) // 2
        if not self.head_done:
            return
        names, values = list(map(str.lower, fields[::2])), fields[1::2]
        self.headers = dict(zip(names, values, strict=True))
        if len(self.headers) < len(names):
            self.headers = {}
            for name, value in zip(names, values, strict=True):
                before = self.headers.get(name)
                self.headers[name] = value if before is None else f"{before}, {value}"
        if "set-cookie" in self.headers:
            both = zip(names, values, strict=True)
            self.cookies = tuple(value for name, value in both if name == "set-cookie")
