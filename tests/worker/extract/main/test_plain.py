"""Documents of plain text: the whole document is its text and its main text."""

from __future__ import annotations

import time

import pytest

from greencrawl.schema.text.spans import main_of
from greencrawl.worker.extract import main
from greencrawl.worker.extract.main import plain
from greencrawl.worker.extract.main.library import extract
from greencrawl.worker.extract.page import outline

URL = "http://example.org/notes"
NOTES = "On ice\n\n  The harbour froze.\r\n\tPeople <walked>.  \n\n\n\nThen\u00a0it thawed.\n"
MAIN = "On ice\n\n  The harbour froze.\n\tPeople <walked>.\n\nThen\u00a0it thawed."
needs_compiled = pytest.mark.skipif(not main.available(), reason="nothing was compiled")


@pytest.mark.parametrize("kind", ["text/plain", "text/markdown; charset=utf-8", "Text/X-Markdown"])
def test_text_of_a_plain_document_is_the_whole_document(kind: str) -> None:
    page, found = outline(NOTES.encode(), URL, kind)
    assert page.text == "On ice The harbour froze. People <walked>. Then it thawed."
    assert (page.title, page.encoding, list(found.texts or ())) == ("On ice", "utf-8", [])


@needs_compiled
def test_main_text_of_a_plain_document_is_the_whole_document_with_its_lines() -> None:
    page, _ = outline(NOTES.encode(), URL, "text/plain", spans=True)
    assert main_of(page.text, page.spans) == MAIN
    read = extract(NOTES.encode(), URL, "text/plain")
    assert (read.main, read.markdown, read.comments, read.blocks) == (MAIN, MAIN, "", [])
    assert "plain text" in read.remark
    assert (read.about.title, read.author) == ("On ice", "")
    assert read.css("p").getall() == []


@needs_compiled
def test_markdown_stands_as_it_is() -> None:
    body = "# Ice #\nIt *froze*.\n\n- a\n- b\n"
    read = extract(body.encode(), URL, "text/markdown")
    assert (read.title, read.markdown) == ("Ice", body.strip())


@pytest.mark.parametrize(
    ("url", "body", "read"),
    [
        ("http://h/a.txt", b"some notes", True),
        ("http://h/a.MD?x=y.html", b"some notes", True),
        ("http://h/a", b"some notes", False),
        ("http://h/a.html?f=a.txt", b"some notes", False),
        ("http://h/a.txt", b"<!doctype html><p>a", False),
    ],
)
def test_the_file_name_in_the_url_decides_if_no_content_type_is_declared(
    url: str, body: bytes, read: bool
) -> None:
    page, _ = outline(body, url, None)
    assert (page.text == "some notes") is read


def test_a_declared_type_is_believed() -> None:
    assert outline(b"<p>a", "http://h/a.html", "text/plain")[0].text == "<p>a"
    assert outline(b"a{}", "http://h/a.txt", "text/css")[0].text == ""


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"PK\x03\x04 and so on", ""),
        ("café".encode("utf-16"), "café"),
        ("приве́т".encode(), "приве́т"),
        (b"a\x0cb", "ab"),
    ],
)  # fmt: skip
def test_binary_data_declared_as_plain_text_give_no_text(body: bytes, text: str) -> None:
    assert plain.read(body, "text/plain").text == text


def test_control_characters_are_no_text() -> None:
    late = plain.read(b"a" * 2000 + b"\x00\x1b[1mb", "text/plain")
    assert late.text == "a" * 2000 + "[1mb"


@pytest.mark.parametrize(
    ("first", "rest", "title"),
    [
        ("The ice", "\n\nIt froze.", "The ice"),
        ("The ice", "\n=======\nIt froze.", "The ice"),
        ("## The ice", "\nIt froze.", "The ice"),
        ("The ice", "\nmelted in May", ""),
        ("The ice", "", ""),
        ("It froze over.", "\n\nThen it thawed.", ""),
        ("User-agent: *", "\nDisallow: /", ""),
        ("{", "\n\n}", ""),
        ("-----", "\n\nb", ""),
        ("2026-01-02", "\n\nb", ""),
        ("http://example.org/a", "\n\nhttp://example.org/b", ""),
        ("w " * 100, "\n\nb", ""),
        ("#!/bin/sh", "\n\nexit", ""),
    ],
)
def test_the_first_line_is_the_title_if_it_looks_like_a_heading(
    first: str, rest: str, title: str
) -> None:
    assert plain.read(f"\n\n{first}{rest}".encode(), "text/plain").title == title


@pytest.mark.parametrize(
    "body", ["\n" * 2_000_000, "a \n" * 700_000, " " * 2_000_000 + "\x00", "\t\r" * 900_000]
)
def test_a_long_plain_document_is_read_in_bounded_time(body: str) -> None:
    began = time.process_time()
    outline(body.encode(), URL, "text/plain", spans=True)
    assert time.process_time() - began < 1
