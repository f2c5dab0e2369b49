"""The C part: it agrees with the style sheet and with Python, and nothing depends on it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from greencrawl.worker.extract import links, speedups, text
from greencrawl.worker.extract.compile import compile, main
from greencrawl.worker.extract.page import _parse, outline
from tests.worker.extract.test_links import TEMPLATES

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler")

PIECES = [
    *(
        f"<{name}>".encode()
        for name in (*text.BLOCKS, *text.INVISIBLE, "noscript", "b", "o:p", "P")
    ),
    *(f"</{name}>".encode() for name in (*text.BLOCKS[:20], *text.INVISIBLE, "noscript", "b")),
    *(b"</body>", b"</html>", b"<html>"),
    *(b" ", b"  ", b"\n\t", b"\r", b"\x0b", b"\x0c", b"\x1f", b"\xc2\xa0", b"&nbsp;", b"\x00"),
    *(b"a", b"word", b"seven b", b"several words in a row ", "中文　字".encode(), "¡¢".encode()),
    *(b"\xff", b"\xc2", b"\xed\xa0\x80", b"&#xD800;", b"&#0;", b"&#12;", b"<!-- c -->", b"<?p?>"),
]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    folder = tmp_path_factory.mktemp("compiled")
    assert compile(folder, "-Wall", "-Wextra", "-Werror") == ""
    name = speedups.name_of(text.BLOCKS, text.INVISIBLE)
    before = sys.modules.pop(name, None)
    sys.path.insert(0, str(folder))
    try:
        module = speedups.load(text.BLOCKS, text.INVISIBLE)
        assert module is not None
        assert Path(str(module.__file__)).parent == folder
        yield module
    finally:
        sys.path.remove(str(folder))
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before


@needs_compiler
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=60))
def test_the_c_part_reads_the_same_text_as_the_style_sheet(
    compiled: ModuleType, pieces: list[bytes]
) -> None:
    root = _parse(b"<html><body>" + b"".join(pieces))
    assert root is not None
    found = compiled.visible(root, False) or compiled.visible(root, True)
    assert found == text.by_stylesheet(root)


@needs_compiler
def test_text_after_the_end_tag_of_the_document_is_read(compiled: ModuleType) -> None:
    root = _parse(b"<p>a</body></html>\n<div>b</html> c <script>d</script></html><p>e")
    assert root is not None
    assert compiled.visible(root, False) == text.by_stylesheet(root) == "a b c e"
    assert compiled.visible(root[0], False) == "a"


LINKS = [
    *(f"<{name}>".encode() for name in (*links.READ, "abbr", "b", "P", "o:a", "svg", "math")),
    *(f"</{name}>".encode() for name in (*links.READ, "svg", "template")),
    *(b"<template>", b"<template shadowrootmode=open>"),
    *(
        f"<{name} {attributes}>".encode()
        for name in ("a", "A", "svg:a", "area", "iframe", "link", "base")
        for attributes in (
            "href=/x src=/y", "href='#x'", "href=''", "href", "rel=next href=' #'", "HREF=/中 rel",
            "href=1 href=2 rel='NoFollow  x'", "xlink:href=/z",
            "href='&#x1F600;&amp;&#xD800;\n&#0;'",
        )
    ),
    *(b"<a href='/\xff\xc2' rel='\xed\xa0\x80'>", b"<a href=/\x00x>", b"<base target=_top>", b"x"),
    b"<meta http-equiv=' Refresh' content='0;url=/r'>", b"<meta http-equiv=refresh content='0'>",
    *(b"<frame src=/f>", b"<svg><title>t</title>", b"<frame src=#f>", b"<html lang=EN-us>"),
    *(
        f"<meta name='{name}' content=nofollow>".encode()
        for name in ("robots", "ROBOTS ", "agent", "Agent\u2003", "viewport", "")
    ),
    b"<meta http-equiv='Content-Language' content='zh-Hans'>", b"<meta http-equiv=content-type>",
    *(
        f"<link rel='{rel}' href=/r>".encode()
        for rel in ("next", "x\nPREV", "nexts", "\u212a next", "Canonical", "canonical prev", "up")
    ),
    *(b"<noscript>", b"</noscript>", b"<p>words</p>", b"</body></html><a href=/z>z</a>"),
]  # fmt: skip


URL = "http://example.org/dir/page?q"
AGENT = "agent"


def read_twice(
    compiled: ModuleType, monkeypatch: pytest.MonkeyPatch, body: bytes, encoding: str = "utf-8"
) -> tuple[object, ...]:
    """Return what :func:`outline` makes of a page; fail if C and Python differ."""

    def read(module: ModuleType | None) -> tuple[object, ...]:
        monkeypatch.setattr(links, "compiled", module)
        monkeypatch.setattr(text, "compiled", module)
        page, found = outline(body, URL, f"text/html; charset={encoding}", agent=AGENT)
        page.samples = b""  # Python alone takes other samples, where they are needed
        return page, found._replace(rels=[rel or None for rel in found.rels])

    found = read(compiled)
    assert found == read(None)
    return found


@needs_compiler
@given(pieces=st.lists(st.sampled_from(LINKS), max_size=30), body=st.booleans())
def test_the_c_part_reads_pages_as_python_does(
    compiled: ModuleType, pieces: list[bytes], body: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        read_twice(compiled, patch, (b"<html><body>" if body else b"") + b"".join(pieces))


PLACES = [
    *("", "a", "A.b", "/", "//", "/a", "//h.org/", "http:", "http://", "https://", "HTTP://"),
    *("ftp://", "h.org", "h-1.org/", "h_.o", "1.2.3.4/", "h..org/", ".org/", "xn--a.org/"),
    *("h.org:80/", "u@h.org/", "?", "?a=b&c", "&", "=", "%20", "%", "+", "~", "-", "_", ".", ".."),
    *("/.", "/../", "./", ":", ";", "#", "#x", "/.#", " ", "\t", "中", "ä", "\\", "'", "|", "*"),
    *("x" * 1980, "y" * 8192),
]  # fmt: skip


@needs_compiler
@pytest.mark.parametrize(("html", "followed"), TEMPLATES)
def test_the_c_part_skips_links_in_templates(
    compiled: ModuleType, monkeypatch: pytest.MonkeyPatch, html: str, followed: str
) -> None:
    found = compiled.outline(_parse(html.encode()), URL, AGENT, 100, False, False)
    assert [url.rpartition("/")[2] for url in found[1]] == followed.split()
    read_twice(compiled, monkeypatch, html.encode())


@needs_compiler
@pytest.mark.parametrize("encoding", ["utf-8", "gbk"])
@given(pieces=st.lists(st.sampled_from(PLACES), max_size=7))
def test_the_c_part_resolves_references_as_python_does(
    compiled: ModuleType, encoding: str, pieces: list[str]
) -> None:
    reference = "".join(pieces).encode(encoding, "replace")
    with pytest.MonkeyPatch.context() as patch:
        read_twice(compiled, patch, b'<a href="/1"><a href="%s"><a href="2">' % reference, encoding)


@needs_compiler
def test_the_c_part_is_not_used_for_pages_with_a_base_or_too_many_links(
    compiled: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "compiled", compiled)

    def urls(page: bytes) -> list[str] | None:
        root = _parse(page)
        assert root is not None
        found = links.walked(root, URL, "utf-8", AGENT)
        return None if found is None else found.found.urls

    assert urls(b"<a href=x>") == ["http://example.org/dir/x"]
    assert urls(b"<a href=x><base target=_top>") is None
    assert len(urls(b"<a href=x>" * links.FEW) or []) == links.FEW
    assert urls(b"<a href=x>" * (links.FEW + 1)) is None
    assert urls(b"<a href=x>" + b"<meta http-equiv=refresh>" * links.FEW) is None


@needs_compiler
def test_the_c_part_reads_text_of_any_depth_and_length(compiled: ModuleType) -> None:
    deep = _parse(b"<div>x " * 200_000)
    assert deep is not None
    assert compiled.visible(deep, False) == text.by_stylesheet(deep)
    wide = _parse(b"<p>some words " * 200_000)
    assert compiled.visible(wide, False) == "some words " * 199_999 + "some words"


@needs_compiler
def test_the_c_part_accepts_elements_only(compiled: ModuleType) -> None:
    for wrong in (None, "text", 7, object()):
        with pytest.raises(TypeError):
            compiled.visible(wrong, False)
        with pytest.raises(TypeError):
            compiled.outline(wrong, URL, AGENT, 10)
        with pytest.raises(TypeError):
            compiled.outline(etree.Element("p"), wrong, wrong, wrong)
    with pytest.raises(TypeError):
        compiled.visible(etree.Element("p"))


@needs_compiler
def test_a_compiled_part_is_used_only_if_its_lists_of_elements_match(compiled: ModuleType) -> None:
    assert speedups.load(text.BLOCKS, text.INVISIBLE) is compiled
    assert speedups.load((*text.BLOCKS, "marquee"), text.INVISIBLE) is None


def test_a_part_compiled_for_another_libxml2_has_another_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = speedups.name_of(text.BLOCKS, text.INVISIBLE)
    for version in ("LIBXML_VERSION", "LIBXML_COMPILED_VERSION"):
        with monkeypatch.context() as patch:
            patch.setattr(etree, version, (2, 9, 14))
            assert speedups.name_of(text.BLOCKS, text.INVISIBLE) != name


@needs_compiler
def test_headers_of_another_libxml2_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etree, "LIBXML_VERSION", (2, 9, 14))
    (source,) = (one for one in speedups.SOURCES if one.name == "speedups.c")
    assert "another libxml2" in compile(tmp_path, "-O0", sources=[source])
    assert list(tmp_path.iterdir()) == []


@needs_compiler
def test_a_warning_of_the_compiler_does_not_stop_the_build(tmp_path: Path) -> None:
    warned = tmp_path / "warned.c"
    warned.write_text("static int unused(void) { return 0; }\n")
    assert "unused" in compile(tmp_path, "-Wall", "-Werror", sources=[warned])
    assert compile(tmp_path, "-Wall", sources=[warned]) == ""


def test_the_build_says_what_to_install_if_there_is_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert "no-such-compiler" in compile(tmp_path)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    assert main() == 1
    assert "apt-get install gcc python3-dev" in capsys.readouterr().err
    monkeypatch.setenv("CC", "false")
    assert compile(tmp_path) == "exit status 1"
    assert list(tmp_path.iterdir()) == []
