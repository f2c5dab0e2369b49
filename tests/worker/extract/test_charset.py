"""The encoding of a page, declared or not; wrong bytes lose nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from greencrawl.worker.extract import extract
from greencrawl.worker.extract.charset import guess, sniff, to_utf8
from greencrawl.worker.extract.encodings import detector

URL = "https://example.org/"

CHINESE = "我们在这里说的是中国人的新闻网站，可以看到今天的新闻和大家的生活。" * 3
TRADITIONAL = "我們在這裡說的是中國人的新聞網站，可以看到今天的新聞和大家的生活。" * 3
JAPANESE = "これは日本語のページです。東京の天気と新しいニュースをお知らせします。" * 3
KOREAN = (
    "이 페이지는 한국어로 된 뉴스와 날씨를 알려 드리는 사이트입니다. 오늘은 서울의 날씨가 좋다." * 3
)
RUSSIAN = "Это страница на русском языке, где можно прочитать новости и узнать погоду." * 3
GERMAN = "Für Mädchen und Übermütige: schöne Grüße aus Österreich, daß es größer wäre." * 3
ITALIAN = "Perché così è la città più felice, là dove c'è libertà e verità." * 3


@pytest.mark.parametrize(
    ("body", "content_type", "name"),
    [
        (b"\xef\xbb\xbf<p>", "text/html; charset=gbk", "utf-8"),
        (b"\xff\xfe<\x00", "text/html; charset=gbk", "utf-16le"),
        (b"\xfe\xff\x00<", None, "utf-16be"),
        (b"<meta charset=big5>", "text/html; charset=GB2312", "gbk"),
        (b"<meta charset=big5>", 'text/html;charset="Shift_JIS"', "shift_jis"),
        (b"<meta charset=big5>", "text/html; charset=no-such", "big5"),
        (b"<meta charset=big5>", "text/html", "big5"),
        (b"<META CHARSET = 'EUC-KR'>", None, "euc-kr"),
        (b'<meta http-equiv=Content-Type content="text/html; charset=koi8-r">', None, "koi8-r"),
        (b"<!-- <meta charset=big5> --><meta charset=gbk>", None, "gbk"),
        (b"<meta charset=no-such><meta charset=gbk>", None, "gbk"),
        (b"<meta charset=utf-16>", None, "utf-8"),
        (b"<meta charset=x-user-defined>", None, "windows-1252"),
        (b"<meta charset=iso-8859-1>", None, "windows-1252"),
        (b'<?xml version="1.0" encoding="iso-8859-2"?><html>', None, "iso-8859-2"),
        (b" " * 1100 + b"<body><meta charset=gbk>", None, "utf-8"),
    ],
)
def test_declarations_count_in_the_order_of_the_standard(
    body: bytes, content_type: str | None, name: str
) -> None:
    assert sniff(body, content_type)[0] == name


@pytest.mark.parametrize(
    ("text", "codec", "name"),
    [
        (CHINESE, "gbk", "gb18030"),
        (TRADITIONAL, "big5", "big5"),
        (JAPANESE, "shift_jis", "shift_jis"),
        (JAPANESE, "euc_jp", "euc-jp"),
        (KOREAN, "euc_kr", "euc-kr"),
        (RUSSIAN, "cp1251", "windows-1251"),
        (RUSSIAN, "koi8_r", "koi8-r"),
        (GERMAN, "cp1252", "windows-1252"),
        (ITALIAN, "cp1252", "windows-1252"),
        ("only ASCII", "ascii", "utf-8"),
        *((text, "utf-8", "utf-8") for text in (CHINESE, JAPANESE, KOREAN, RUSSIAN, GERMAN)),
    ],
)
def test_undeclared_encoding_is_guessed_from_the_text(text: str, codec: str, name: str) -> None:
    body = f"<html><title>{text[:9]}</title><p class=x>{text}</p></html>".encode(codec)
    assert guess(body) == name
    assert extract(body, URL, "text/html").text == " ".join(text.split())


GREEK = "Αυτή είναι μια σελίδα στα ελληνικά με νέα και τον καιρό της ημέρας. " * 3
BULGARIAN = "Това е страница на български език, където се четат новини за времето. " * 3
UKRAINIAN = "Це сторінка українською мовою, де можна прочитати новини та дізнатися погоду. " * 3
HEBREW = "זה עמוד בעברית ובו חדשות היום ומזג האוויר של מחר בכל הארץ. " * 3
ARABIC = "هذه صفحة باللغة العربية فيها أخبار اليوم وحالة الطقس في المدينة. " * 3
THAI = "นี่คือหน้าเว็บภาษาไทยที่มีข่าวประจำวันและสภาพอากาศของวันนี้ " * 3
POLISH = "Zażółć gęślą jaźń: strona po polsku, gdzie można przeczytać wiadomości i pogodę. " * 3
CZECH = "Příliš žluťoučký kůň úpěl ďábelské ódy; stránka s českými zprávami a počasím. " * 3
HUNGARIAN = "Ez egy magyar nyelvű oldal, ahol híreket és időjárást olvashat; őszi fűszerek. " * 3
TURKISH = "Bu sayfa Türkçedir; günün haberlerini ve hava durumunu öğrenmek için güzeldir, şık. " * 3


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        (GREEK, "cp1253"),
        (BULGARIAN, "cp1251"),
        (UKRAINIAN, "koi8_u"),
        (RUSSIAN, "cp866"),
        (RUSSIAN, "iso8859_5"),
        (RUSSIAN, "mac_cyrillic"),
        (RUSSIAN, "cp855"),
        (GERMAN, "mac_roman"),
        (HEBREW, "cp1255"),
        (ARABIC, "cp1256"),
        (THAI, "cp874"),
        (POLISH, "cp1250"),
        (POLISH, "iso8859_2"),
        (CZECH, "cp1250"),
        (HUNGARIAN, "cp1250"),
        (TURKISH, "cp1254"),
        (KOREAN, "johab"),
        (JAPANESE, "iso2022_jp"),
        (KOREAN, "iso2022_kr"),
        *(
            (text, codec)
            for text in (GERMAN, RUSSIAN, CHINESE)
            for codec in ("utf_16_le", "utf_16_be", "utf_32_le", "utf_32_be")
        ),
    ],
)
def test_undeclared_encodings_of_the_whole_web_are_found(text: str, codec: str) -> None:
    body = f"<html><title>{text[:9]}</title><p class=x>{text}</p></html>".encode(codec)
    assert to_utf8(body, guess(body)).decode() == body.decode(codec)
    assert extract(body, URL, "text/html").text.endswith(" ".join(text.split()))


def test_encoding_of_undeclared_text_without_markup_is_found() -> None:
    for text, codec, name in (
        (RUSSIAN, "koi8_r", "koi8-r"),
        (CHINESE, "gbk", "gb18030"),
        (CHINESE * 30, "gbk", "gb18030"),
        (JAPANESE * 30, "euc_jp", "euc-jp"),
        (JAPANESE * 30, "cp932", "shift_jis"),
    ):
        assert guess(text.encode(codec)) == name
        assert guess(b"<!-- -->" * 9000 + text.encode(codec)) == name


@pytest.mark.parametrize("text", [GERMAN, ITALIAN, RUSSIAN, CHINESE, "é" * 4], ids=ascii)
@pytest.mark.parametrize("wrong", [b"\xff", b"\xe9", b"\xc3", b"\x80", b"\xe4\xb8"])
def test_one_wrong_byte_does_not_make_utf8_something_else(text: str, wrong: bytes) -> None:
    raw = text.encode()
    for at in (0, len(raw) // 2, len(raw)):
        body = b"<p>" + raw[:at] + wrong + b" " + raw[at:]
        assert guess(body) == "utf-8"


MULTIBYTE = [
    (CHINESE, "gb18030", "gb18030"),
    (TRADITIONAL, "big5", "big5"),
    (JAPANESE, "euc_jp", "euc-jp"),
    (JAPANESE, "cp932", "shift_jis"),
    (KOREAN, "cp949", "euc-kr"),
]
SINGLE_BYTE = [
    (RUSSIAN, "koi8_r", "koi8-r"),
    (RUSSIAN, "cp1251", "windows-1251"),
    (UKRAINIAN, "koi8_u", "koi8-u"),
    (POLISH, "iso8859_2", "iso-8859-2"),
    (GERMAN, "cp1252", "windows-1252"),
    (ITALIAN, "cp1252", "windows-1252"),
    (GREEK, "cp1253", "windows-1253"),
    (ARABIC, "cp1256", "windows-1256"),
    (THAI, "cp874", "windows-874"),
]


def with_strays(text: str, codec: str) -> Iterator[bytes]:
    """Return the text of a page with one byte too many, or one too few, at many places."""
    raw = f"<p>{text}</p>\n<p class=b>{text}</p>".encode(codec)
    for at in range(3, len(raw) - 3, len(raw) // 23):
        yield from (raw[:at] + wrong + raw[at:] for wrong in (b"\xff", b"\x80", b"\xb0", b"\xe9"))
        if raw[at] > 0x7F:
            yield raw[:at] + raw[at + 1 :]


@pytest.mark.parametrize(("text", "codec", "name"), MULTIBYTE)
def test_one_wrong_byte_does_not_make_an_asian_text_something_else(
    text: str, codec: str, name: str
) -> None:
    assert {guess(body) for body in with_strays(text, codec)} == {name}


@pytest.mark.parametrize(("text", "codec", "name"), SINGLE_BYTE)
def test_one_wrong_byte_makes_no_text_an_asian_one(text: str, codec: str, name: str) -> None:
    found = {guess(body) for body in with_strays(text, codec)}
    assert name in found
    assert not found & {asian for _, _, asian in MULTIBYTE}


def test_a_short_russian_text_of_a_macintosh_is_no_japanese_one() -> None:
    assert guess("ДРУГА ДРУГА СОВЕСТЬЮ ВСЕМИ".encode("mac_cyrillic")) == "x-mac-cyrillic"


def test_an_encoding_for_which_much_speaks_is_asked_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, detect = list[bytes](), detector._detect()

    def noted(text: bytes) -> list[tuple[str, float, str]]:
        asked.append(text)
        return detect(text)

    monkeypatch.setattr(detector, "_detect", lambda: noted)
    for text, codec, _ in [*MULTIBYTE, *SINGLE_BYTE]:
        guess(f"<p>{text}".encode(codec))
    assert len(asked) == len(MULTIBYTE) + len(SINGLE_BYTE)


def test_text_with_few_accents_is_guessed_as_windows_1252() -> None:
    for text in ("Café", "Größe", "© 2026 Müller", "à la carte", "piñata", "50 € – «é»"):
        assert guess(f"<p>{text}</p>".encode("cp1252")) == "windows-1252", text


def test_binary_body_can_be_decoded_by_the_guessed_encoding() -> None:
    for body in (b"\x00", b"\xff\x00", bytes(range(256)) * 9, b"\x89PNG\r\n\x1a\n\x00\x00\xff" * 99,
                 b"\x1b$B", b"\x1b", b"\xff" * 5000, b"\x81" * 5000, b"\x00" * 99):  # fmt: skip
        assert isinstance(to_utf8(body, guess(body)).decode(), str)


def test_queries_of_an_encoding_that_the_standard_lacks_are_sent_in_utf8() -> None:
    page = extract(f"<p>{RUSSIAN}<a href='/?q=да'>x".encode("cp855"), URL, "text/html")
    assert page.encoding == "ibm855"
    assert [link.url for link in page.links] == ["https://example.org/?q=%D0%B4%D0%B0"]


def test_utf16_without_a_byte_order_mark_is_html() -> None:
    for codec in ("utf-16-le", "utf-16-be"):
        page = extract("<title>中文</title><a href='/x'>x</a>".encode(codec), URL)
        assert page.title == "中文"
        assert [link.url for link in page.links] == ["https://example.org/x"]


FIRST_PAGE = r"""
from gevent import monkey
monkey.patch_all()
import sys, time
from greencrawl.worker.extract.charset import sniff
for body in ("é中".encode(), b"<meta charset=gbk>\xd6", b"\xef\xbb\xbf\xff", b"a"):
    sniff(body)
sniff(b"\xe9", "a/b; charset=gbk")
assert "chardet" not in sys.modules
began = time.thread_time()
sniff("Größe und Maß".encode("cp1252"))
assert "chardet" in sys.modules
print(time.thread_time() - began)
"""


def test_encoding_detector_is_loaded_on_first_need_and_outside_of_the_pages_time() -> None:
    run = [sys.executable, "-c", FIRST_PAGE]
    ended = subprocess.run(run, capture_output=True, text=True, check=True)
    assert float(ended.stdout) < 0.02


def test_utf8_cut_off_within_a_character_is_still_utf8() -> None:
    assert guess("中文".encode()[:-1]) == "utf-8"
    assert guess(b"a" * 70_000 + "中文".encode()[:-1]) == "utf-8"


def test_late_bytes_count_in_a_long_page() -> None:
    assert guess(b"a" * 70_000 + "é é".encode("latin-1")) == "windows-1252"


@pytest.mark.parametrize("name", ["utf-8", "gbk", "gb18030", "big5", "shift_jis", "euc-kr"])
def test_wrong_byte_in_the_middle_cuts_nothing_off(name: str) -> None:
    text = {"big5": "中文後面", "shift_jis": "日本語"}.get(name, "中文")
    raw = text.encode("gbk" if name == "gbk" else name.replace("-", "_"))
    body = b"<title>" + raw + b"</title><p>" + raw + b"\xff" + b" <a href=/x>" + raw + b"</a>"
    page = extract(body, URL, f"text/html; charset={name}")
    assert page.title == text
    assert page.text.startswith(text)
    assert page.text.endswith(text)
    assert [(link.url, link.anchor) for link in page.links] == [("https://example.org/x", text)]


def test_markup_after_half_a_character_is_still_markup() -> None:
    page = extract(b"<p>\xd6<a href=/x>y</a>", URL, "text/html; charset=gbk")
    assert [link.url for link in page.links] == ["https://example.org/x"]


def test_single_byte_euro_sign_is_read_in_gbk() -> None:
    assert to_utf8(b"5 \x80 \xd6\xd0", "gbk").decode() == "5 € 中"


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf16_with_a_byte_order_mark_is_read(codec: str) -> None:
    body = "\ufeff<title>中文</title><a href='/?q=中'>x</a>".encode(codec)
    page = extract(body, URL)
    assert page.title == "中文"
    assert [link.url for link in page.links] == ["https://example.org/?q=%E4%B8%AD"]


def test_declared_encoding_inside_does_not_override_the_header() -> None:
    body = "<meta charset=gbk><title>é中</title><a href='?q=é'>".encode()
    page = extract(body, URL, "text/html; charset=utf-8")
    assert page.title == "é中"
    assert [link.url for link in page.links] == ["https://example.org/?q=%C3%A9"]


def test_withdrawn_encodings_yield_no_text() -> None:
    assert to_utf8(b"<p>~{<:Ky2;~}", "replacement").decode() == "\N{REPLACEMENT CHARACTER}"
    assert extract(b"<p>x<a href=/y>", URL, "text/html; charset=hz-gb-2312").links == []
