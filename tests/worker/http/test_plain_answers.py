"""Plain answers are read without the parser; the parser would read them alike."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from greencrawl.worker.http.response import Answer
from tests.support.effort import examples


class Parsed(Answer):
    """An answer that is never plain."""

    def _take_plain(self, data: bytes) -> bool:
        return False


def told(answer: Answer, pieces: list[bytes]) -> tuple[object, ...]:
    for piece in [*pieces, b""]:
        if not (answer.complete or answer.violation):
            answer.take(piece)
    head = (answer.status, answer.headers, answer.cookies) if answer.head_done else None
    body = bytes(answer.body)
    return head, body, answer.received, answer.complete, answer.violation, answer.reusable


STATUSES = st.sampled_from([*[200] * 9, 404, 500, 204, 304, 101, 103, 199, 599, 600, 99])
STARTS = st.sampled_from(
    [*["HTTP/1.1 {} OK"] * 9, "HTTP/1.1 {} ", "HTTP/1.1 {}", "HTTP/1.0 {} OK", "HTTP/2.0 {} OK",
     "http/1.1 {} OK", "HTTP/1.1  {} OK", "HTTP/1.1 {} caf\xe9 \t.", "HTTP/1.1 {} \x01",
     " HTTP/1.1 {} OK"]
)  # fmt: skip
NAMES = st.sampled_from(
    ["Content-Length", "content-LENGTH", "Transfer-Encoding", "Connection", "Proxy-Connection",
     "Upgrade", "Set-Cookie", "X", "x", "X ", " X", "", "X\xe9", "A_!#$%&'*+-.^`|~9"]
)  # fmt: skip
VALUES = st.sampled_from(
    ["0", "3", "5", "005", " 5", "5 ", "+5", "-5", "5, 5", "\xb2", "18446744073709551615", "9" * 18,
     "chunked", "gzip", "keep-alive", "Close", "close ", "keep-alive, close", "upgrade", "h2c",
     "a=1; Path=/", "", " \t x \t", "\x7f", "a\x00b", "\xff", "a:b", "a\nb", "a\rb"]
)  # fmt: skip
WEIGHTY = st.sampled_from(
    ["Connection: close", "Connection:keep-alive", "Connection: keep-alive, close",
     "Connection: upgrade", "Upgrade: h2c", "Proxy-Connection: close", "Transfer-Encoding: chunked",
     "Content-Length: \xb2", "Content-Length: 5", "Content-Length: 9999999999999999999",
     "Content-Length: 99999999999999999999999"]
)  # fmt: skip
ANY = WEIGHTY | st.builds("{}:{}".format, NAMES, VALUES)
LENGTH = st.sampled_from([["Content-Length: 5"], ["Content-Length: 0"], []])
LINES = st.builds(list.__add__, st.lists(ANY, max_size=2), LENGTH)
ENDS = st.sampled_from(["\r\n"] * 9 + ["\n", "\r", "\r\n "])
BODIES = st.sampled_from(
    ["", "abc", "abcde", "abcde\r\n", "abcdeHTTP/1.1 200 OK\r\n\r\n", "0\r\n\r\n"]
)


@settings(max_examples=examples(700, 20_000))
@given(STATUSES, STARTS, LINES, ENDS, BODIES, st.integers(0, 90), st.integers(0, 9))
def test_plain_answer_is_read_as_the_parser_reads_it(
    status: int, start: str, lines: list[str], end: str, body: str, cut: int, head: int
) -> None:
    text = "\r\n".join([start.format(status), *lines]) + end + "\r\n" + body
    data = text.encode("latin-1")
    pieces = [piece for piece in (data[:cut], data[cut:]) if piece]
    plain, parsed = Answer(bodiless=head == 1), Parsed(bodiless=head == 1)
    assert told(plain, pieces) == told(parsed, pieces)
