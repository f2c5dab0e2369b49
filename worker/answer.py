"""One HTTP/1.x answer as it arrives: llhttp (by geventhttpclient) under caps of our own."""

from __future__ import annotations

from geventhttpclient._parser import HTTPParseError, HTTPResponseParser

MAX_HEAD_BYTES = 64 * 1024
"""Bytes of status line and headers, interim (1xx) answers included."""
MAX_HEADERS = 200


class Answer(HTTPResponseParser):
    """Collects head and body from the bytes fed to it. Interim 1xx answers are passed over.

    ``headers`` are as in ``schema.records.Fetched``: lower-case names, repeated ones joined by
    ", ", bytes read as Latin-1. ``body`` is as transferred, after chunking, before
    content-encoding. ``received`` counts every byte fed. ``status`` is 0 until ``head_done``.
    ``cookies`` are the Set-Cookie values one by one: joined they could not be told apart.
    ``bodiless``: it answers a HEAD, so no body follows whatever its headers say.
    """

    def __init__(self, *, bodiless: bool = False) -> None:
        super().__init__()
        self.headers: dict[str, str] = {}
        self.cookies: list[str] = []
        self.body = bytearray()
        self.received = 0
        self.status = 0
        self.head_done = False
        self.complete = False
        self.violation = ""
        """What was wrong with the answer, or empty."""
        self._bodiless = bodiless
        self._excess = False
        self._head_bytes = 0
        self._fields = 0
        self._name = ""
        self._value: str | None = None

    @property
    def reusable(self) -> bool:
        """True when the answer was read to its end and the connection may carry another."""
        return self.complete and not self._excess and bool(self.should_keep_alive())

    def take(self, data: bytes) -> None:
        """Feed what was received; ``b""`` says that the peer closed.

        Sets ``complete`` at the end of the message, or ``violation``. A peer that closed before
        the end leaves both unset.
        """
        self.received += len(data)
        try:
            self.feed(data)
        except HTTPParseError as error:
            # b"" raises where the answer was not over; and after its end, what is wrong with more
            # bytes is of no interest: the parser has failed, so the connection is not reusable.
            if data and not self.complete:
                self.violation = str(error.args[0]) if error.args else "not HTTP"
            return
        if not self.head_done and self.received > MAX_HEAD_BYTES:
            self.violation = f"headers beyond {MAX_HEAD_BYTES} bytes"
        elif self._head_bytes > MAX_HEAD_BYTES or self._fields > MAX_HEADERS:
            self.violation = f"headers beyond {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} fields"

    # -- called by the parser, in this order

    def _on_message_begin(self) -> None:
        if self.complete:
            self._excess = True

    def _on_status(self, reason: str) -> None:
        pass  # the reason phrase means nothing (RFC 9112, section 4)

    def _on_header_field(self, text: str) -> None:
        if self.head_done:
            return  # a trailer
        if self._value is not None:
            self._add_header()
        self._name += text

    def _on_header_value(self, text: str) -> None:
        if self.head_done:
            return
        self._value = text if self._value is None else self._value + text

    def _on_headers_complete(self) -> bool:
        if self._value is not None:
            self._add_header()
        if not self.head_done:
            code = self.get_code()
            if code >= 200 or code == 101:  # 101 is final: nobody asked for another protocol
                self.status, self.head_done = code, True
            else:
                self.headers.clear()
                self.cookies.clear()
        return self._bodiless

    def _on_body(self, data: bytearray) -> None:
        if not self.complete:
            self.body += data

    def _on_message_complete(self) -> None:
        if self.head_done:
            self.complete = True

    def _add_header(self) -> None:
        assert self._value is not None
        name, value = self._name.lower(), self._value
        self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value
        if name == "set-cookie":
            self.cookies.append(value)
        self._fields += 1
        self._head_bytes += len(name) + len(value) + 4
        self._name, self._value = "", None
