"""An answer is the same however the network cuts it up."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from greencrawl.worker.http.response import (
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_LINK_BYTES,
    MAX_LONG_HEAD_BYTES,
    Answer,
)

OK = b"HTTP/1.1 200 OK\r\n"
ANSWERS = {
    "length": OK + b"A: 1\r\nContent-Length: 5\r\nE:\r\n\r\nhello",
    "no body": OK + b"Content-Length: 0\r\n\r\n",
    "close": OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello",
    "repeated": OK
    + b"X: a\r\nset-cookie: b=1\r\nx: c\r\nSet-Cookie: d\r\nContent-Length: 1\r\n\r\n.",
    "chunks": OK
    + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX: trailer\r\n\r\n",
    "interim": b"HTTP/1.1 103 Early\r\nSet-Cookie: e=1\r\n\r\n"
    + OK
    + b"Content-Length: 2\r\n\r\nok",
    "two interim": b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 103 E\r\nA: b\r\n\r\n"
    + OK
    + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
    "empty lines before": b"\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nok",
    "not modified": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
    "old": b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "old, kept": b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
    "head's end in the body": OK + b"Content-Length: 9\r\n\r\na\r\n\r\nb\r\n\r\n"[:-1],
    "body to the end": OK + b"Server: x\r\n\r\nto the\r\n\r\nend",
    "other protocol": b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: x\r\n"
    b"Content-Length: 3\r\n\r\n",
}


def told(pieces: Iterable[bytes], *, bodiless: bool = False) -> tuple[object, ...]:
    """Return all facts of an answer after ``pieces`` and the end."""
    answer = Answer(bodiless=bodiless)
    for piece in [*(piece for piece in pieces if piece), b""]:
        if not answer.complete:
            answer.take(piece)
    fields = (answer.status, answer.headers, answer.cookies, bytes(answer.body))
    return (*fields, answer.complete, answer.reusable, answer.violation)


@pytest.mark.parametrize("data", ANSWERS.values(), ids=ANSWERS)
def test_answer_is_the_same_wherever_it_is_cut(data: bytes) -> None:
    whole = told([data])
    assert whole[4], "it has an end"
    assert not whole[6]
    assert told(data[i : i + 1] for i in range(len(data))) == whole
    for cut in range(1, len(data)):
        assert told([data[:cut], data[cut:]]) == whole, data[:cut]


def test_status_headers_cookies_and_body_of_answers_are_read() -> None:
    assert {name: told([data])[:4] for name, data in ANSWERS.items()} == {
        "length": (200, {"a": "1", "content-length": "5", "e": ""}, (), b"hello"),
        "no body": (200, {"content-length": "0"}, (), b""),
        "close": (200, {"connection": "close", "content-length": "5"}, (), b"hello"),
        "repeated": (
            200,
            {"x": "a, c", "set-cookie": "b=1, d", "content-length": "1"},
            ("b=1", "d"),
            b".",
        ),
        "chunks": (200, {"transfer-encoding": "chunked"}, (), b"abcde"),
        "interim": (200, {"content-length": "2"}, (), b"ok"),
        "two interim": (200, {"transfer-encoding": "chunked"}, (), b"x"),
        "empty lines before": (200, {"content-length": "2"}, (), b"ok"),
        "not modified": (304, {"content-length": "5"}, (), b""),
        "old": (200, {"content-length": "2"}, (), b"ok"),
        "old, kept": (200, {"connection": "keep-alive", "content-length": "2"}, (), b"ok"),
        "head's end in the body": (200, {"content-length": "9"}, (), b"a\r\n\r\nb\r\n\r"),
        "body to the end": (200, {"server": "x"}, (), b"to the\r\n\r\nend"),
        "other protocol": (
            101,
            {"connection": "upgrade", "upgrade": "x", "content-length": "3"},
            (),
            b"",
        ),
    }
    kept = {name for name, data in ANSWERS.items() if told([data])[5]}
    assert kept == set(ANSWERS) - {"close", "old", "body to the end", "other protocol"}


def test_several_x_robots_tag_headers_are_listed_separately() -> None:
    tags = b"X-Robots-Tag: otherbot: none\r\n", b"x-robots-tag: noai\r\n", b"X-Robots-Tag: x\r\n"
    early = b"HTTP/1.1 103 Early\r\n" + tags[0] + tags[1] + b"\r\n"
    for count, expected in ((0, ()), (1, ()), (2, ("otherbot: none", "noai"))):
        answer = Answer()
        answer.take(early + OK + b"".join(tags[:count]) + b"Content-Length: 0\r\n\r\n")
        assert answer.robots_tags == expected
    answer = Answer()
    answer.take(OK + b"".join(tags) + b"Content-Length: 0\r\n\r\n")
    assert answer.robots_tags == ("otherbot: none", "noai", "x")
    assert answer.headers["x-robots-tag"] == "otherbot: none, noai, x"


def test_answer_to_a_head_request_ends_with_its_head() -> None:
    data = OK + b"Content-Length: 5\r\n\r\n"
    for cut in range(1, len(data)):
        assert told([data[:cut], data[cut:]], bodiless=True)[4:] == (True, True, "")


NEXT = OK + b"Content-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("length", b"x"),
        ("length", NEXT),
        ("no body", NEXT),
        ("chunks", b"x"),
        ("other protocol", b"xy"),
    ],
)
def test_bytes_after_an_answer_are_not_part_of_it_and_end_the_reuse_of_its_connection(
    name: str, more: bytes
) -> None:
    answer = Answer()
    answer.take(ANSWERS[name] + more)
    assert answer.complete
    assert bytes(answer.body) == told([ANSWERS[name]])[3]
    assert not answer.reusable


@pytest.mark.parametrize("name", ["length", "no body", "chunks"])
def test_empty_lines_after_an_answer_do_not_end_the_reuse_of_its_connection(name: str) -> None:
    answer = Answer()
    answer.take(ANSWERS[name] + b"\r\n\r\n")
    assert answer.reusable


@pytest.mark.parametrize("size", [1, 1000, 2**20], ids=["by byte", "by thousand", "at once"])
def test_heads_are_capped_in_bytes_and_fields_however_they_come(size: int) -> None:
    def verdict(data: bytes) -> bool:
        answer = Answer()
        for start in range(0, len(data), size):
            answer.take(data[start : start + size])
            if answer.violation:
                return False
        return answer.complete

    end = b"Content-Length: 0\r\n\r\n"
    fields = [b"X-%d: y\r\n" % i for i in range(MAX_HEADERS)]
    assert verdict(OK + b"".join(fields[1:]) + end)
    assert not verdict(OK + b"".join(fields) + end)
    interim = b"HTTP/1.1 100 C\r\n" + b"".join(fields[:100]) + b"\r\n"
    assert verdict(interim + OK + b"".join(fields[:99]) + end)
    assert not verdict(interim + OK + b"".join(fields[:100]) + end)
    long = b"X: " + b"y" * (MAX_HEAD_BYTES - 100) + b"\r\n"
    assert verdict(OK + long + end)
    assert not verdict(OK + long + b"Y: " + long + end)
    assert not verdict(b"HTTP/1.1 103 E\r\n" + long + b"\r\n" + OK + b"Y: " + long + end)


def links(count: int) -> bytes:
    return b", ".join(b"</%06d/%s>; rel=next" % (n, b"x" * 70) for n in range(count))


@pytest.mark.parametrize("size", [1, 1000, 2**20], ids=["by byte", "by thousand", "at once"])
@pytest.mark.parametrize(
    "fields",
    [
        [b"Link: " + links(2000)],
        [b"Link: " + links(1) for _ in range(1500)],
        [b"link: " + links(300), b"LINK: " + links(1000), b"Link: </late>; rel=prev"],
    ],
    ids=["one", "many", "some"],
)
def test_whole_links_of_long_link_headers_are_kept_up_to_a_bound(
    fields: list[bytes], size: int
) -> None:
    data = OK + b"\r\n".join([b"A: b", *fields, b"C: d", b"Content-Length: 2", b"", b"ok"])
    assert MAX_HEAD_BYTES < len(data) < MAX_LONG_HEAD_BYTES
    answer = Answer()
    for start in range(0, len(data), size):
        answer.take(data[start : start + size])
    assert (answer.violation, answer.complete, bytes(answer.body)) == ("", True, b"ok")
    assert answer.links_cut
    assert answer.headers.keys() == {"a", "link", "c", "content-length"}
    kept = answer.headers["link"]
    assert MAX_LINK_BYTES // 2 < len(kept) <= MAX_LINK_BYTES
    assert kept.count("<") == kept.count("; rel=next")
    assert "late" not in kept


def test_size_of_a_head_with_many_links_is_capped() -> None:
    answer = Answer()
    answer.take(OK)
    taken = 0
    while not answer.violation:
        answer.take(b"Link: " + links(100) + b"\r\n")
        taken += len(links(100))
        assert taken <= MAX_LONG_HEAD_BYTES + len(links(100))
    assert answer.violation == "headers beyond 262144 bytes, with Link"
    answer = Answer()
    long = b"X: " + b"y" * (MAX_HEAD_BYTES - MAX_LINK_BYTES) + b"\r\n"
    answer.take(OK + b"Link: " + links(1000) + b"\r\n" + long + long)
    assert "headers beyond" in answer.violation


@pytest.mark.parametrize("odd", [b"X-A : b", b"Bad Header: x", b"Content-Length: 2", b": x"])
@pytest.mark.parametrize("size", [1460, 65536])
def test_an_odd_line_behind_long_link_fields_is_read_wherever_it_is_cut(
    odd: bytes, size: int
) -> None:
    fields = b"".join(b"Link: </p%d>; rel=next\r\n" % n for n in range(3500))
    data = b"HTTP/1.1 200 OK\r\n" + fields + odd + b"\r\nContent-Length: 2\r\n\r\nok"
    answer = Answer()
    for at in range(0, len(data), size):
        answer.take(data[at : at + size])
    assert answer.violation == ""
    assert (answer.complete, answer.links_cut, answer.body) == (True, True, b"ok")


def test_links_of_an_interim_answer_do_not_count_towards_the_bound() -> None:
    interim = b"HTTP/1.1 103 E\r\nLink: " + links(600) + b"\r\n\r\n"
    answer = Answer()
    answer.take(interim + OK + b"Link: </a>; rel=next\r\nContent-Length: 0\r\n\r\n")
    assert (answer.complete, answer.links_cut) == (True, False)
    assert answer.headers["link"] == "</a>; rel=next"


def test_body_of_known_length_is_not_copied_if_it_arrives_in_one_piece() -> None:
    answer = Answer()
    answer.take(OK + b"Content-Length: 50000\r\n\r\n")
    body = bytes(50_000)
    answer.take(body)
    assert answer.body is body


def test_content_length_beyond_64_signed_bits_is_left_to_the_parser() -> None:
    answer = Answer()
    answer.take(OK + b"Content-Length: 18446744073709551615\r\n\r\nhello")
    answer.take(b" again")
    assert (bytes(answer.body), answer.complete, answer.violation) == (b"hello again", False, "")


def test_number_of_fields_is_capped_before_the_head_ends() -> None:
    answer = Answer()
    answer.take(OK + b"ab:\r\n" * MAX_HEADERS)
    assert not answer.violation
    answer.take(b"ab:\r\n" * 2)
    assert "fields" in answer.violation
