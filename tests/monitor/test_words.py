"""Texts in both languages, and the forms of numbers and times."""

from __future__ import annotations

import re
import string
import tomllib
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import fields

from greencrawl.monitor.figures import SPANS
from greencrawl.monitor.views.table import VIEWS
from greencrawl.monitor.words import LANGUAGES, TEXTS, language_of, words
from greencrawl.schema.records import AlertKind, CrawlOptions, FailureKind, NodeOptions, PutOff
from tests.support.checkout import ROOT

MONITOR = ROOT / "monitor"
USED = re.compile(r"""\bt(?:\.either)?\(\s*["']([a-z_0-9]+\.[a-z_0-9.]+)["']\s*[,)]""")
SAID = re.compile(r"""words\(\s*["']([a-z_.]+)["']|\bGoto\([^)]*,\s*"([a-z_]+)\"""")
COMPOSED = {
    "nav": [view.name for view in VIEWS],
    "kind": list(FailureKind),
    "put_off": list(PutOff),
    "alert": list(get_args(AlertKind)),
    "plot": [*SPANS, *(f"of_{span}" for span in SPANS)],
    "state": ["active", "paused", "resting", "stopping", "done"],
}
"""Tables whose keys templates put together."""


def sources() -> list[Path]:
    return [*MONITOR.rglob("*.html"), *MONITOR.rglob("*.py")]


def test_both_languages_have_all_texts() -> None:
    assert {path.stem for path in TEXTS.glob("*.toml")} == set(LANGUAGES)
    english, *others = (words(language).texts for language in LANGUAGES)
    for texts in others:
        assert list(texts) == list(english)
        for key, text in texts.items():
            assert _places(text) == _places(english[key]), key


def _places(text: str | dict[str, str]) -> set[str]:
    said = text if isinstance(text, str) else " ".join(text.values())
    return {name for _, name, _, _ in string.Formatter().parse(said) if name}


def test_options_are_described_in_each_other_language() -> None:
    named = [field.name for record in (CrawlOptions, NodeOptions) for field in fields(record)]
    for language in set(LANGUAGES) - {"en"}:
        assert sorted(words(language).options) == sorted(set(named))
        assert "lang" not in words(language).described("delay", "Least pause")
    assert words("en").described("delay", "<b>") == '<span lang="en">&lt;b&gt;.</span>'


def test_every_text_that_is_used_is_there() -> None:
    known, found = words("en").texts, set[str]()
    for path in sources():
        source = path.read_text(encoding="utf-8")
        found |= set(USED.findall(source))
        for key, said in SAID.findall(source):
            found.add(key or f"said.{said}")
    found |= {f"{table}.{name}" for table, names in COMPOSED.items() for name in names}
    assert len(found) > 100
    assert sorted(found - set(known)) == []


def test_no_text_stands_in_a_template() -> None:
    """Templates insert words between tags only by ``t``."""
    wrong = []
    for path in MONITOR.rglob("*.html"):
        source = re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", "", path.read_text("utf-8"), flags=re.S)
        for text in re.findall(r">([^<>]+)<", source):
            if re.search(r"[A-Za-z]{2}", text) and text.strip() not in ("Greencrawl", "URL"):
                wrong.append(f"{path.name}: {text.strip()}")
    names = ("JSON.", "– Greencrawl", "greencrawl hooks", "greencrawl store")
    assert [one for one in wrong if not any(name in one for name in names)] == []


@pytest.mark.parametrize(
    ("accept", "language"),
    [
        (None, "en"),
        ("", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("en-GB, zh;q=0.5", "en"),
        ("de-DE,de;q=0.9", "en"),
        ("de, zh-Hans;q=0.2, en;q=0.1", "zh"),
        ("zh;q=0, en;q=0.1", "en"),
        ("zh;q=x, *", "en"),
    ],
)
def test_the_language_is_the_one_that_is_liked_best(accept: str | None, language: str) -> None:
    assert language_of(accept) == language


def test_what_other_parts_say_is_said_in_the_readers_language_as_far_as_it_is_known() -> None:
    said = {
        "fetched at 2026-03-01 12:00:00 UTC with status 200; unchanged at 2026-03-02 12:00:00 UTC":
            "2026-03-01 12:00:00 UTC 抓取，状态码 200；2026-03-02 12:00:00 UTC 询问时未变",
        "given up at 1: timeout (no complete answer within 30 s)":
            "1 放弃：太慢（30 秒内没有完整的应答）",
        "the crawl is paused; waiting: number 3 of <b>'s queue":
            "任务已暂停；在 &lt;b&gt; 的队列中排第 3",
        "the crawl is done (max_pages)": "任务已结束（达到页数上限（max_pages））",
        "invalid: neither http nor https": "无效：既不是 http 也不是 https",
        "no such thing <b>": '<span lang="en">no such thing &lt;b&gt;</span>',
        "unchanged at 1; <i> {0} {why}":
            '1 询问时未变；<span lang="en">&lt;i&gt; {0} {why}</span>',
        "given up at 1: unheard": '<span lang="en">given up at 1: unheard</span>',
        "robots.txt: " * 5 + "x":
            "robots.txt：" * 4 + '<span lang="en">robots.txt: x</span>',
        "没有这个地址的页面。": "没有这个地址的页面。",
        "": "",
    }  # fmt: skip
    chinese, english = words("zh"), words("en")
    assert {one: chinese.reason(one) for one in said} == said
    assert [english.reason(one) for one in ("unchanged at 1", "<b>")] == [
        "unchanged at 1",
        "&lt;b&gt;",
    ]


def test_reasons_of_other_languages_have_the_places_of_their_sentences() -> None:
    for language in set(LANGUAGES) - {"en"}:
        reasons = tomllib.loads((TEXTS / "reasons" / f"{language}.toml").read_text("utf-8"))
        for said, text in reasons.items():
            assert _places(said) == _places(text), said
            values = {name: "active" if name == "state" else "1" for name in _places(said)}
            values |= {"kind": "timeout", "reason": "stopped"}
            shown = words(language).reason(said.format(**values))
            assert not shown.startswith("<span"), said


def test_times_are_said_as_people_do() -> None:
    now, english = 10_000_000_000, words("en")
    said = {
        0: "now", 4: "now", 7: "7 seconds ago", 60: "1 minute ago", 3599: "59 minutes ago",
        7200: "2 hours ago", 90_000: "1 day ago", -120: "in 2 minutes",
    }  # fmt: skip
    assert {ago: english.ago(now - ago * 1000, now) for ago in said} == said
    assert words("zh").ago(now - 7200_000, now) == "2 小时前"
    assert 'datetime="1970-04-26T17:46:40Z"' in english.when(now, now)
    assert english.when(0, now) == "–"
    assert [english.span(one) for one in (0.0034, 2.5, 75)] == ["3 ms", "2.5 seconds", "1 minute"]


def test_numbers_and_sizes_are_said_as_people_do() -> None:
    english = words("en")
    said = [english.number(one) for one in (None, 0, 0.0, 0.34, 0.016, 0.001, 12.6, 1234567)]
    assert said == ["–", "0", "0", "0.3", "0.02", "<0.01", "13", "1,234,567"]
    assert [english.size(one) for one in (12, 21_700, 3.2e9)] == ["12 B", "21.7 kB", "3.2 GB"]
    assert english("said.seeded", n=1) == "1 URL is queued."
    assert english("said.seeded", n=2000) == "2,000 URLs are queued."
