"""A page as a WARC record, read back by warcio."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from greencrawl.schema.net.request import crawl_headers, shown
from greencrawl.schema.records import CrawlOptions, StoredPage
from greencrawl.store.warc import records as ours
from tests.support.archive import Read, check, records
from tests.support.store_records import digest

URL = "http://example.org/a?b=c"


def page(url: str = URL, **more: Any) -> StoredPage:
    more = {"status": 200, "body": b"<p>hello", "fetched_ms": 1_772_366_400_250, **more}
    more.setdefault("digest", digest(more["body"]))
    return StoredPage(crawl=1, fingerprint=1, url=url, **more)


def written(folder: Path, *made: ours.Record) -> list[Read]:
    file = folder / "x.warc.gz"
    file.write_bytes(b"".join(map(ours.member, made)))
    assert check([file]) == ""
    return list(records(file))


def answered(folder: Path, one: StoredPage) -> Read:
    return written(folder, ours.response(one))[0]


def test_a_response_record_has_the_headers_and_the_stored_body(tmp_path: Path) -> None:
    headers = {
        "content-type": "text/html",
        "content-encoding": "br",
        "transfer-encoding": "chunked",
        "content-length": "5",
        "x-cache": "a, b",
    }
    read = answered(tmp_path, page(headers=headers))
    assert (read.kind, read.uri, read.status, read.body) == ("response", URL, 200, b"<p>hello")
    assert read.fields["warc-date"] == "2026-03-01T12:00:00.250Z"
    assert read.fields["warc-payload-digest"].startswith("sha1:")
    assert read.fields["warc-block-digest"].startswith("sha1:")
    assert "warc-truncated" not in read.fields
    assert read.http == {
        "content-type": "text/html",
        "x-archive-orig-content-encoding": "br",
        "x-archive-orig-transfer-encoding": "chunked",
        "x-archive-orig-content-length": "5",
        "x-cache": "a, b",
        "content-length": "8",
    }


def test_a_content_length_header_that_still_fits_is_not_renamed(tmp_path: Path) -> None:
    read = answered(tmp_path, page(headers={"content-length": "8"}))
    assert read.http == {"content-length": "8"}


def test_a_request_shows_what_was_sent_and_no_credentials(tmp_path: Path) -> None:
    options = CrawlOptions(user_agent="me/1", contact="https://me.example")
    sent = {**crawl_headers(options), "authorization": "Basic c2VjcmV0", "cookie": "secret"}
    one = page("http://user:secret@example.org:81/a?b=c")
    answer = ours.response(one)
    read, asked = written(tmp_path, answer, ours.asked(one, answer, shown(sent)))
    assert asked.fields["warc-concurrent-to"] == read.fields["warc-record-id"]
    assert asked.line == "GET /a?b=c HTTP/1.1"
    assert asked.http["host"] == "example.org:81"
    assert asked.http["user-agent"] == "me/1 (+https://me.example)"
    assert asked.http["accept-encoding"] == "gzip, deflate, br, zstd"
    packed = (tmp_path / "x.warc.gz").read_bytes()
    assert b"secret" not in gzip.decompress(packed)
    assert b"c2VjcmV0" not in gzip.decompress(packed)


def test_a_user_agent_that_could_not_be_sent_is_left_out_of_a_request(tmp_path: Path) -> None:
    one = page()
    answer = ours.response(one)
    _, asked = written(tmp_path, answer, ours.asked(one, answer, {"user-agent": "新/1"}))
    assert "user-agent" not in asked.http


def test_a_revisit_names_the_record_that_has_the_body(tmp_path: Path) -> None:
    first, second = page(), page("http://example.org/b", fetched_ms=1_772_366_500_000)
    answer = ours.response(first)
    made = ours.revisit(second, ours.origin_of(answer, first))
    one, two = written(tmp_path, answer, made)
    assert two.kind == "revisit"
    assert two.fields["warc-profile"] == ours.REVISIT
    assert two.fields["warc-refers-to"] == one.fields["warc-record-id"]
    assert two.fields["warc-refers-to-target-uri"] == URL
    assert two.fields["warc-refers-to-date"] == "2026-03-01T12:00:00.250Z"
    assert two.fields["warc-payload-digest"] == one.fields["warc-payload-digest"]
    assert (two.body, two.http["content-length"]) == (b"", "8")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"truncated": True}, "length"),
        ({"truncated": True, "status": 404}, "unspecified"),
        ({"body": b"", "digest": digest(b"a picture")}, "unspecified"),
        ({"body": b"", "digest": digest(b"")}, None),
        ({"body": b"", "digest": b""}, None),
    ],
)
def test_a_body_that_is_not_whole_is_called_truncated(
    tmp_path: Path, more: dict[str, Any], said: str | None
) -> None:
    assert answered(tmp_path, page(**more)).fields.get("warc-truncated") == said


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("x", "a\r\nInjected: 1\r\n\r\nbody", ("x", "a  Injected: 1    body")),
        ("x", "a\0b", ("x", "a b")),
        ("x", "é", ("x", "é")),
        ("x", "新闻", ("x", "新闻")),
        ("x", "\ud800", ("x", "?")),
        ("bad name\r\nInjected", "1", ("x-archive-orig-bad-name--injected", "1")),
        ("", "1", ("x-archive-orig-empty", "1")),
        ("x", "v" * 60_000, ("x", "v" * 60_000)),
    ],
)
def test_a_header_cannot_break_out_of_its_line(
    tmp_path: Path, name: str, value: str, kept: tuple[str, str]
) -> None:
    read = answered(tmp_path, page(headers={name: value}))
    assert read.body == b"<p>hello"
    assert list(read.http) == [kept[0], "content-length"]
    assert read.http[kept[0]] in (kept[1], kept[1].encode().decode("latin-1"))


def test_hundreds_of_headers_are_kept(tmp_path: Path) -> None:
    headers = {f"x-{n}": "v" * 300 for n in range(200)}
    assert len(answered(tmp_path, page(headers=headers)).http) == 201


@pytest.mark.parametrize("body", [b"\0" * 1000, b"WARC/1.1\r\n\r\n" * 3, b"\r\n\r\n", b""])
def test_bodies_that_look_like_records_are_read_back_unchanged(tmp_path: Path, body: bytes) -> None:
    one = page(body=body)
    assert answered(tmp_path, one).body == body
    packed = ours.member(ours.response(one))
    assert ours.body_of(ours.plain(packed, 10**6)) == body


@pytest.mark.parametrize(
    ("url", "uri"),
    [
        ("http://example.org/a b", "http://example.org/a%20b"),
        ("http://example.org/新", "http://example.org/%E6%96%B0"),
        ("http://example.org/a\r\nX: 1", "http://example.org/a%0D%0AX:%201"),
        ("http://u:p@example.org/a@b", "http://example.org/a@b"),
    ],
)
def test_the_target_uri_of_a_record_is_ascii_without_spaces_or_credentials(
    tmp_path: Path, url: str, uri: str
) -> None:
    one = page(url)
    answer = ours.response(one)
    read, asked = written(tmp_path, answer, ours.asked(one, answer, {}))
    assert read.uri == asked.uri == uri


def test_a_redirect_keeps_its_location_header_or_gets_one_from_its_final_url(
    tmp_path: Path,
) -> None:
    kept = page(status=302, body=b"", headers={"location": "/x"}, final_url="http://example.org/x")
    lost = page(status=302, body=b"", final_url="http://example.org/x")
    one, two = written(tmp_path, ours.response(kept), ours.response(lost))
    assert (one.status, one.http["location"]) == (302, "/x")
    assert two.http["location"] == "http://example.org/x"


@pytest.mark.parametrize(("status", "moment"), [(299, 10**17), (999, -(10**17)), (204, 0)])
def test_a_record_can_have_any_status_and_time(tmp_path: Path, status: int, moment: int) -> None:
    assert answered(tmp_path, page(status=status, fetched_ms=moment)).status == status


def test_every_damaged_byte_of_a_record_is_noticed() -> None:
    packed = bytearray(ours.member(ours.response(page())))
    header = set(range(4, 10)) | set(range(12, 24))  # times, systems and our own lengths
    for at in range(len(packed)):
        packed[at] ^= 0x41
        try:
            body = ours.body_of(ours.plain(bytes(packed), 10**6))
        except ours.Damage:
            pass
        else:
            assert at in header
            assert body == b"<p>hello"
        packed[at] ^= 0x41


def test_a_record_longer_than_allowed_is_not_inflated() -> None:
    packed = ours.member(ours.response(page(body=b"\0" * 5_000_000)))
    with pytest.raises(ours.Damage):
        ours.plain(packed, 1_000_000)
    ours.verify(packed)
    with pytest.raises(ours.Damage):
        ours.verify(packed[:-1])
    with pytest.raises(ours.Damage):
        ours.verify(packed + b"x")


def test_a_body_is_read_only_from_a_whole_response_record() -> None:
    one = page()
    answer = ours.response(one)
    plain = b"".join(answer.parts)
    assert ours.body_of(plain) == one.body
    for bad in (
        b"".join(ours.asked(one, answer, {}).parts),
        plain[:-1],
        plain + b"x",
        plain.replace(b"Content-Length", b"Content-Longth", 1),
        b"X" + plain[1:],
        b"GET / HTTP/1.1\r\n\r\n",
        b"",
    ):
        with pytest.raises(ours.Damage):
            ours.body_of(bad)
