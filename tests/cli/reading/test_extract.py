"""``greencrawl extract``: a page of a file, or fetched."""

from __future__ import annotations

import gzip
import random
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from greencrawl.cli.main import main
from greencrawl.worker.extract import main as main_text
from greencrawl.worker.extract.main import text
from tests.support.ports import free_port
from tests.support.site_server import Answer, Request, SiteServer
from tests.worker.extract.main.test_comments import SAID, with_comments
from tests.worker.extract.main.test_main_text import HEAD, HEADED, STORY

needs_compiled = pytest.mark.skipif(not main_text.available(), reason="nothing was compiled")


LATIN = {"Content-Type": "text/html; charset=iso-8859-1"}


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "page.html"
    feed = "<link rel=alternate type=application/rss+xml href="
    head = f"<head><meta name=author content='A B'>{feed}feed>{feed}/b.xml>"
    path.write_text(HEADED.replace("<head>", head).replace("Copyright", "\x9b2J"))
    return str(path)


@needs_compiled
def test_extract_prints_the_main_text_of_a_file(
    file: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["extract", file]) == 0
    said = capfdbinary.readouterr().out.decode()
    assert STORY[2] in said
    assert "Topic 3" not in said
    assert main(["extract", file, "--markdown"]) == 0
    assert f"## {HEAD}" in capfdbinary.readouterr().out.decode()


@needs_compiled
def test_extract_why_shows_the_score_of_each_block(
    file: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["extract", file, "--why"]) == 0
    lines = capfdbinary.readouterr().out.decode().splitlines()
    story = next(line for line in lines if STORY[1] in line)
    menu = next(line for line in lines if "Topic 3" in line)
    assert story.split()[1:3] == ["+", "p"]
    assert menu.split()[1] == "li"
    assert float(story.split()[0]) > float(menu.split()[0])


@needs_compiled
def test_extract_why_writes_a_picture_of_the_page(
    file: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "why.html"
    for _ in range(2):  # over an earlier picture
        assert main(["extract", file, "--why", str(out)]) == 0
        assert capfd.readouterr().err == f"{out}: open it in a browser\n"
    assert STORY[1] in out.read_text()
    before = Path(file).read_text()
    assert main(["extract", file, "--why", file]) == 1
    assert "is no picture of a page" in capfd.readouterr().err
    assert Path(file).read_text() == before
    assert main(["extract", file, "--why", str(tmp_path / "none" / "x.html")]) == 1
    assert "cannot write" in capfd.readouterr().err


@needs_compiled
def test_extract_accepts_the_page_after_the_option_why(
    file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["extract", "--why", file]) == 0
    assert STORY[1] in capfd.readouterr().out
    assert main(["extract", "--why"]) == 2
    assert "which page?" in capfd.readouterr().err


@needs_compiled
def test_extract_prints_the_comments_of_readers(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = tmp_path / "page.html"
    file.write_text(with_comments("<div id=comments>", "</div>"))
    assert main(["extract", str(file), "--comments"]) == 0
    assert capfdbinary.readouterr().out.decode() == "\n\n".join(SAID) + "\n"
    assert main(["extract", str(file), "--why"]) == 0
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert [line.split()[1] for line in lines if SAID[0] in line] == ["c"]


def test_extract_prints_all_text_or_the_metadata_of_a_page(
    file: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["extract", file, "--full"]) == 0
    assert "Topic 3" in capfdbinary.readouterr().out.decode()
    assert main(["extract", file, "--about", "--url", "http://example.org/x"]) == 0
    said = capfdbinary.readouterr().out.decode()
    assert "title         When the harbour froze" in said
    assert "author        A B" in said
    assert "feeds         http://example.org/feed" in said
    assert "feeds         http://example.org/b.xml" in said


def compiled_by(said: str) -> None:
    """Check that the command that is advised to compile the part in C works when it is copied."""
    found = re.search(r"needs the part in C: `([^`]+)` makes it", said)
    assert found, said
    program, *rest = shlex.split(found[1])
    assert rest == ["-m", "greencrawl.worker.extract.compile"]
    known = f"import importlib.util as u, sys; sys.exit(u.find_spec({rest[1]!r}) is None)"
    assert subprocess.run([program, "-c", known], check=False, timeout=60).returncode == 0


def test_extract_says_once_that_the_compiled_part_is_missing(
    file: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "compiled", None)
    assert main(["extract", file]) == 0
    said = capfd.readouterr()
    assert said.out == "\n"
    assert said.err.count("no main text is shown: ") == 1
    compiled_by(said.err)


def test_extract_names_a_file_that_does_not_exist(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["extract", "/nowhere/page.html"]) == 1
    assert "cannot read /nowhere/page.html: No such file" in capfd.readouterr().err


def test_extract_fetches_a_page_and_follows_its_redirects(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    def site(request: Request) -> Answer:
        if request.target == "/old":
            return Answer(301, headers={"Location": "/new"})
        if request.target == "/damaged":
            return Answer(
                body=gzip.compress(random.randbytes(90))[:40], headers={"Content-Encoding": "gzip"}
            )
        if request.target == "/packed":
            return Answer(body=gzip.compress(b"<p>whole"), headers={"Content-Encoding": "gzip"})
        if request.target == "/picture":
            return Answer(body=b"\x89PNG\r\n", headers={"Content-Type": "image/png"})
        if request.target == "/mail":
            return Answer(302, headers={"Location": "mailto:a@b.example"})
        if request.target == "/new":
            return Answer(body="<p>Füße <a href=x>x</a>".encode("latin-1"), headers=LATIN)
        return Answer(404)

    with SiteServer(site) as server:
        assert main(["extract", server.url("/old"), "--full"]) == 0
        assert capfdbinary.readouterr().out.decode() == "Füße x\n"
        assert main(["extract", server.url("/gone")]) == 1
        assert b": the server answered 404\n" in capfdbinary.readouterr().err
        assert main(["extract", server.url("/mail")]) == 1
        said = b": it redirects to mailto:a@b.example, which is not a URL that can be requested\n"
        assert said in capfdbinary.readouterr().err
        assert main(["extract", server.url("/packed"), "--full"]) == 0
        assert capfdbinary.readouterr().out == b"whole\n"
        for path, why in (
            ("/damaged", b"content cannot be decoded: gzip: ends too early"),
            ("/picture", b"it is not HTML, so nothing is read from it"),
        ):
            assert main(["extract", server.url(path)]) == 1
            told = capfdbinary.readouterr()
            assert (why in told.err, told.out) == (True, b""), told.err
    assert main(["extract", "ftp://example.org/a"]) == 1
    assert b"ftp://example.org/a is neither an http nor" in capfdbinary.readouterr().err


def test_extract_says_in_plain_words_that_nothing_listens(
    capfd: pytest.CaptureFixture[str],
) -> None:
    url = f"http://127.0.0.1:{free_port()}/"
    assert main(["extract", url]) == 1
    assert f"cannot fetch {url}: connection refused\n" in capfd.readouterr().err
