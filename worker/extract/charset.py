"""Which encoding a page is in, as browsers decide it, and its text.

The order is that of https://html.spec.whatwg.org/#determining-the-character-encoding: byte order
mark, HTTP header, ``meta`` in the first 1024 bytes (or an XML declaration). A page that declares
nothing is UTF-8 if it is valid UTF-8; else its bytes are weighed, since many older Chinese,
Japanese, Korean and Russian sites declare nothing; what is left is windows-1252.
"""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from greencrawl.schema.text.encodings import decode, standard_name

_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16le"), (b"\xfe\xff", "utf-16be"))

_HEADER = re.compile(r";\s*charset\s*=\s*[\"']?\s*([^\s\"';]+)", re.IGNORECASE)
_META = re.compile(
    rb"<meta\s[^>]*?\bcharset\s*=\s*[\"']?\s*([A-Za-z0-9][A-Za-z0-9_.:+-]*)", re.IGNORECASE
)
_XML = re.compile(rb"\s*<\?xml\s[^>]*?encoding\s*=\s*[\"']([A-Za-z0-9][A-Za-z0-9_.:+-]*)")
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)

_PRESCAN_BYTES = 1024
_SAMPLE_BYTES = 65_536


def sniff(body: bytes, content_type: str | None = None) -> tuple[str, int]:
    """The encoding's standard name, and the length of a byte order mark to skip."""
    for mark, name in _BOMS:
        if body.startswith(mark):
            return name, len(mark)
    found = _HEADER.search(content_type) if content_type else None
    if found:
        declared = standard_name(found[1])
        if declared is not None:
            return declared, 0
    return _declared(body[:_PRESCAN_BYTES]) or guess(body), 0


def _declared(head: bytes) -> str | None:
    """The encoding that the document itself declares, if it is one that exists."""
    if b"<!--" in head:
        head = _COMMENT.sub(b"", head)
    for pattern in (_META, _XML):
        for found in pattern.finditer(head):
            name = standard_name(found[1].decode("ascii"))
            if name is None:
                continue
            if name.startswith("utf-16"):  # could not have been read as ASCII, were it true
                return "utf-8"
            return "windows-1252" if name == "x-user-defined" else name
    return None


def to_utf8(body: bytes, name: str) -> bytes:
    """The body as UTF-8; what is no character becomes U+FFFD, nothing is cut off.

    libxml2 stops at a byte that is invalid in a legacy encoding, and the rest of the page would be
    lost; so it is given UTF-8 only, in which it replaces wrong bytes (and NUL) itself.
    """
    return body if name == "utf-8" else decode(body, name).encode()


class _Candidate(NamedTuple):
    """An encoding, the characters that are frequent in its texts, and the share they need."""

    name: str
    frequent: re.Pattern[str]
    share: float


# The most frequent characters of running text. Read in a wrong encoding a text is close to random
# among thousands of characters, so that these come to a few per cent.
_CANDIDATES = tuple(
    _Candidate(name, re.compile(f"[{frequent}]"), share)
    for name, frequent, share in (
        ("shift_jis", "ぁ-んァ-ヶー、。", 0.30),
        ("euc-jp", "ぁ-んァ-ヶー、。", 0.30),
        ("gb18030", "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得"
         "于着下自之年过发后作里用道行所然家种事成方多经么去法学如都同现当没动面起看定天分还进好小"
         "部其些主样理心她本前开但因只从想实日网新站公首页司产品，。", 0.12),
        ("big5", "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得"
         "於著下自之年過發後作裡用道行所然家種事成方多經麼去法學如都同現當沒動面起看定天分還進好小"
         "部其些主樣理心她本前開但因只從想實日網新站公首頁司產品，。", 0.12),
        ("euc-kr", "이다는의에가을고하지로를은기한사어도리자그아나인시대서스일정과수있부해보제",
         0.25),
        ("windows-1251", "оеаинтсрвлк", 0.50),
        ("koi8-r", "оеаинтсрвлк", 0.50),
    )
)  # fmt: skip

_HIGH_RUNS = re.compile(rb"[\x80-\xff]{2,}")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def guess(body: bytes) -> str:
    """The encoding of a page that declares none."""
    sample = body[:_SAMPLE_BYTES]
    if sample.isascii() and (len(body) == len(sample) or body.isascii()):
        return "utf-8"
    try:
        # The sample may end within a character, so the decoder is not told that it is the end.
        codecs.getincrementaldecoder("utf-8")().decode(body)
        return "utf-8"
    except UnicodeDecodeError:
        pass  # one of the others, then
    high = len(sample) - len(sample.translate(None, _HIGH_BYTES))
    # Accented letters of Western texts stand alone; in all others most have a neighbour.
    if sum(map(len, _HIGH_RUNS.findall(sample))) * 2 < high:
        return "windows-1252"
    best, best_margin = "windows-1252", 0.0
    for candidate in _CANDIDATES:
        text = decode(sample, candidate.name)
        letters = len(_NOT_ASCII.findall(text))
        wrong = text.count("\N{REPLACEMENT CHARACTER}")
        if not letters or wrong * 20 > letters:
            continue
        margin = len(candidate.frequent.findall(text)) / letters / candidate.share
        if margin >= 1.0 and margin > best_margin:
            best, best_margin = candidate.name, margin
    return best


_HIGH_BYTES = bytes(range(0x80, 0x100))
