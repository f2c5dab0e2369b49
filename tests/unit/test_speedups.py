"""The part in C: it says what the style sheet says, and nobody needs it."""

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

from worker.extract import speedups, text
from worker.extract.compile import compile, main
from worker.extract.page import _parse

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler")

OTHERS = ("noscript", "b", "o:p", "P")
PIECES = [
    *(
        f"<{name}>".encode()
        for name in (*text.BLOCKS, *text.INVISIBLE, "noscript", "b", "o:p", "P")
    ),
    *(f"</{name}>".encode() for name in (*text.BLOCKS[:20], *text.INVISIBLE, "noscript", "b")),
    *(b" ", b"  ", b"\n\t", b"\r", b"\x0b", b"\x0c", b"\x1f", b"\xc2\xa0", b"&nbsp;", b"\x00"),
    *(b"a", b"word", b"seven b", b"several words in a row ", "中文　字".encode(), "¡¢".encode()),
    *(b"\xff", b"\xc2", b"\xed\xa0\x80", b"&#xD800;", b"&#0;", b"&#12;", b"<!-- c -->", b"<?p?>"),
]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    folder = tmp_path_factory.mktemp("compiled")
    assert compile(folder) == ""
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
def test_it_reads_what_the_style_sheet_reads(compiled: ModuleType, pieces: list[bytes]) -> None:
    root = _parse(b"<html><body>" + b"".join(pieces))
    assert root is not None
    found = compiled.visible(root, False) or compiled.visible(root, True)
    assert found == text.by_stylesheet(root)


@needs_compiler
def test_depth_and_length_have_no_end(compiled: ModuleType) -> None:
    deep = _parse(b"<div>x " * 200_000)
    assert deep is not None
    assert compiled.visible(deep, False) == text.by_stylesheet(deep)
    wide = _parse(b"<p>some words " * 200_000)
    assert compiled.visible(wide, False) == "some words " * 199_999 + "some words"


@needs_compiler
def test_it_takes_elements_only(compiled: ModuleType) -> None:
    for wrong in (None, "text", 7, object()):
        with pytest.raises(TypeError):
            compiled.visible(wrong, False)
    with pytest.raises(TypeError):
        compiled.visible(etree.Element("p"))


@needs_compiler
def test_only_what_was_made_of_the_same_is_used(compiled: ModuleType) -> None:
    assert speedups.load(text.BLOCKS, text.INVISIBLE) is compiled
    assert speedups.load((*text.BLOCKS, "marquee"), text.INVISIBLE) is None


def test_without_a_compiler_it_says_what_to_do(
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
