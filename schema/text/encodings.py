"""Legacy character encodings as the web uses them: the labels of https://encoding.spec.whatwg.org,
the decoding of pages, and the encoding of a URL's query in the encoding of its page.
"""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Callable
from functools import lru_cache

import webencodings

Encode = Callable[[str], bytes]

# Where the standard's indexes differ from Python's codecs: bytes of the first character of a run.
_BIG5_INDEX = {
    0xA145: "‧", 0xA14E: "﹑", 0xA1C2: "¯", 0xA1E3: "～", 0xA1F2: "⊕⊙", 0xA1FE: "／",
    0xA240: "＼", 0xA241: "∕", 0xA242: "﹨", 0xA244: "￥", 0xA246: "￠￡", 0xA27E: "╭",
    0xA2A1: "╮╰╯", 0xA3C0: "".join(map(chr, range(0x2400, 0x2420))) + "␡€", 0xC6CF: "廴",
    0xC6D3: "无", 0xC6D5: "癶", 0xC6D7: "隶", 0xC6DF: "仝", 0xFB48: "嘅", 0xFBF9: "廐",
    0xFC6C: "悤", 0xFE52: "猪",
}  # fmt: skip
_BIG5_LACKS = frozenset("¢£¥‾∼☉♁､•")
_GB18030_INDEX = {
    0xA6D9: "︐︒︑︓︔︕︖", 0xA6EC: "︗︘", 0xA6F3: "︙", 0xFE59: "龴", 0xFE61: "龵",
    0xFE66: "龶龷", 0xFE6D: "龸", 0xFE7E: "龹", 0xFE90: "龺", 0xFEA0: "龻",
}  # fmt: skip
_KOI8_U_INDEX = {0xAE: "ў", 0xBE: "Ў"}
_KOI8_U_LACKS = frozenset("╝╬")
# The standard and Python's codec (GB 18030-2005) have these two exchanged.
_GB18030_2005 = {0x1E3F: 0xE7C7, 0xE7C7: 0x1E3F}

# The special-query percent-encode set, https://url.spec.whatwg.org/#special-query-percent-encode-set
_QUERY_BYTES = tuple(
    f"%{byte:02X}" if byte <= 0x20 or byte >= 0x7F or byte in b"\"#<>'" else chr(byte)
    for byte in range(256)
)

# Encodings that the standard lacks. A page cannot declare such an encoding, but may be found to use
# it.
_BEYOND = {
    "ibm855": "cp855",
    "iso-2022-kr": "iso2022_kr",
    "johab": "johab",
    "utf-32be": "utf-32-be",
    "utf-32le": "utf-32-le",
}

_FORM_BYTES = tuple(
    chr(byte) if chr(byte).isascii() and (chr(byte).isalnum() or byte in b"*-._")
    else "+" if byte == 0x20 else f"%{byte:02X}"
    for byte in range(256)
)  # fmt: skip


@lru_cache(maxsize=1024)
def standard_name(label: str) -> str | None:
    """Return the Encoding standard's lower-case name of a label ("GB2312" → "gbk"), or None."""
    found = webencodings.lookup(label)
    return None if found is None else str(found.name)


def decode(body: bytes, name: str) -> str:
    """Decode by a standard name; invalid bytes become U+FFFD, nothing is cut off.

    "replacement" (encodings that the standard withdrew as unsafe) gives a single U+FFFD. A byte
    order mark is not removed.
    """
    if name == "replacement":
        return "\N{REPLACEMENT CHARACTER}" if body else ""
    if name in ("gbk", "gb18030"):
        return body.decode("gb18030", _GB18030_ERRORS).translate(_decoding("gb18030"))
    if name == "big5":
        return body.decode("big5hkscs", _BIG5_ERRORS).translate(_decoding("big5hkscs"))
    if name == "euc-jp":
        return body.decode("euc_jp", _EUC_JP_ERRORS).translate(_decoding("euc_jp"))
    if name in _BEYOND:
        return body.decode(_BEYOND[name], "replace")
    codec = webencodings.lookup(name).codec_info
    if name.startswith("windows-"):
        return str(codec.decode(body, _WINDOWS_ERRORS)[0])
    text = str(codec.decode(body, "replace")[0])
    return text.translate(_decoding("koi8_u")) if name == "koi8-u" else text


@lru_cache(maxsize=8)
def _decoding(codec: str) -> dict[int, int]:
    """Return the characters that ``codec`` decodes otherwise than the standard → the standard's."""
    if codec == "euc_jp":
        return {0x301C: 0xFF5E, 0x2016: 0x2225, 0x2212: 0xFF0D, 0xA2: 0xFFE0, 0xA3: 0xFFE1,
                0xAC: 0xFFE2}  # fmt: skip
    index = {"big5hkscs": _BIG5, "gb18030": _GB18030, "koi8_u": _KOI8_U}[codec]
    pairs = [(raw.decode(codec, "replace"), character) for character, raw in index.items()]
    # some characters stand for two codes in the codec
    right = {theirs for theirs, ours in pairs if theirs == ours}
    # Python's codec lacks some characters: they appear as two here, or as U+FFFD; see
    # _missing_big5.
    table = {
        ord(theirs): ord(ours)
        for theirs, ours in pairs
        if len(theirs) == 1 and theirs not in right and theirs != "\N{REPLACEMENT CHARACTER}"
    }
    return table | _GB18030_2005 | {0xE5E5: 0x3000} if codec == "gb18030" else table


def _index(runs: dict[int, str]) -> dict[str, bytes]:
    """Return the bytes of each character, for runs of characters that begin at given bytes."""
    return {
        character: (first + step).to_bytes(2 if first > 0xFF else 1)
        for first, characters in runs.items()
        for step, character in enumerate(characters)
    }


_BIG5, _GB18030 = _index(_BIG5_INDEX), _index(_GB18030_INDEX)
_KOI8_U = _index(_KOI8_U_INDEX)
_BIG5_PAIRS = {raw: character for character, raw in _BIG5.items()}


def _lone_euro(error: UnicodeError) -> tuple[str, int]:
    """Read a lead byte 0x80 as the euro sign, as the standard's GB18030 decoder does."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    if error.object[error.start] == 0x80:
        return "€", error.start + 1
    return "\N{REPLACEMENT CHARACTER}", error.end


def _open_byte(error: UnicodeError) -> tuple[str, int]:
    """Decode bytes that a Windows code page leaves open to control characters, like the standard.

    This matters if a page in UTF-8 is declared as another encoding: its queries stay correct.
    """
    if not isinstance(error, UnicodeDecodeError):
        raise error
    byte = error.object[error.start]
    if byte == 0xCA:  # open in Python's windows-1255 only
        return "\N{HEBREW POINT HOLAM HASER FOR VAV}", error.start + 1
    return chr(byte) if byte < 0xA0 else "\N{REPLACEMENT CHARACTER}", error.start + 1


def _missing_big5(error: UnicodeError) -> tuple[str, int]:
    """Return what the standard's Big5 has and Python's codec lacks."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    found = _BIG5_PAIRS.get(error.object[error.start : error.start + 2])
    return (found, error.start + 2) if found else ("\N{REPLACEMENT CHARACTER}", error.end)


def _missing_euc_jp(error: UnicodeError) -> tuple[str, int]:
    """Return NEC's and IBM's characters (① ㈱ 髙 …), which Python's codec lacks."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    found = _euc_jp_pairs().get(error.object[error.start : error.start + 2])
    return (found, error.start + 2) if found else ("\N{REPLACEMENT CHARACTER}", error.end)


_GB18030_ERRORS = "greencrawl.gb18030"
_WINDOWS_ERRORS = "greencrawl.windows"
_BIG5_ERRORS = "greencrawl.big5"
_EUC_JP_ERRORS = "greencrawl.euc-jp"
codecs.register_error(_GB18030_ERRORS, _lone_euro)
codecs.register_error(_WINDOWS_ERRORS, _open_byte)
codecs.register_error(_BIG5_ERRORS, _missing_big5)
codecs.register_error(_EUC_JP_ERRORS, _missing_euc_jp)


@lru_cache(maxsize=1)
def _jis0208() -> dict[int, str]:
    """Return the standard's index jis0208, pointer → character: Microsoft's without its EUDC.

    https://encoding.spec.whatwg.org/#index-jis0208
    """
    found: dict[int, str] = {}
    for pointer in range(11_280):
        if 8836 <= pointer < 10_716:
            continue
        lead, trail = divmod(pointer, 188)
        raw = bytes((lead + (0x81 if lead < 31 else 0xC1), trail + (0x40 if trail < 63 else 0x41)))
        try:
            found[pointer] = raw.decode("cp932")
        except UnicodeDecodeError:
            continue  # not every pointer has a character
    return found


@lru_cache(maxsize=1)
def _euc_jp_pairs() -> dict[bytes, str]:
    """Return the two bytes of each character of jis0208 in EUC-JP → the character."""
    return {
        bytes((pointer // 94 + 0xA1, pointer % 94 + 0xA1)): character
        for pointer, character in _jis0208().items()
        if pointer < 94 * 94
    }


@lru_cache(maxsize=2)
def _jis_pointers(*, shift_jis: bool) -> dict[str, int]:
    """Return character → first pointer; Shift_JIS does not use NEC's copies of IBM's characters."""
    pointers: dict[str, int] = {}
    for pointer, character in _jis0208().items():
        if not (shift_jis and 8272 <= pointer < 8836):
            pointers.setdefault(character, pointer)
    return pointers


def _jis_pointer(character: str, encoding: str) -> int:
    """Return the pointer of a character. Raises UnicodeEncodeError if the index lacks it."""
    pointers = _jis_pointers(shift_jis=encoding == "shift_jis")
    pointer = pointers.get("－" if character == "−" else character)
    if pointer is None:
        raise UnicodeEncodeError(encoding, character, 0, 1, "not in jis0208")
    return pointer


def encode_query(query: str, encoding: str) -> str:
    """Percent-encode a query after encoding it in ``encoding`` (any label; unknown ones: UTF-8).

    Characters that the encoding lacks become ``%26%23NNNN%3B``, a numeric reference. UTF-16 and
    "replacement" encode as UTF-8. Percent signs stay as they are.
    https://url.spec.whatwg.org/#string-percent-encode-after-encoding
    """
    raw = _encoded(query, encoding, "%26%23{}%3B")
    return "".join(map(_QUERY_BYTES.__getitem__, raw))


def encode_text(text: str, encoding: str) -> bytes:
    """Encode ``text`` in ``encoding`` (any label) as a form sends it.

    Characters that the encoding lacks become ``&#NNNN;``. UTF-16 and "replacement" encode as UTF-8.
    https://encoding.spec.whatwg.org/#encode-or-fail with the error mode "html"
    """
    return _encoded(text, encoding, "&#{};")


def encode_form(text: str, encoding: str) -> str:
    """Encode a name or value of application/x-www-form-urlencoded, in ``encoding`` (any label).

    https://url.spec.whatwg.org/#application-x-www-form-urlencoded-percent-encode-set
    """
    return "".join(map(_FORM_BYTES.__getitem__, encode_text(text, encoding)))


def _encoded(text: str, encoding: str, lacking: str) -> bytes:
    """Encode ``text``; ``lacking`` makes what stands for a character that the encoding lacks."""
    encode = _encoder(standard_name(encoding) or "utf-8")
    raw = bytearray()
    for character in text:
        try:
            raw += encode(character)
        except UnicodeEncodeError:
            number = 0xFFFD if character in "\x0e\x0f\x1b" else ord(character)  # only ISO-2022-JP
            raw += encode(lacking.format(number))
    raw += encode("")
    return bytes(raw)


def _encoder(name: str) -> Encode:
    """Return a function that encodes one character after another; "" ends the text."""
    if name == "iso-2022-jp":  # the one encoding with a state
        return _Iso2022Jp().encode
    if name == "replacement" or name.startswith("utf-"):
        return lambda text: text.encode("utf-8", "replace")
    if name in _ENCODERS:
        return _by_characters(_ENCODERS[name])
    codec = webencodings.lookup(name).codec_info
    if name.startswith("windows-"):
        added = _open_characters(name)
        return lambda text: added.get(text) or bytes(codec.encode(text)[0])
    return lambda text: bytes(codec.encode(text)[0])


@lru_cache(maxsize=16)
def _open_characters(name: str) -> dict[str, bytes]:
    """Return the standard's characters where Python's Windows code page is open; see _open_byte."""
    codec = webencodings.lookup(name).codec_info
    added: dict[str, bytes] = {}
    for byte in (*range(0x80, 0xA0), 0xCA):
        raw = bytes((byte,))
        if codec.decode(raw, "ignore")[0] == "":
            added[codec.decode(raw, _WINDOWS_ERRORS)[0]] = raw
    return added


def _by_characters(encode: Encode) -> Encode:
    """Return an encoder that keeps ASCII and calls ``encode`` for all other characters."""

    def encoded(text: str) -> bytes:
        if text.isascii():
            return text.encode()
        return b"".join(c.encode() if c.isascii() else encode(c) for c in text)

    return encoded


class _Iso2022Jp:
    """The standard's ISO-2022-JP encoder, which escapes from one character set to another."""

    _ASCII, _ROMAN, _JIS0208 = b"\x1b(B", b"\x1b(J", b"\x1b$B"

    def __init__(self) -> None:
        self._state = self._ASCII

    def encode(self, text: str) -> bytes:
        """Encode the next characters; "" returns to ASCII, which ends the text."""
        if not text:
            return self._to(self._ASCII)
        return b"".join(map(self._one, text))

    def _to(self, state: bytes) -> bytes:
        escape = b"" if state == self._state else state
        self._state = state
        return escape

    def _one(self, character: str) -> bytes:
        if character in "\x0e\x0f\x1b":
            raise UnicodeEncodeError("iso-2022-jp", character, 0, 1, "would be an escape")
        if character.isascii():
            roman = self._state == self._ROMAN and character not in "\\~"
            return (b"" if roman else self._to(self._ASCII)) + character.encode()
        if character in "¥‾":
            return self._to(self._ROMAN) + (b"\\" if character == "¥" else b"~")
        if "｡" <= character <= "ﾟ":
            character = unicodedata.normalize("NFKC", character)
            character = {"\u3099": "゛", "\u309a": "゜"}.get(character, character)
        lead, trail = divmod(_jis_pointer(character, "iso-2022-jp"), 94)
        return self._to(self._JIS0208) + bytes((lead + 0x21, trail + 0x21))


def _gb18030(text: str) -> bytes:
    if text == "\ue5e5":  # twice in GB18030: the standard refuses to encode it
        raise UnicodeEncodeError("gb18030", text, 0, 1, "ambiguous")
    return _GB18030.get(text) or text.translate(_GB18030_2005).encode("gb18030")


def _gbk(text: str) -> bytes:
    if text == "€":
        return b"\x80"
    raw = _gb18030(text)
    if len(raw) == 4:
        raise UnicodeEncodeError("gbk", text, 0, 1, "GBK has no four-byte characters")
    return raw


def _big5(text: str) -> bytes:
    if text in _BIG5:
        return _BIG5[text]
    raw = text.encode("big5hkscs")
    if raw[0] < 0xA1 or text in _BIG5_LACKS:  # the rest of HKSCS is decoded only
        raise UnicodeEncodeError("big5", text, 0, 1, "not in the standard's index")
    return raw


def _koi8_u(text: str) -> bytes:
    if text in _KOI8_U_LACKS:
        raise UnicodeEncodeError("koi8-u", text, 0, 1, "not in the standard's index")
    return _KOI8_U.get(text) or text.encode("koi8_u")


def _shift_jis(text: str) -> bytes:
    if text in "\x80¥‾":
        return {"¥": b"\\", "‾": b"~"}.get(text, b"\x80")
    if "｡" <= text <= "ﾟ":
        return bytes((ord(text) - 0xFF61 + 0xA1,))
    lead, trail = divmod(_jis_pointer(text, "shift_jis"), 188)
    return bytes((lead + (0x81 if lead < 31 else 0xC1), trail + (0x40 if trail < 63 else 0x41)))


def _euc_jp(text: str) -> bytes:
    if text in "¥‾":
        return b"\\" if text == "¥" else b"~"
    if "｡" <= text <= "ﾟ":
        return bytes((0x8E, ord(text) - 0xFF61 + 0xA1))
    lead, trail = divmod(_jis_pointer(text, "euc-jp"), 94)
    return bytes((lead + 0xA1, trail + 0xA1))


_ENCODERS: dict[str, Encode] = {
    "big5": _big5,
    "euc-jp": _euc_jp,
    "gb18030": _gb18030,
    "gbk": _gbk,
    "koi8-u": _koi8_u,
    "shift_jis": _shift_jis,
}
