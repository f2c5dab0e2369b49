"""Encodings: html5lib's cases of what documents declare, and chardet's files of text.

For a case of html5lib, the encoding is compared. If nothing is declared and all is ASCII, UTF-8 is
right as well, since it reads the same. For a file, the text is compared: it is right if 98 % of its
characters are. Each file is read twice: with its declarations, and without them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import cchardet
import chardet
import chardetng_py
import charset_normalizer
import html5lib
import w3lib.encoding
import webencodings

from bench.suites.table import Figure, tried
from greencrawl.schema.text.encodings import decode
from greencrawl.worker.extract.charset import sniff

CASES_LEAST, WEB_LEAST, ALL_LEAST = 78, 186, 200
SAME = 0.98

_CASE = re.compile(rb"(?:^|\n)#data\n(.*?)\n#encoding\n([^\n]*)", re.DOTALL)
_DECLARED = re.compile(rb"encoding=[\"'][\w-]+[\"']|charset=[\"']?[\w-]+|Expect:[^\n]*")
_FOLDER = re.compile(r"iso-\d+-(?:jp|kr|\d+)|windows-\d+|[\w-]+", re.ASCII)

# The codecs of Python for the names of folders, or of detectors.
_CODECS = {
    "ascii": "cp1252",
    "big5": "big5hkscs",
    "euc-kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "iso-8859-1": "cp1252",
    "iso-8859-11": "cp874",
    "maccyrillic": "mac_cyrillic",
    "shift_jis": "cp932",
    "tis-620": "cp874",
    "uhc": "cp949",
    "windows-31j": "cp932",
    "windows-874": "cp874",
    "x-mac-cyrillic": "mac_cyrillic",
}
_NOT_OF_THE_WEB = ("IBM855", "Johab", "UTF-32BE", "UTF-32LE", "iso-2022-kr")


class Case(NamedTuple):
    """A document and its encoding by the standard's name."""

    data: bytes
    encoding: str


class File(NamedTuple):
    """A text: its bytes, and its content; ``body`` are the bytes that are judged."""

    name: str
    raw: bytes
    body: bytes
    text: str


def _codec(name: str) -> str:
    return _CODECS.get(name.lower(), name)


def cases(folder: Path) -> list[Case]:
    """Return html5lib's cases."""
    raw = b"\n".join((folder / f"{name}.dat").read_bytes() for name in ("tests1", "tests2"))
    return [
        Case(data, webencodings.lookup(name.decode().strip()).name)
        for data, name in _CASE.findall(raw.replace(b"\n\n#data", b"\n\n\n#data"))
    ]


def files(folder: Path, *, declared: bool) -> list[File]:
    """Return chardet's files, by folder."""
    found = []
    for path in sorted(folder.glob("*/*")):
        raw = path.read_bytes()
        codec = _FOLDER.match(path.parent.name.lower())
        assert codec is not None
        text = raw.decode(_codec(codec[0]), "replace").lstrip("\ufeff")
        name = f"{path.parent.name}/{path.name}"
        found.append(File(name, raw, raw if declared else _DECLARED.sub(b"", raw), text))
    return found


def _same(text: str, wanted: str) -> bool:
    if abs(len(text) - len(wanted)) > (1 - SAME) * len(wanted):
        return False
    return sum(map(str.__eq__, text, wanted)) >= SAME * max(len(text), len(wanted))


def _by_codec(detect: Callable[[bytes], str | None]) -> Callable[[File], bool]:
    """Return a test of a library's result for a file, decoded by Python's codec of that name."""

    def right(file: File) -> bool:
        codec = _codec(detect(file.body) or "utf-8")
        return _same(file.raw.decode(codec, "replace").lstrip("\ufeff"), file.text)

    return right


def _ours(file: File) -> bool:
    encoding, skipped = sniff(file.body)
    return _same(decode(file.raw[skipped:], encoding).lstrip("\ufeff"), file.text)


def _chardet(body: bytes) -> str | None:
    return chardet.detect(body, max_bytes=max(1, len(body)))["encoding"]


def _chardetng(body: bytes) -> str | None:
    return str(chardetng_py.detect(body, allow_utf8=True))


def _cchardet(body: bytes) -> str | None:
    found = cchardet.detect(body)["encoding"]
    return None if found is None else str(found)


def _normalizer(body: bytes) -> str | None:
    found = charset_normalizer.detect(body)["encoding"]
    return None if found is None else str(found)


_DETECTORS = {
    "chardet": _chardet,
    "charset-normalizer": _normalizer,
    "chardetng-py": _chardetng,
    "faust-cchardet": _cchardet,
}


def _is(case: Case, label: str | None) -> bool:
    found = None if label is None else webencodings.lookup(label)
    name = "windows-1252" if found is None else found.name
    usual = name == "utf-8" and case.data.isascii() and case.encoding == "windows-1252"
    return name == case.encoding or usual


def _html5lib(case: Case) -> bool:
    parser = html5lib.HTMLParser()
    parser.parse(case.data, useChardet=False)
    return _is(case, parser.documentEncoding)


def _w3lib(case: Case) -> bool:
    return _is(case, w3lib.encoding.html_to_unicode(None, case.data)[0])


def figures(folder: Path) -> list[Figure]:
    """Return the figures of html5lib's cases, of the files in encodings of the web, and of all
    files; print the costs."""
    found = [
        tried(
            "html5lib's cases",
            cases(folder / "html5lib-encoding"),
            lambda case: _is(case, sniff(case.data)[0]),
            {"html5lib": _html5lib, "w3lib": _w3lib},
            CASES_LEAST,
        )
    ]
    others = {name: _by_codec(detect) for name, detect in _DETECTORS.items()}
    for declared, how in ((True, ""), (False, ", undeclared")):
        every = files(folder / "charsets", declared=declared)
        web = [file for file in every if not file.name.startswith(_NOT_OF_THE_WEB)]
        for title, least, some in (
            (f"charsets of the web{how}", WEB_LEAST, web),
            (f"charsets{how}", ALL_LEAST, every),
        ):
            found.append(tried(title, some, _ours, others, least, lambda file: file.name))
    _tell_cost(every)
    return found


def _tell_cost(every: list[File]) -> None:
    ours = {"ours": lambda body: sniff(body)[0]}
    for name, detect in {**ours, **_DETECTORS}.items():
        began = time.process_time()
        for file in every:
            detect(file.body)
        took = 1000 * (time.process_time() - began) / len(every)
        print(f"{name}: {took:.2f} ms of CPU a file that declares nothing")
    print()
