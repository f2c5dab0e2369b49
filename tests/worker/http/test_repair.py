"""Answers that break the standard: read as browsers do, unless that is dangerous."""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from greencrawl.schema.clock import monotonic
from greencrawl.schema.records import Failure, FailureKind, Fetched
from greencrawl.worker.http.client import Downloader
from greencrawl.worker.http.repair import HeadRepair, NotHttp
from greencrawl.worker.http.response import MAX_HEAD_BYTES, Answer
from tests.support.odd_answers import ALSO_ODD, CHUNKED, DANGEROUS, END, ODD, OK
from tests.support.raw_server import RawServer, send
from tests.worker.http.test_response import ANSWERS, told

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
ALL = {**ODD, **ALSO_ODD}
REFUSED_BY_CURL = {"ICY", "empty lines before", "line without a colon"}


@pytest.fixture
def downloader() -> Iterator[Downloader]:
    made = Downloader(LOOPBACK, request_seconds=2)
    yield made
    made.close()


def fetch(downloader: Downloader, data: bytes) -> Fetched | Failure:
    with RawServer(send(data)) as server:
        found = downloader.fetch(server.url(), {}, max_body_bytes=999, deadline=monotonic() + 9)
        assert len(server.requests) == 1, "nothing is asked twice"
    return found


@pytest.mark.parametrize("data", ALL.values(), ids=ALL)
def test_odd_answer_is_read(downloader: Downloader, data: bytes) -> None:
    found = fetch(downloader, data)
    assert isinstance(found, Fetched), found
    assert (found.status, found.body, found.truncated) == (200, b"hello", False)


@pytest.mark.parametrize("data", DANGEROUS.values(), ids=DANGEROUS)
def test_dangerous_answer_is_refused(downloader: Downloader, data: bytes) -> None:
    found = fetch(downloader, data)
    assert isinstance(found, Failure), found
    assert found.kind is FailureKind.PROTOCOL
    assert found.detail


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl judges")
def test_curl_reads_all_odd_answers_but_three() -> None:
    with RawServer(
        lambda sock: sock.sendall(ODD[server.paths[-1][1:].replace("+", " ")])
    ) as server:
        urls = [server.url(f"/{name.replace(' ', '+')}") for name in ODD]
        run = ["curl", "-s", "--max-time", "5", "-w", "|", *urls]
        ended = subprocess.run(run, capture_output=True, check=False)
    bodies = ended.stdout.split(b"|")[:-1]
    refused = {name for name, body in zip(ODD, bodies, strict=True) if body != b"hello"}
    assert refused == REFUSED_BY_CURL


@pytest.mark.parametrize("data", ALL.values(), ids=ALL)
def test_odd_answer_is_the_same_wherever_it_is_cut(data: bytes) -> None:
    whole = told([data])
    assert not whole[6]
    for cut in range(1, len(data)):
        pieces = [data[:cut], data[cut:]]
        assert told(pieces)[:5] == whole[:5], data[:cut]
    assert told(data[i : i + 1] for i in range(len(data)))[:5] == whole[:5]


@pytest.mark.parametrize("data", DANGEROUS.values(), ids=DANGEROUS)
def test_dangerous_answer_is_refused_wherever_it_is_cut(data: bytes) -> None:
    for cut in range(1, len(data)):
        answer = Answer()
        for piece in (data[:cut], data[cut:]):
            if not answer.violation:
                answer.take(piece)
        assert answer.violation, data[:cut]
        assert not answer.complete


def test_connection_is_not_used_again_after_an_answer_that_was_tidied() -> None:
    kept = {name for name, data in ALL.items() if told([data])[5]}
    assert kept == {"empty lines before", "blanks around Content-Length", "gzip that is none"}


def test_fields_of_odd_heads_are_those_that_browsers_see() -> None:
    head = (
        b"http/1.1 200\nA : 1\r\nB: x\n  y\r\n\tz\nno colon\nC D: 2\n: 3\nE:4\x01\x7f5 \n"
        b"Set-Cookie: a=1\nset-cookie : b=2\nContent-Length: 5\ncontent-length: 5\n\nhello"
    )
    assert told([head])[:5] == (
        200,
        {"a": "1", "b": "x y z", "e": "4  5", "set-cookie": "a=1, b=2", "content-length": "5"},
        ("a=1", "b=2"),
        b"hello",
        True,
    )


def test_equal_location_headers_are_joined_into_one() -> None:
    head = b"HTTP/1.1 302 Found\r\nLocation: /a\r\nX: y\r\nLocation: %s\r\n"
    for second, location in ((b"/a", "/a"), (b"/b", "/a, /b")):
        answer = Answer()
        answer.take(head % second + END)
        assert answer.headers["location"] == location


def test_answer_to_head_has_no_body_though_it_is_odd() -> None:
    for data in (b"HTTP/1.1 200\n" + END[:-5], CHUNKED.replace(b"\r\n", b"\n")):
        assert told([data], bodiless=True)[3:5] == (b"", True)


def test_bytes_that_are_no_http_answer_are_refused_at_once() -> None:
    for data in (b"SSH-2.0-x\r\n", b"\x16\x03\x01", b"<!doctype html>", b"HTTP/1.1 " + b"x" * 99):
        answer = Answer()
        answer.take(data)
        assert answer.violation, data


def test_odd_heads_are_capped_as_all_are() -> None:
    for again in (b"X y: z\n", b"no colon\n", b"X : y\n"):
        answer = Answer()
        answer.take(b"HTTP/1.1 200\n")
        taken = 0
        while not answer.violation:
            answer.take(again)
            taken += len(again)
            assert taken <= MAX_HEAD_BYTES
        assert "headers beyond" in answer.violation


def test_only_the_first_chunk_decides_whether_chunks_are_odd() -> None:
    data = CHUNKED + b"2\r\nhe\r\n3 \r\nllo\r\n0\r\n\r\n"
    for cut in range(len(CHUNKED), len(data)):
        answer = Answer()
        for piece in (data[:cut], data[cut:]):
            answer.take(piece)
        assert "chunk size" in answer.violation


@pytest.mark.parametrize("data", ANSWERS.values(), ids=ANSWERS)
def test_usual_answer_stays_what_it_is_when_tidied(data: bytes) -> None:
    whole = told([data])
    for cut in range(len(data)):
        repair = HeadRepair(bodiless=False)
        tidied = repair.push(data[:cut]) + repair.push(data[cut:])
        assert told([tidied])[:5] == whole[:5]


def test_repair_gives_the_standards_form_and_leaves_bodies_alone() -> None:
    repair = HeadRepair(bodiless=False)
    out = repair.push(b"icy 200 x\nTransfer-Encoding:chunked\n\n5 ;x\nhel")
    out += repair.push(b"lo\n0\nX: y\n\nmore")
    assert out == (
        b"HTTP/1.0 200 \r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nmore"
    )
    repaired = HeadRepair(bodiless=False).push(OK + b"X : y\n\na\n\n\xff\r")
    assert repaired.endswith(b"\r\n\r\na\n\n\xff\r")
    with pytest.raises(NotHttp):
        HeadRepair(bodiless=False).push(OK + b"Content-Length: 1\n 2\n\n")
