"""Which encoding a page is read in, declared or not, and that wrong bytes lose nothing else."""

from __future__ import annotations

import pytest

from greencrawl.worker.extract import extract
from greencrawl.worker.extract.charset import guess, sniff, to_utf8

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
        (b" " * 1100 + b"<meta charset=gbk>", None, "utf-8"),
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


def test_lone_euro_of_windows_is_read() -> None:
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
