"""Readers' comments, apart from the main text of the page."""

from __future__ import annotations

import json
import time

import pytest

from greencrawl.worker.extract import main
from greencrawl.worker.extract.main.library import extract
from tests.worker.extract.main.test_main_text import ARTICLE, STORY

pytestmark = pytest.mark.skipif(not main.available(), reason="nothing was compiled")

SAID = [
    "I remember that winter well, my brother fell through the ice near the old pier.",
    "The band played until two in the morning, and nobody complained.",
]
YEARS = (1929, 1947, 1963)
META = "<span class=comment-author>Ann Reader</span> <a href='#c1'>3 May 2026, 10:12</a>"
REPLY = "<a href='?reply=1'>Reply</a>"


def with_comments(before: str, after: str, each: str = "div") -> str:
    comments = "".join(f"<{each}>{META}<p>{text}</p>{REPLY}</{each}>" for text in SAID)
    more = "".join(f"<p>{p} So it was in the year {year}.</p>" for p in STORY for year in YEARS)
    behind = f"{more}</article>{before}<h3>2 comments</h3>{comments}{after}"
    return ARTICLE.replace("</article>", behind)


FORM = "<form id=commentform><label>Leave a comment, your address will not be shown.</label></form>"
MARKED = {
    "an id": ("<section id=comments>", "</section>"),
    "a class": ("<div class='wide commentlist'>", "</div>"),
    "a class in parts": ("<div class=itemComments>", "</div>"),
    "microdata": ("<div itemscope itemtype='https://schema.org/Comment'>", "</div>"),
    "disqus": ("<div id=disqus_thread>", "</div>"),
    "with a form": ("<div id=comments>", f"{FORM}</div>"),
}


@pytest.mark.parametrize("case", MARKED)
def test_comments_are_separated_from_main_text_if_markup_names_them(case: str) -> None:
    page = extract(with_comments(*MARKED[case]).encode(), "http://h/")
    assert page.comments == "\n\n".join(SAID)
    assert all(paragraph in page.main for paragraph in STORY)
    assert not any(text in page.main + page.markdown for text in SAID)
    assert [block.text for block in page.blocks if block.comment] == SAID
    assert not any(block.chosen and block.comment for block in page.blocks)


def test_a_paragraph_that_a_reader_repeats_stays_main_text() -> None:
    body = with_comments("<div id=comments>", "</div>").replace(SAID[0], STORY[1])
    page = extract(body.encode(), "http://h/")
    assert STORY[1] in page.main
    first = "<div id=comments><p>" + STORY[1] + "</div><article>"
    page = extract(ARTICLE.replace("<article>", first).encode(), "http://h/")
    assert STORY[1] in page.main


@pytest.mark.parametrize(
    "wrapper",
    ["<body class='comments-open'>", "<div class='no-comments'>", "<div class='commentary'>",
     "<div class='page comments'><h1>All of it</h1>", "<div class='comment-count'>"],
)  # fmt: skip
def test_an_element_that_only_sounds_like_comments_stays_main_text(wrapper: str) -> None:
    page = extract(ARTICLE.replace("<body>", f"<body>{wrapper}").encode(), "http://h/")
    assert page.comments == ""
    assert all(paragraph in page.main for paragraph in STORY)


def test_posts_of_a_forum_are_main_text() -> None:
    posts = "".join(f"<div class=comment><p>{text}</p></div>" for text in (*STORY, *SAID))
    kind = "<div itemscope itemtype='https://schema.org/DiscussionForumPosting'>"
    page = extract(f"<title>Ice?</title>{kind}<h1>Ice?</h1>{posts}</div>".encode(), "http://h/")
    assert page.comments == ""
    assert all(text in page.main for text in STORY)


def test_comments_of_json_ld_are_read_if_the_page_shows_none() -> None:
    said = {"@type": "Article", "comment": [{"@type": "Comment", "text": text} for text in SAID]}
    script = f"<script type=application/ld+json>{json.dumps(said)}</script>"
    page = extract(ARTICLE.replace("</head>", f"{script}</head>").encode(), "http://h/")
    assert page.comments == "\n\n".join(SAID)
    forum = script.replace('"Article"', '"DiscussionForumPosting"')
    assert (
        extract(ARTICLE.replace("</head>", f"{forum}</head>").encode(), "http://h/").comments == ""
    )


HOSTILE = {
    "nested": "<div id=comments>a" * 60_000,
    "beside": "<div id=comments>a</div>" * 60_000,
    "with headings": "<div id=comments><h1>a</h1>" * 20_000,
    "names": "<div id='" + "comment-count " * 100_000 + "'>a",
    "a name": "<div id='" + "comment" * 200_000 + "'>a",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_comments_of_hostile_pages_are_read_in_bounded_time(kind: str) -> None:
    page = extract(HOSTILE[kind].encode(), "http://h/")
    began = time.process_time()
    assert isinstance(page.comments, str)
    assert time.process_time() - began < 1
