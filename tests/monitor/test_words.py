"""Texts in both languages, and the forms of numbers and times."""

from __future__ import annotations

import ast
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
SAYING = (
    "broker/frontier/hosts.py", "broker/frontier/nodes/failures.py",
    "broker/frontier/nodes/node.py", "broker/service/explain.py", "broker/service/seeding.py",
    "broker/tasks/coordinator/alerts.py", "broker/tasks/purge.py", "schema/net/access.py",
    "schema/net/scope.py", "schema/text/again.py", "schema/text/declared.py",
    "schema/text/guessed.py", "schema/text/moments.py", "schema/text/parked.py",
    "store/mysql/cluster/steward/findings.py", "worker/http/receiving.py",
    "worker/kernels/judged.py", "worker/kernels/reading.py", "worker/process/costly.py",
    "worker/robots/cache.py", "worker/sitemaps/listed.py", "worker/sitemaps/unpacking.py",
    "worker/sitemaps/xml.py", "worker/traps/evidence.py", "worker/traps/hosts.py",
    "worker/traps/traps.py",
)  # fmt: skip
"""Files whose sentences people read in the Monitor."""
UNSAID = {
    "it says unavailable_after", "greencrawl traps", "which counts what is fetched again, too",
    "leave it out, or name another crawl",
}  # fmt: skip
"""Phrases that stand in a placeholder, and phrases that only the command line prints."""
PHRASE = re.compile(r"[a-z]{2,} [a-z]{2,}")


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


def test_a_kind_of_failure_without_a_text_of_a_language_has_its_english_label(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = (TEXTS / "zh.toml").read_text("utf-8").replace('\ngone = "', '\ngone_before = "', 1)
    (tmp_path / "zh.toml").write_text(own, "utf-8")
    monkeypatch.setattr("greencrawl.monitor.words.TEXTS", tmp_path)
    known = words.__wrapped__("zh")
    assert known("kind.gone") == FailureKind.GONE.label == "gone (404, 410)"
    assert known("kind.forbidden") == words("zh")("kind.forbidden") != FailureKind.FORBIDDEN.label


def test_every_text_that_the_code_uses_exists() -> None:
    known, found = words("en").texts, set[str]()
    for path in sources():
        source = path.read_text(encoding="utf-8")
        found |= set(USED.findall(source))
        for key, said in SAID.findall(source):
            found.add(key or f"said.{said}")
    found |= {f"{table}.{name}" for table, names in COMPOSED.items() for name in names}
    assert len(found) > 100
    assert sorted(found - set(known)) == []


def test_templates_contain_no_text_of_their_own() -> None:
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
def test_the_language_is_the_one_that_the_reader_prefers(accept: str | None, language: str) -> None:
    assert language_of(accept) == language


def test_messages_of_other_parts_are_translated_as_far_as_they_are_known() -> None:
    said = {
        "fetched at 2026-03-01 12:00:00 UTC with status 200; unchanged at 2026-03-02 12:00:00 UTC":
            "2026-03-01 12:00:00 UTC 抓取，状态码 200；2026-03-02 12:00:00 UTC 询问时未变",
        "given up at 1: timeout (no complete answer within 30 s)":
            "1 放弃：太慢（30 秒内没有完整的应答）",
        "the crawl is paused; waiting: number 3 of <b>'s queue":
            "任务已暂停；在 &lt;b&gt; 的队列中排第 3",
        "the crawl is done (max_pages)": "任务已结束（达到页数上限（max_pages））",
        "invalid: neither http nor https": "无效：既不是 http 也不是 https",
        "waiting: number 3 of b.example's queue; the host is blocked for another 9 s (timeout)":
            "在 b.example 的队列中排第 3；该主机还将封锁 9 秒（太慢）",
        "waiting: number 3 of x's queue; Redis at b was restarted and lost data: its hosts are not "
        "fetched until 12:00:00 UTC, when no earlier request can still be under way":
            "在 x 的队列中排第 3；b 的 Redis 重启后丢失了数据：12:00:00 UTC 之前不抓取它的主机，"
            "以确保先前的请求都已结束",
        "parked at 1: the last of 9 pages of this shape brought nothing new; its query grows, of "
        "the shape http://x/{n}; `greencrawl traps x --all` releases it":
            "1 搁置：此形状 9 个网页的最后一些没有带来新内容；形状 http://x/{n}，查询部分不断变长；"
            "可用 `greencrawl traps x --all` 放行",
        "not fetched by rule at 1: action (auth a: action 'logout' (log out, English) in its path)":
            "1 按规则不抓取：链接会执行操作"
            "（登录 a：路径中的 &#39;logout&#39; 会执行操作（退出登录，English））",
        "given up at 1: refused (1.2.3.4: Connection refused; ::1: No route to host)":
            "1 放弃：连接被拒绝（1.2.3.4：连接被拒绝；::1：没有到该主机的路由）",
        "unchanged at (1; its query grows; to itself": "(1 询问时未变；查询部分不断变长；指向自身",
        "given up at 1: robots_unreachable (robots.txt: server_error HTTP 500)":
            "1 放弃：robots.txt 没有应答（robots.txt：服务器错误（5xx），HTTP 500）",
        "The crawl x stands still: 1,200 URLs wait, nothing is fetched, and nothing changes.":
            "任务 x 停滞不前：1,200 个 URL 在等待，没有抓取，也没有变化。",
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


def test_translated_reasons_have_the_placeholders_of_the_english_ones() -> None:
    for language in set(LANGUAGES) - {"en"}:
        reasons = tomllib.loads((TEXTS / "reasons" / f"{language}.toml").read_text("utf-8"))
        for said, text in reasons.items():
            assert _places(said) == _places(text), said
            values = {name: "active" if name == "state" else "1" for name in _places(said)}
            values |= {"kind": "timeout", "reason": "stopped"}
            shown = words(language).reason(said.format(**values))
            assert not shown.startswith("<span"), said


def test_no_pattern_of_a_reason_hides_a_later_one() -> None:
    for language in set(LANGUAGES) - {"en"}:
        reasons = words(language).reasons
        said = tomllib.loads((TEXTS / "reasons" / f"{language}.toml").read_text("utf-8"))
        for place, sentence in enumerate(said):
            filled = sentence.format(**dict.fromkeys(_places(sentence), "1"))
            first = next(
                i for i, (pattern, _) in enumerate(reasons) if pattern.places(filled) is not None
            )
            assert first == place or _places(list(said)[first]) & {"kind", "state", "reason"}, (
                sentence
            )


def phrases(source: str) -> set[str]:
    """Return what the strings of a program say, in the parts between placeholders and
    semicolons."""
    tree = ast.parse(source)
    documents = {
        node.value for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }  # fmt: skip
    said = {
        part.strip(" ,:.()`")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documents
        for part in node.value.split(";")
    }
    return {part for part in said if PHRASE.search(part)}


def test_every_reason_that_the_code_can_give_has_a_translation() -> None:
    for language in set(LANGUAGES) - {"en"}:
        reasons = tomllib.loads((TEXTS / "reasons" / f"{language}.toml").read_text("utf-8"))
        known = "\n".join(reasons)
        for name in SAYING:
            found = phrases((ROOT / name).read_text("utf-8")) - UNSAID
            assert found, name
            assert sorted(part for part in found if part not in known) == [], (language, name)


def test_times_are_shown_in_everyday_words() -> None:
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


def test_numbers_and_sizes_are_shown_in_readable_form() -> None:
    english = words("en")
    said = [english.number(one) for one in (None, 0, 0.0, 0.34, 0.016, 0.001, 12.6, 1234567)]
    assert said == ["–", "0", "0", "0.3", "0.02", "<0.01", "13", "1,234,567"]
    assert [english.size(one) for one in (12, 21_700, 3.2e9)] == ["12 B", "21.7 kB", "3.2 GB"]
    assert english("said.seeded", n=1) == "1 URL is queued."
    assert english("said.seeded", n=2000) == "2,000 URLs are queued."
