"""One HTTP/1.x answer as it arrives: llhttp (by geventhttpclient), with limits of our own."""

from __future__ import annotations

import re

from geventhttpclient._parser import HTTPParseError, HTTPResponseParser

from greencrawl.worker.http.repair import HeadRepair, NotHttp

MAX_HEAD_BYTES = 64 * 1024
"""Status line and headers have at most this many bytes, interim (1xx) answers included."""
MAX_LINK_BYTES = 48 * 1024
"""At most this many of these bytes are in Link fields: further Link fields are received, but left
out."""
MAX_LONG_HEAD_BYTES = 256 * 1024
"""A head has at most this many bytes, left-out ones included: as many as Chromium accepts."""
MAX_HEADERS = 200
"""A head has at most this many fields; Link fields do not count."""
_LINK_FIELD_BYTES = 32
"""Each Link field counts as this many bytes more."""
MAX_FRAMING_BYTES = 128 * 1024
"""The framing has at most this many bytes: if it has more, and more than the body, the answer has
tiny chunks."""

_SHORT_HEAD = 4096
_HEAD_END = b"\r\n\r\n"
_PLAIN_HEAD = re.compile(
    r"HTTP/1\.1 ([2-5][0-9]{2}) [\t\x20-\x7e\x80-\xff]*+\r\n"
    r"(?>(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]++:[\t\x20-\x7e\x80-\xff]*+\r\n)*)\r\n"
)
"""This matches no line that RFC 9112 forbids, and no line that the parser reads differently."""


class Answer(HTTPResponseParser):
    """Collects head and body from the bytes fed to it. Interim 1xx answers are skipped.

    ``headers`` are as in ``greencrawl.schema.records.Fetched``: lower-case names, repeated ones
    joined by ", ", bytes read as Latin-1. ``body`` is as transferred, after chunking, before
    content-encoding. ``received`` counts every byte fed. ``status`` is 0 until ``head_done``.
    ``cookies`` are the Set-Cookie values one by one: joined they could not be separated.
    ``robots_tags`` has the fields X-Robots-Tag one by one, if there are several. ``bodiless``: it
    answers a HEAD, so no body follows whatever its headers say. ``links_cut``: some links in Link
    fields were left out, since these have more than :data:`MAX_LINK_BYTES`.

    A plain answer (``_take_plain``) is read without the parser. The parser calls back for every
    name and value and copies the body: that would cost a page 15 µs more. If the parser refuses the
    head, or the size of the first chunk, the answer is tidied, and read a second time
    (``_start_over``).
    """

    body: bytes | bytearray = b""
    cookies: tuple[str, ...] = ()
    robots_tags: tuple[str, ...] = ()
    received = 0
    status = 0
    head_done = False
    complete = False
    links_cut = False
    violation = ""
    """The error of the answer, or empty."""
    _missing = 0  # bytes of a plain answer's body that have not come yet
    _keeps = False
    _excess = False
    _head_bytes = 0
    _fields = 0
    _name = ""
    _value: str | None = None
    _raw: bytearray | None = None  # all that came, until it is certain that the parser can read it
    _link_bytes_left = MAX_LINK_BYTES
    _left_out = 0  # bytes of Link fields
    _repair: HeadRepair | None = None
    _again: _Again | None = None

    def __init__(self, *, bodiless: bool = False) -> None:
        super().__init__()
        self.headers: dict[str, str] = {}
        self._bodiless = bodiless

    @property
    def reusable(self) -> bool:
        """Return whether the answer was read to its end and the connection may carry another."""
        return (  # a parser that had to be replaced has failed, so the connection is not kept
            self.complete and not self._excess and (self._keeps or bool(self.should_keep_alive()))
        )

    @property
    def plain(self) -> bool:
        """Return whether the next bytes are taken as they are, without the parser."""
        return bool(self._missing)

    @property
    def missing(self) -> int | None:
        """Return how many bytes of the body are missing; 0 before the head is done, None if
        unknown."""
        if self._missing or not self.head_done:
            return self._missing
        length = self.headers.get("content-length", "")
        if "transfer-encoding" in self.headers or not length.isdecimal():
            return None
        return max(0, int(length) - len(self.body))

    def take(self, data: bytes | memoryview) -> None:
        """Feed received bytes, which are copied; the end of the connection is not reported here.

        Sets ``complete`` at the end of the message, or ``violation``. If the peer closed before the
        end, neither is set.
        """
        first = not self.received
        self.received += len(data)
        if self._missing:
            self._take_body(data)
        elif not (first and self._take_plain(data)):
            self._parse(bytes(data))

    def _take_plain(self, data: bytes | memoryview) -> bool:
        """Take the first bytes of a plain answer; False if the parser has to read the answer.

        An answer is plain if its whole head is there and short, has no field twice, and gives the
        length of the body by Content-Length alone.
        """
        begin = bytes(data[:_SHORT_HEAD])
        end = begin.find(_HEAD_END) + len(_HEAD_END)
        head = begin[:end].decode("latin-1")
        found = _PLAIN_HEAD.fullmatch(head)
        if found is None or self._bodiless:
            return False
        lines = head.split("\r\n")[1:-2]
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.lstrip(" \t")
        status, length = int(found[1]), headers.get("content-length", "")
        connection = headers.get("connection", "keep-alive").lower()
        if (
            not len(headers) == len(lines) <= MAX_HEADERS
            or not (length.isdecimal() and len(length) < 19)
            or "transfer-encoding" in headers
            or "proxy-connection" in headers
            or connection not in ("keep-alive", "close")
            or status in (204, 304)
        ):
            return False
        self.status, self.headers, self.head_done = status, headers, True
        if "set-cookie" in headers:
            self.cookies = (headers["set-cookie"],)
        self._keeps = connection == "keep-alive"
        self._missing = int(length)
        self._take_body(data[end:])
        return True

    def _take_body(self, data: bytes | memoryview) -> None:
        """Take the next bytes of a plain answer's body."""
        if len(data) > self._missing:
            # The parser ignores empty lines, too (RFC 9112, section 2.2).
            self._excess = bool(bytes(data[self._missing :]).strip(b"\r\n"))
            data = data[: self._missing]
        self._missing -= len(data)
        self.complete = not self._missing
        if not self.body:
            self.body = bytes(data)  # most often this is the whole body
        elif isinstance(self.body, bytearray):
            self.body += data
        else:
            self.body = bytearray(self.body) + data

    def _parse(self, data: bytes) -> None:
        if self.received == len(data):
            self._raw = bytearray()
        if self._raw is not None:
            self._raw += data
        try:
            self._feed(data)
        except HTTPParseError as error:
            # b"" raises if the answer was not over. After its end, errors in further bytes do not
            # matter: the parser has failed, so the connection is not reusable.
            if data and not self.complete:
                self.violation = _told(error)
                if self._raw is not None:
                    self._start_over()
            return
        except NotHttp as error:
            self.violation = str(error)
            return
        if self.body or self.complete or self.received > MAX_LONG_HEAD_BYTES:
            self._raw = None
        self._judge()

    def _feed(self, data: bytes) -> None:
        if self._again is None or self._repair is None:
            self.feed(data)
            return
        repaired = self._repair.push(data) if data else b""
        if repaired or not data:
            self._again.feed(repaired)

    def _start_over(self) -> None:
        """Tidy the answer, and read it again from its start."""
        raw, self._raw = bytes(self._raw or b""), None
        if self.body:  # a server that violates the standard does so from its first chunk on
            return
        self._again, self._repair = _Again(self), HeadRepair(bodiless=self._bodiless)
        self.headers.clear()
        self.body, self.cookies, self.robots_tags = b"", (), ()
        self.status, self.head_done = 0, False
        self._head_bytes = self._fields = self._left_out = 0
        self._link_bytes_left, self.links_cut = MAX_LINK_BYTES, False
        self._name, self._value, self.violation = "", None, ""
        try:
            self._feed(raw)
        except (HTTPParseError, NotHttp) as error:
            if not self.complete:
                self.violation = _told(error)
            return
        self._judge()

    def _judge(self) -> None:
        """Set ``violation`` if there is too much around the body."""
        counted = self.received - self._left_out
        if counted > MAX_FRAMING_BYTES + 2 * len(self.body) and self.head_done:
            self.violation = f"{counted - len(self.body)} bytes around a body of " + (
                f"{len(self.body)}: its chunks are almost empty"
            )
        elif not self.head_done and counted > MAX_HEAD_BYTES:
            self.violation = f"headers beyond {MAX_HEAD_BYTES} bytes"
        elif not self.head_done and self.received > MAX_LONG_HEAD_BYTES:
            self.violation = f"headers beyond {MAX_LONG_HEAD_BYTES} bytes, with Link"
        elif self._head_bytes > MAX_HEAD_BYTES or self._fields > MAX_HEADERS:
            self.violation = f"headers beyond {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} fields"

    # -- called by the parser, in this order

    def _on_message_begin(self) -> None:
        if self.complete:
            self._excess = True

    def _on_status(self, reason: str) -> None:
        pass  # the reason phrase has no meaning (RFC 9112, section 4)

    def _on_header_field(self, text: str) -> None:
        if self.head_done:
            return  # a trailer
        if self._value is not None:
            self._add_header()
        self._name += text

    def _on_header_value(self, text: str) -> None:
        if self.head_done:
            return
        before = self._value or ""
        if len(before) + len(text) > self._link_bytes_left and self._name.lower() == "link":
            self._cut_links(before, text)
        else:
            self._value = before + text

    def _cut_links(self, before: str, text: str) -> None:
        """Keep the whole links of a Link field that there is room for.

        The field has ``before`` and ``text``; nothing of later fields is kept.
        """
        value = before
        if not self.links_cut:
            value = (before + text)[: max(self._link_bytes_left, 0)]
            value = value[: max(value.rfind("<"), 0)]
        self.links_cut, self._link_bytes_left = True, 0
        self._left_out += len(before) + len(text) - len(value)
        self._value = value

    def _on_headers_complete(self) -> bool:
        if self._value is not None:
            self._add_header()
        if not self.head_done:
            code = (self._again or self).get_code()
            if code >= 200 or code == 101:  # 101 is final: nobody asked for another protocol
                self.status, self.head_done = code, True
                self.body = bytearray()
            else:
                self.headers.clear()
                self.cookies = self.robots_tags = ()
                self._link_bytes_left, self.links_cut = MAX_LINK_BYTES, False
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
        self._name, self._value = "", None
        if name != "link":
            self._fields += 1
        elif self.links_cut and not value:
            self._left_out += len(name) + 4
            return
        else:
            self._link_bytes_left -= len(value) + _LINK_FIELD_BYTES
        if name == "x-robots-tag" and name in self.headers:
            self.robots_tags = (*(self.robots_tags or (self.headers[name],)), value)
        if name not in self.headers:
            self.headers[name] = value
        elif name != "location" or value != self.headers[name]:  # an equal one has the same target
            self.headers[name] = f"{self.headers[name]}, {value}"
        if name == "set-cookie":
            self.cookies += (value,)
        self._head_bytes += len(name) + len(value) + 4


def _told(error: Exception) -> str:
    return str(error.args[0]) if error.args else "not HTTP"


class _Again(HTTPResponseParser):
    """A parser that reads the same answer again: one that has failed reads nothing any more."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._on_message_begin = answer._on_message_begin
        self._on_status = answer._on_status
        self._on_header_field = answer._on_header_field
        self._on_header_value = answer._on_header_value
        self._on_headers_complete = answer._on_headers_complete
        self._on_body = answer._on_body
        self._on_message_complete = answer._on_message_complete
