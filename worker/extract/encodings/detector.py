"""The encoding of a text that declares none, from its bytes.

This module decides the certain cases. chardet decides between encodings that differ only in which
letters their bytes are (docs/decisions/0033-undeclared-encodings.md). chardet is loaded with the
first such page: it takes 30 MB and a tenth of a second, which few processes need.
"""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Callable
from functools import cache

from greencrawl.schema.text.encodings import decode

_SAMPLE_BYTES = 65_536
_WIDE_SAMPLE_BYTES = 4096
_JUDGED_BYTES = 1536
"""Bytes that are judged, around what is not ASCII: more costs time and decides no better."""
_MOST_BYTES = 3072

_ASCII_BYTES, _HIGH_BYTES = bytes(range(0x80)), bytes(range(0x80, 0x100))
_ESCAPE = re.compile(rb"\x1b\$[@B]|\x1b\([IJ]")
_ESCAPE_KR = b"\x1b$)C"
# Neither markup nor a control character can be the second byte of a character.
_STRETCH = re.compile(rb"[\x80-\xff][^<>\x00-\x1f]*+")
_BEFORE = 64

# The keys are chardet's names. No browser reads an encoding that the Encoding standard does not
# name: browsers read such pages in another encoding, as nonsense.
_NAMES = {
    "big5hkscs": "big5",
    "cp1250": "windows-1250",
    "cp1251": "windows-1251",
    "cp1252": "windows-1252",
    "cp1253": "windows-1253",
    "cp1254": "windows-1254",
    "cp1255": "windows-1255",
    "cp1256": "windows-1256",
    "cp1257": "windows-1257",
    "cp1258": "windows-1258",
    "cp855": "ibm855",
    "cp866": "ibm866",
    "cp874": "windows-874",
    "cp932": "shift_jis",
    "cp949": "euc-kr",
    "euc_jis_2004": "euc-jp",
    "euc_kr": "euc-kr",
    "gb18030": "gb18030",
    "iso8859-2": "iso-8859-2",
    "iso8859-4": "iso-8859-4",
    "iso8859-5": "iso-8859-5",
    "iso8859-6": "iso-8859-6",
    "iso8859-7": "iso-8859-7",
    "iso8859-8": "iso-8859-8",
    "iso8859-13": "iso-8859-13",
    "iso8859-16": "iso-8859-16",
    "johab": "johab",
    "koi8-r": "koi8-r",
    "koi8-u": "koi8-u",
    "mac-cyrillic": "x-mac-cyrillic",
    "mac-roman": "macintosh",
    "shift_jis_2004": "shift_jis",
}
_LATIN = frozenset(
    ("windows-1250", "windows-1252", "windows-1254", "windows-1257", "windows-1258", "iso-8859-2",
     "iso-8859-4", "iso-8859-13", "iso-8859-16", "macintosh")
)  # fmt: skip
# In these encodings the second byte of a character may be ASCII; then the first byte stands alone.
_HALF_ASCII = frozenset(("big5", "gb18030", "johab", "shift_jis"))
_RARE = frozenset(
    ("ibm855", "ibm866", "iso-8859-4", "iso-8859-5", "iso-8859-6", "iso-8859-8", "iso-8859-13",
     "iso-8859-16", "johab", "windows-1258")
)  # fmt: skip
# The fewer letters beyond ASCII a text has, the more a rare encoding loses, and the more the usual
# one gains.
_AGAINST_RARE, _FOR_USUAL = 16.0, 0.5
_FEW = 6
"""With fewer bytes beyond ASCII, one cannot see whether letters are side by side, or whether a
Macintosh encoding was used."""
_UNSURE, _LEAST = 0.3, 0.1
"""With a lower share than the first, perhaps the text has another encoding, in which a few bytes
are wrong; this other one has at least the second."""
_MULTIBYTE = {
    "gb18030": "gb18030", "big5": "big5hkscs", "euc-jp": "euc_jp", "shift_jis": "cp932",
    "euc-kr": "cp949",
}  # fmt: skip
"""Python's codecs of encodings in which most characters have two bytes or more."""
_PER_WRONG = 20
"""A text has at most one wrong place for this many bytes beyond ASCII."""
_HIGH_RUNS = re.compile(rb"[\x80-\xff]{2,}")

_Detect = Callable[[bytes], list[tuple[str, float, str]]]
"""Returns (chardet's name of an encoding, its score, the language); the best encoding comes
first."""


def guess(body: bytes) -> str:
    """Return the encoding of a page that declares none."""
    if body.isascii():
        return _of_ascii(body) if b"\x00" in body or b"\x1b" in body else "utf-8"
    try:
        # The body may be cut within a character, so the decoder is not told that it is the end.
        codecs.getincrementaldecoder("utf-8")().decode(body)
    except UnicodeDecodeError:
        return _of_wrong(body)
    return (_wide(body) if b"\x00" in body else None) or "utf-8"


def _of_ascii(body: bytes) -> str:
    sample = body[:_SAMPLE_BYTES]
    if _ESCAPE.search(sample) and "\N{REPLACEMENT CHARACTER}" not in decode(sample, "iso-2022-jp"):
        return "iso-2022-jp"
    if _ESCAPE_KR in sample:
        return "iso-2022-kr"
    return _wide(body) or "utf-8"


def _of_wrong(body: bytes) -> str:
    """Return the encoding of a body that is not valid UTF-8 throughout."""
    if b"\x00" in body and (wide := _wide(body)):
        return wide
    sample = body[:_SAMPLE_BYTES]
    if sample.isascii():  # the bytes that matter come late
        at = len(body) - len(body.lstrip(_ASCII_BYTES))
        sample = body[at : at + _SAMPLE_BYTES]
    high = _high(sample)
    wrong = sample.decode("utf-8", "replace").count("\N{REPLACEMENT CHARACTER}")
    # In any other encoding most high bytes are no UTF-8.
    if wrong * 4 <= high:
        return "utf-8"
    return _of_text(_condensed(sample))


def _of_text(text: bytes) -> str:
    """Return the encoding of a text in which a few bytes may be wrong.

    chardet leaves out each encoding in which one byte is wrong. Then no other encoding gets a high
    score, and chardet is asked again without the wrong bytes.
    """
    found, share = _judged(text)
    if share >= _UNSURE:
        return found
    most = share if found in _MULTIBYTE else _LEAST
    text = text[:_MOST_BYTES]  # chardet reads no more
    for name, codec in _MULTIBYTE.items():
        if name != found and (whole := _without_wrong(text, codec)):
            other, share = _judged(whole)
            if other == name and share > most:
                found, most = name, share
    return found


def _without_wrong(text: bytes, codec: str) -> bytes | None:
    """Return a text without the bytes that are wrong in an encoding; None if there are none, or too
    many."""
    parts: list[bytes] = []
    at = 0
    while True:
        try:
            text[at:].decode(codec)
        except UnicodeDecodeError as error:
            parts.append(text[at : at + error.start])
            at += error.end
            if (len(parts) - 3) * _PER_WRONG > at:  # too many, even if no byte so far is ASCII
                return None
        else:
            break
    whole = b"".join((*parts, text[at:]))
    return whole if 0 < len(parts) * _PER_WRONG <= _high(whole) else None


def _high(text: bytes) -> int:
    """Return the number of bytes beyond ASCII."""
    return len(text) - len(text.translate(None, _HIGH_BYTES))


def _judged(text: bytes) -> tuple[str, float]:
    """Return the most likely encoding, considering how frequent encodings are on the web, and how
    much speaks for it."""
    high = _high(text)
    together = high >= _FEW and sum(map(len, _HIGH_RUNS.findall(text))) * 2 >= high
    best, most, icelandic = "windows-1252", 0.0, False
    for theirs, share, language in _detect()(text):
        name = _NAMES.get(theirs, "windows-1252")
        if not (together or name in _LATIN or name in _HALF_ASCII):
            continue  # most letters beyond ASCII stand alone in Latin texts only
        if name == "windows-1252":
            share *= 1 + _FOR_USUAL / high
            icelandic = language == "is"
        elif name in _RARE or (name == "macintosh" and high < _FEW):
            share /= 1 + _AGAINST_RARE / high
        elif name == "windows-1254" and icelandic and share * 1.02 > most:
            share = most * 1.02  # six letters differ, and Turkish is more frequent
        if share > most:
            best, most = name, share
    # If both read the same, the usual one counts.
    same = best in _LATIN and decode(text, best) == decode(text, "windows-1252")
    return "windows-1252" if same else best, most


def _wide(body: bytes) -> str | None:
    """Return UTF-16 or UTF-32, by the zero bytes of ASCII letters."""
    sample = body[: min(_WIDE_SAMPLE_BYTES, len(body) // 4 * 4)]
    zeros = [sample[at::4].count(0) for at in range(4)]
    most = len(sample) // 4
    even, odd = zeros[0] + zeros[2], zeros[1] + zeros[3]
    if zeros[3] == most and zeros[0] * 2 < most and zeros[2] * 10 > 9 * most:
        name = "utf-32le"
    elif zeros[0] == most and zeros[3] * 2 < most and zeros[1] * 10 > 9 * most:
        name = "utf-32be"
    elif odd * 5 > most and even * 10 < odd:
        name = "utf-16le"
    elif even * 5 > most and odd * 10 < even:
        name = "utf-16be"
    else:
        return None
    wrong = decode(sample, name).count("\N{REPLACEMENT CHARACTER}")
    return name if wrong * 50 < most else None


def _condensed(sample: bytes) -> bytes:
    """Return the parts of text that are not ASCII, without markup, until there is enough."""
    stretches: list[bytes] = []
    total = end = 0
    for found in _STRETCH.finditer(sample):
        start = max(end, found.start() - _BEFORE)
        before = sample[start : found.start()]
        words = before[max(before.rfind(b">"), before.rfind(b"\n")) + 1 :]
        stretches += (words, found[0], b"\n")
        end = found.end()
        total += len(words) + len(found[0])
        if total >= _JUDGED_BYTES:
            break
    return b"".join(stretches)


@cache
def _detect() -> _Detect:
    """Return chardet, limited to the encodings of the web.

    If gevent is in use, it is loaded in a thread of its own, so that it does not count against the
    page.
    """
    loaded: list[_Detect] = []
    gevent = sys.modules.get("gevent.monkey")
    if gevent is None:
        return _loaded()
    done = gevent.get_original("_thread", "allocate_lock")()
    done.acquire()

    def load() -> None:
        try:
            loaded.append(_loaded())
        finally:
            done.release()

    gevent.get_original("_thread", "start_new_thread")(load, ())
    done.acquire()
    return loaded[0]


def _loaded() -> _Detect:
    import chardet  # here, since most processes never need it

    def detect(text: bytes) -> list[tuple[str, float, str]]:
        told = chardet.detect_all(
            text,
            include_encodings=_NAMES,
            compat_names=False,
            ignore_threshold=True,
            max_bytes=_MOST_BYTES,
        )
        return [(one["encoding"] or "", one["confidence"], one["language"] or "") for one in told]

    detect("Größe".encode("cp1252") * 4)  # it reads its tables with the first text
    return detect
