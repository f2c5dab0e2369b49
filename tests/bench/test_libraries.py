"""Our own code and libraries: where both do the same work, and where they differ."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.libraries import compare, logins, records
from greencrawl.schema.net.origins import Origins
from greencrawl.schema.records import Fetched, StoredPage
from greencrawl.store.warc.records import Origin
from greencrawl.worker.auth.base import Cookie
from greencrawl.worker.auth.cookies import Jar
from greencrawl.worker.auth.kinds import digest
from tests.support import archive
from tests.support.checkout import ROOT

URL = "https://site.example/dir/page.html?a=b"
ORIGIN = Origin("<urn:uuid:1>", "https://site.example/", "2026-01-01T00:00:00.000Z")


def page() -> StoredPage:
    headers = {"content-type": "text/html", "content-length": "8", "x": "é"}
    return StoredPage(
        crawl=1, fingerprint=1, url=URL, status=200, body=b"<p>hello", digest=b"d", headers=headers
    )


@pytest.mark.parametrize("name", records.WAYS)
def test_every_way_writes_a_response_and_a_request_and_reads_the_body(
    tmp_path: Path, name: str
) -> None:
    file = tmp_path / "x.warc.gz"
    way = records.WAYS[name]
    ((offset, length),) = compare.write(way, file, [page()], None)
    assert archive.check([file]) == ""
    answer, request = archive.records(file)
    assert (answer.kind, answer.uri, answer.body) == ("response", URL, b"<p>hello")
    assert (request.kind, request.line) == ("request", "GET /dir/page.html?a=b HTTP/1.1")
    assert request.fields["warc-concurrent-to"] == answer.fields["warc-record-id"]
    assert answer.http["x"] == ("é" if way.read is not records.read_documented else "%C3%A9")
    one = tmp_path / "one.warc.gz"
    one.write_bytes(records.ours.member(records.ours.response(page())))
    assert way.read(one, 0, one.stat().st_size) == b"<p>hello"
    assert (offset, length) == (0, file.stat().st_size)


@pytest.mark.parametrize("name", records.WAYS)
def test_every_way_writes_a_revisit_with_the_same_fields(tmp_path: Path, name: str) -> None:
    file = tmp_path / "x.warc.gz"
    compare.write(records.WAYS[name], file, [page()], ORIGIN)
    again, _ = archive.records(file)
    assert (again.kind, again.body) == ("revisit", b"")
    assert again.fields["warc-refers-to"] == ORIGIN.id
    assert again.fields["warc-refers-to-target-uri"] == ORIGIN.uri
    assert again.fields["warc-profile"] == records.ours.REVISIT


def test_a_module_of_hooks_has_warcio_make_the_records_of_its_process(tmp_path: Path) -> None:
    file = tmp_path / "x.warc.gz"
    program = """if True:
        import sys
        from greencrawl.store.warc import records
        from tests.bench.test_libraries import page
        if sys.argv[2] == "warcio":
            import bench.libraries.with_warcio
        answer = records.response(page())
        made = records.member(answer) + records.member(records.asked(page(), answer, {}))
        open(sys.argv[1], "wb").write(made)
    """
    for by in ("ours", "warcio"):
        command = [sys.executable, "-c", program, str(file), by]
        subprocess.run(command, cwd=ROOT, check=True, timeout=60)
        assert archive.check([file]) == ""
        assert compare.made_by_warcio(tmp_path) == (by == "warcio")


@pytest.mark.filterwarnings("ignore:http.cookiejar bug")
def test_both_jars_send_the_same_cookies_and_take_the_same_change() -> None:
    held = [Cookie("a", "1", "site.example"), Cookie("b", "2", "site.example", path="/dir")]
    for kind in (Jar, logins.LibraryJar):
        jar = kind(held, Origins(["site.example"]))
        assert jar.header(URL) == "b=2; a=1"
        assert jar.header("https://other.example/") == ""
        assert jar.take(compare.answer(URL, "a=3; Path=/")) == []
        assert jar.header(URL) == "b=2; a=3"
        assert jar.take(compare.answer(URL, "unknown=1; Path=/")) == []
        assert jar.take(compare.answer(URL, "a=; Path=/; Max-Age=0")) == ["a"]
        assert jar.header(URL) == "b=2"
        for text in compare.hostile(1000).values():
            assert jar.take(compare.answer(URL, text)) == []


def test_a_library_jar_takes_no_cookie_of_an_answer_if_one_of_them_has_a_bad_max_age() -> None:
    fetched = Fetched(
        url=URL,
        status=200,
        headers={},
        body=b"",
        cookies=("a=2; Path=/", "x=1; Max-Age=" + "9" * 400),
    )
    ours, library = (
        kind([Cookie("a", "1", "site.example")], Origins(["site.example"]))
        for kind in (Jar, logins.LibraryJar)
    )
    ours.take(fetched)
    assert ours.header(URL) == "a=2"
    with pytest.warns(UserWarning, match="http.cookiejar bug"):
        library.take(fetched)
    assert library.header(URL) == "a=1"


def test_a_library_jar_lets_an_answer_without_tls_delete_a_secure_cookie() -> None:
    held = [Cookie("a", "1", "site.example", secure=True)]
    deleted = compare.answer("http://site.example/", "a=; Path=/; Max-Age=0")
    origins = Origins(["site.example", "http://site.example"])
    assert Jar(held, origins).take(deleted) == []
    assert logins.LibraryJar(held, origins).take(deleted) == ["a"]


def test_a_library_jar_lets_one_host_delete_the_cookie_of_another() -> None:
    held = [Cookie("a", "1", "site.example", host_only=False)]
    deleted = compare.answer("https://other.example/", "a=; Path=/; Max-Age=0; Domain=site.example")
    origins = Origins(["site.example", "other.example"])
    assert Jar(held, origins).take(deleted) == []
    assert logins.LibraryJar(held, origins).take(deleted) == ["a"]


@pytest.mark.parametrize(
    ("target", "hashed"), [("/a?b=c", "/a?b=c"), ("/a;b=c", "/a"), ("/a?", "/a"), ("//a/b", "/b")]
)
def test_requests_hashes_another_target_than_the_one_asked_for(target: str, hashed: str) -> None:
    challenge = digest.strongest('Digest realm="r", qop="auth", nonce="n"')
    assert challenge is not None
    assert f'uri="{target}"' in digest.answer(challenge, "u", "p", "GET", target)
    assert f'uri="{hashed}"' in logins.answer(challenge, "u", "p", "GET", target)
    assert challenge.count == 2
