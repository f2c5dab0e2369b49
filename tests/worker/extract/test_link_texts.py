"""Short texts of links; the C part and Python read the same ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from html import escape
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greencrawl.schema.net.action_data import key_of
from greencrawl.schema.net.action_texts import (
    MAX_TEXT,
    NONE,
    OTHER,
    WORD,
    LinkTexts,
    texts_of,
    written,
)
from greencrawl.schema.records import Crawl, CrawlOptions, Fetched, Task
from greencrawl.schema.records.auth import Basic
from greencrawl.worker.crawls import CrawlContext, context_of
from greencrawl.worker.extract import text
from greencrawl.worker.extract.links import Resolved
from greencrawl.worker.extract.page import add_links, outline
from greencrawl.worker.kernels.http import read
from greencrawl.worker.kernels.reading import Reading

URL = "https://h.example/list/"
needs_compiled = pytest.mark.skipif(text.compiled is None, reason="nothing is compiled")

LINKS = """
<a href=/1>« Log out »</a> <a href=/2><b>删</b>除</a> <a href=/3><img alt="Удалить"></a>
<a href=/4 aria-label=Delete><i></i>×</a> <a href=/5 title="حذف"></a> <a href=#x>退出</a>
<a href="/ü">【退出】</a> <a href=/14><!-- icon -->Löschen</a>
<a href=/6>with more than sixty-four bytes, as many titles of articles have them</a>
<area href=/7 alt=z> <a href=/8>&nbsp;Log
 out&nbsp;</a> <a href=/9></a><a>no link</a> <a href=/13 title=LÖSCHEN>x</a>
<a href=/15><svg><title>y</title></svg><img src=y><img alt=trash><img alt=delete> Log out</a>
<a href=/16>Delete it or not</a> <a href=/23>x</a> <a href=/17>17</a>
<a href=/18 title="Title">18</a> <a href=/19>Aʙmelden</a> <a href=/20>ВЫХОД</a>
<a href=/21>Çıkış</a> <a href=/22>ÇIKIŞ</a>
<a href=/10>open <a href=/11>nested</a> on <div><a href=/12>LOG-OUT
"""
WORDS = {
    "/1": "Log out", "/2": "删除", "/3": "Удалить", "/4": "Delete", "/5": "حذف", "/%C3%BC": "退出",
    "/8": "Log out", "/10": "open", "/12": "LOG-OUT", "/13": "LÖSCHEN", "/14": "Löschen",
    "/15": "Log out", "/20": "ВЫХОД", "/21": "Çıkış", "/22": "ÇIKIŞ",
}  # fmt: skip
OTHERS = ["/6", "/16", "/18", "/19", "/11"]
SILENT = ["/7", "/9", "/23", "/17"]


def said(found: LinkTexts) -> tuple[dict[str, str], list[str], list[str]]:
    """Return words by URL, URLs with other texts, and URLs without a text."""
    paths = [url.removeprefix(URL[:17]) for url in found.urls]
    kinds = list(zip(paths, found.kinds, strict=True))
    words = {paths[place]: text for place, text in found.words.items()}
    assert list(words) == [path for path, kind in kinds if kind == WORD]
    return (
        words,
        [p for p, kind in kinds if kind == OTHER],
        [p for p, kind in kinds if kind == NONE],
    )


def walked(body: str) -> LinkTexts:
    _, found = outline(body.encode(), URL, "text/html; charset=utf-8", texts=True)
    assert isinstance(found, Resolved)
    assert found.texts is not None
    assert found.texts.urls == found.urls
    return found.texts


def collected(body: str) -> LinkTexts:
    page, found = outline(body.encode(), URL, "text/html; charset=utf-8", anchors=True)
    pairs: list[tuple[str, str]] = []
    add_links(page, found, pairs)
    return texts_of(pairs)


@pytest.mark.parametrize("reader", [pytest.param(walked, marks=needs_compiled), collected])
def test_texts_of_links_are_listed_with_their_urls(reader: Callable[[str], LinkTexts]) -> None:
    words, others, silent = said(reader(LINKS))
    assert words == WORDS
    assert others == OTHERS
    assert silent == SILENT


@needs_compiled
def test_texts_of_links_are_not_read_unless_they_are_wanted() -> None:
    _, plain = outline(LINKS.encode(), URL, "text/html; charset=utf-8")
    assert isinstance(plain, Resolved)
    assert plain.urls == walked(LINKS).urls
    assert plain.texts is None


@needs_compiled
def test_texts_keep_their_urls_if_some_links_are_left_to_python() -> None:
    body = """<link rel="nextt prev" href=/p><a href="/ü">Log out</a><meta http-equiv=refresh
        content=x><link rel=nexte href=/q><a href=/1>xy</a><a href="//h.example/2">delete</a>
        <a href=/3>yes</a><a href=/4>no</a>"""
    words, others, silent = said(walked(body))
    assert words == {"/%C3%BC": "Log out", "/2": "delete"}
    assert (others, silent) == (["/1", "/3", "/4"], ["/p"])


AROUND = [
    *"«»×÷[](){}<>!.,:;|/\\-_*…→←✖☰【】「」　🗑🔒ÀØößzZaA09أبก字é々！０Ａ",
    *" \t\n\xa0\ue000\uf8ff\ufe0f\u200f",
]


@needs_compiled
@given(
    st.lists(st.sampled_from(AROUND), max_size=8),
    st.sampled_from(["", "x", "退出", "Log out", "sign-off", "7", "ВЫЙТИ"]),
)
def test_c_and_python_read_a_text_alike_whatever_surrounds_it(around: list[str], word: str) -> None:
    half = len(around) // 2
    given = "".join([*around[:half], word, *around[half:]])
    body = f"<p>.</p><a href=/x>{given.replace('&', '&amp;').replace('<', '&lt;')}</a>"
    quick, slow = walked(body), collected(body)
    assert quick.kinds == slow.kinds
    assert [*map(key_of, quick.words.values())] == [*map(key_of, slow.words.values())]


@needs_compiled
def test_the_c_part_recognises_every_known_text() -> None:
    texts = [text for text in written() if len(text.encode()) <= MAX_TEXT and "<" not in text]
    for start in range(0, len(texts), 500):
        some = texts[start : start + 500]
        found = walked("".join(f"<a href=/{n}>{text}</a>" for n, text in enumerate(some)))
        assert found.kinds == bytes([WORD]) * len(some)


def crawl(**options: object) -> CrawlContext:
    made = CrawlOptions(scope="any", **options)  # type: ignore[arg-type]
    return context_of(Crawl(id=1, name="t", state="active", options=made, roots=("*",)))


def reading(context: CrawlContext, body: str) -> Reading:
    headers = {"content-type": "text/html; charset=utf-8"}
    return read(context, Task(1, URL), Fetched(URL, 200, headers, body.encode()))


CLUB = (Basic(name="club", hosts=("h.example",)),)
LENIENT = (Basic(name="club", hosts=("h.example",), skip=()),)


def paths(urls: Iterable[str]) -> list[str]:
    return [url.removeprefix(URL[:17]) for url in urls]


PAGE = """{}<a href=/a/1>One</a><a href=/a/2>删除</a><a href=/a/3>Three</a>
<a href=/o/7?x>删除文章</a><a href=/bye><img alt=退出></a><a href="/a/3/%C9%BE%B3%FD">x</a>
<a href=/out><i></i></a><a href=/out>[退出]</a>"""


@pytest.mark.parametrize("base", ["", "<base href=/list/>"])
def test_a_page_is_read_alike_with_and_without_the_part_in_c(base: str) -> None:
    """Python reads a page with a base."""
    context = crawl(auth=CLUB)
    found = reading(context, PAGE.format(base))
    assert [link.url for link in found.links] == [f"https://h.example/a/{n}" for n in (1, 2, 3)]
    skipped = ["/o/7?x", "/bye", "/a/3/%C9%BE%B3%FD", "/out"]
    assert sorted(found.skipped) == sorted(f"https://h.example{path}" for path in skipped)
    assert reading(context, PAGE.format(base)).skipped == {}
    stranger = reading(crawl(), PAGE.format(base))
    assert len(stranger.links) == 7
    assert stranger.skipped == {}


@pytest.mark.parametrize("base", ["", "<base href=/list/>"])
def test_links_of_a_srcdoc_document_are_skipped_by_their_texts(base: str) -> None:
    document = """<a href=/x?do=17>Log out</a><a href=/o/7?x><img alt=Delete></a>
        <a href=/a/1>One</a><a href='http:///'>Delete</a><area href=/a/2><a href=/a/3></a>"""
    body = f'{base}<a href=/p/1>Page</a><iframe srcdoc="{escape(document)}"></iframe>'
    found = reading(crawl(auth=CLUB), body)
    assert paths(link.url for link in found.links) == ["/p/1", "/a/1", "/a/2", "/a/3"]
    assert paths(found.skipped) == ["/x?do=17", "/o/7?x"]
    assert found.skipped[URL[:17] + "/x?do=17"] == (
        f"auth club: action 'Log out' (log out, English) in the text of a link on {URL}"
    )
    assert len(reading(crawl(), body).links) == 6, "nobody is logged in"


def test_links_of_the_page_show_that_a_text_in_its_srcdoc_is_a_title() -> None:
    """Links of the page itself tell as much as links of the same document."""
    titles = "".join(f"<a href=/t/{number}>Title</a>" for number in range(4))
    body = f'{titles}<iframe srcdoc="<a href=/t/9>Delete</a>"></iframe>'
    assert reading(crawl(auth=CLUB), body).skipped == {}


@pytest.mark.parametrize("base", ["", "<base href=/list/>"])
def test_texts_full_of_brackets_are_read_in_bounded_time(base: str) -> None:
    links = ("<a href=1>x" + ("(" * 790 + "<b></b>") * 40 + "x</a>") * 3
    body = f'{base}{links}<iframe srcdoc="{links}"></iframe>'
    context = crawl(auth=CLUB)
    began = process_time()
    assert len(reading(context, body).links) == 1
    assert process_time() - began < 1


FORMS = """<form action=/bye><button>Log out</button></form>
<form action=/x><input type=hidden name=do value=1><input type=submit value='Delete account'></form>
<form action=/go><input type=image src=i></form><form action=/a/1></form><a href=/a/1>One</a>
<form action=//o.example/go></form>"""


@pytest.mark.parametrize("base", ["", "<base href=/list/>"])
def test_forms_are_not_sent_if_a_crawl_is_logged_in(base: str) -> None:
    body = f'{base}{FORMS}<iframe srcdoc="<form action=/in></form>"></iframe>'
    found = reading(crawl(auth=CLUB, links=("forms",)), body)
    assert paths(link.url for link in found.links) == ["/a/1", "https://o.example/go"]
    assert sorted(paths(found.skipped)) == ["/bye", "/go", "/in", "/x?do=1"]
    assert set(found.skipped.values()) == {f"auth club: action of a form on {URL}"}
    alone = reading(crawl(auth=CLUB, links=("forms",)), f"{base}<form action=/bye></form>")
    assert (alone.links, paths(alone.skipped)) == ([], ["/bye"])
    let = reading(crawl(auth=CLUB, links=("forms",), follow_actions=("/go$",)), body)
    assert URL[:17] + "/go" in {link.url for link in let.links}
    for every in (crawl(links=("forms",)), crawl(auth=LENIENT, links=("forms",))):
        assert len(reading(every, body).links) == 6


def test_lists_of_action_words_are_not_loaded_for_crawls_without_a_login() -> None:
    program = """
import sys
from greencrawl.schema.net import action_data
from greencrawl.schema.records import Crawl, CrawlOptions, Fetched, Task
from greencrawl.worker.crawls import context_of
from greencrawl.worker.kernels.http import read
made = CrawlOptions(scope="any")
context = context_of(Crawl(id=1, name="t", state="active", options=made, roots=("*",)))
body = b"<a href=/logout>Log out</a>"
headers = {"content-type": "text/html"}
found = read(context, Task(1, "http://h/"), Fetched("http://h/", 200, headers, body))
assert len(found.links) == 1
assert action_data.languages.cache_info().misses == action_data.software.cache_info().misses == 0
"""
    subprocess.run([sys.executable, "-c", program], check=True)
