"""Legacy character encodings as the web uses them: the labels of https://encoding.spec.whatwg.org,
the decoding of pages, and the encoding of a URL's query in the encoding of its page.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from functools import lru_cache

import webencodings

Encode = Callable[[str], bytes]

# The standard has these two the other way round than Python's codec (GB 18030-2005).
_GB18030_2005 = {0x1E3F: 0xE7C7, 0xE7C7: 0x1E3F}

# The special-query percent-encode set, https://url.spec.whatwg.org/#special-query-percent-encode-set
_QUERY_BYTES = tuple(
    f"%{byte:02X}" if byte <= 0x20 or byte >= 0x7F or byte in b"\"#<>'" else chr(byte)
    for byte in range(256)
)


@lru_cache(maxsize=1024)
def standard_name(label: str) -> str | None:
    """The Encoding standard's lower-case name for a label ("GB2312" → "gbk"), None if unknown."""
    found = webencodings.lookup(label)
    return None if found is None else str(found.name)


def decode(body: bytes, name: str) -> str:
    """Decode by a standard name; what is no character becomes U+FFFD, nothing is cut off.

    "replacement" (encodings that the standard withdrew as unsafe) gives a single U+FFFD. A byte
    order mark is not removed.
    """
    if name == "replacement":
        return "\N{REPLACEMENT CHARACTER}" if body else ""
    if name in ("gbk", "gb18030"):
        return body.decode("gb18030", _GB18030_ERRORS)
    return str(webencodings.lookup(name).codec_info.decode(body, "replace")[0])


def _lone_euro(error: UnicodeError) -> tuple[str, int]:
    """The standard's GB18030 decoder reads a lead byte 0x80 as the euro sign, as Windows does."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    if error.object[error.start] == 0x80:
        return "€", error.start + 1
    return "\N{REPLACEMENT CHARACTER}", error.end


_GB18030_ERRORS = "greencrawl.gb18030"
codecs.register_error(_GB18030_ERRORS, _lone_euro)


def encode_query(query: str, encoding: str) -> str:
    """Percent-encode a query after encoding it in ``encoding`` (any label; unknown ones: UTF-8).

    Characters that the encoding lacks become ``%26%23NNNN%3B``, a numeric reference. UTF-16 and
    "replacement" encode as UTF-8. Percent signs stay as they are.
    https://url.spec.whatwg.org/#string-percent-encode-after-encoding
    """
    encode = _encoder(standard_name(encoding) or "utf-8")
    raw = bytearray()
    for character in query:
        try:
            raw += encode(character)
        except UnicodeEncodeError:
            raw += encode(f"%26%23{ord(character)}%3B")
    raw += encode("")
    return "".join(map(_QUERY_BYTES.__getitem__, raw))


def _encoder(name: str) -> Encode:
    """What encodes one character after the other; the empty string ends the text."""
    if name == "iso-2022-jp":  # the one encoding with a state
        encoder = codecs.getincrementalencoder("iso2022_jp")()
        return lambda text: encoder.encode(text, not text)
    if name == "replacement" or name.startswith("utf-"):
        return lambda text: text.encode("utf-8", "replace")
    if name in _ENCODERS:
        return _ENCODERS[name]
    codec = webencodings.lookup(name).codec_info
    return lambda text: bytes(codec.encode(text)[0])


def _gb18030(text: str) -> bytes:
    if text == "\ue5e5":  # twice in GB18030: the standard refuses to encode it
        raise UnicodeEncodeError("gb18030", text, 0, 1, "ambiguous")
    return text.translate(_GB18030_2005).encode("gb18030")


def _gbk(text: str) -> bytes:
    if text == "€":
        return b"\x80"
    raw = _gb18030(text)
    if len(text) == 1 and len(raw) == 4:
        raise UnicodeEncodeError("gbk", text, 0, 1, "GBK has no four-byte characters")
    return raw


def _big5(text: str) -> bytes:
    raw = text.encode("big5hkscs")
    if 0x80 < max(raw[:1], default=0) < 0xA1:  # HKSCS is only ever decoded
        raise UnicodeEncodeError("big5", text, 0, 1, "only in HKSCS")
    return raw


def _shift_jis(text: str) -> bytes:
    return text.replace("¥", "\\").replace("‾", "~").replace("−", "－").encode("cp932")


def _euc_jp(text: str) -> bytes:
    text = text.replace("¥", "\\").replace("‾", "~").replace("−", "－")
    try:
        return text.encode("euc_jp")
    except UnicodeEncodeError:
        raw = text.encode("euc_jis_2004")
        if raw[:1] != b"\xad":  # NEC's row 13 (① ㈱ …) is all the standard shares with it
            raise
        return raw


_ENCODERS: dict[str, Encode] = {
    "big5": _big5,
    "euc-jp": _euc_jp,
    "gb18030": _gb18030,
    "gbk": _gbk,
    "shift_jis": _shift_jis,
}
