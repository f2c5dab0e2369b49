"""Directives for robots: separators, agents, dates and TDMRep, and the cost of hostile ones."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from greencrawl.schema.records import Directives
from greencrawl.schema.text.declared import MAX_POLICY_CHARS
from greencrawl.worker.extract.directives import MAX_CHARS, canonical_of, of_headers, with_metas

OURS = "greencrawl"


def header(*tags: str) -> Directives:
    joined = {"x-robots-tag": ", ".join(tags)}
    return of_headers(joined, tags if len(tags) > 1 else (), OURS) or Directives()


def metas(*contents: str) -> Directives:
    return with_metas(None, [("robots", content) for content in contents]) or Directives()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("noindex,nofollow", {"noindex", "nofollow"}),
        ("noindex, nofollow", {"noindex", "nofollow"}),
        ("NOINDEX NoFollow", {"noindex", "nofollow"}),
        ("noindex;nofollow", {"noindex", "nofollow"}),
        (" ,; noindex\t;,\n nofollow ,", {"noindex", "nofollow"}),
        ("noindex noindex,noindex", {"noindex"}),
        ("none", {"noindex", "nofollow"}),
        ("all, none", {"noindex", "nofollow"}),
        ("index, noindex", {"noindex"}),
        ("index, follow, all", set()),
        ("max-snippet:-1, max-image-preview: large, noindex", {"noindex"}),
        ("max-image-preview:noindex", set()),
        ("max-snippet : 20 nofollow", {"nofollow"}),
        ("noarchive;noai,noimageai", {"noarchive", "noai", "noimageai"}),
        ("noindexed, xnoindex", set()),
        ("noindex: yes", {"noindex"}),
        ("", set()),
        (":;,=", set()),
        ("ｎｏｉｎｄｅｘ", set()),
    ],
)
def test_directives_are_separated_by_commas_semicolons_or_blanks(
    content: str, words: set[str]
) -> None:
    assert set(metas(content).robots) == words
    assert set(header(content).robots) == words


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        (["otherbot: noindex, nofollow"], set()),
        (["greencrawl: noindex", "nofollow"], {"noindex", "nofollow"}),
        (["otherbot: noindex", "nofollow"], {"nofollow"}),
        (["GreenCrawl : noindex"], {"noindex"}),
        (["otherbot: noindex; greencrawl: nofollow noai"], {"nofollow", "noai"}),
        (["noarchive, otherbot: none, *: noai"], {"noarchive", "noai"}),
        (["otherbot: nofollow, robots: noindex"], {"noindex"}),
        (["otherbot: unavailable_after: 25 Jun 2030 15:00:00 PST, noindex"], set()),
        (["unavailable_after: some day at 15:00:00, noindex"], {"noindex"}),
    ],
)
def test_an_agent_named_before_a_colon_applies_to_the_rest_of_its_header(
    tags: list[str], words: set[str]
) -> None:
    said = header(*tags)
    assert set(said.robots) == words
    assert said.unavailable_after_ms is None


def test_directives_of_several_agents_in_one_header_are_told_apart() -> None:
    assert header("otherbot: noindex, greencrawl: nofollow, *: noai").robots == ("nofollow", "noai")


def test_the_strictest_directives_of_headers_and_elements_apply() -> None:
    said = of_headers({"x-robots-tag": "nofollow"}, (), OURS)
    both = with_metas(said, [("robots", "index, follow"), (OURS, "noindex")])
    assert both == Directives(robots=("noindex", "nofollow"))


def at(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("25 Jun 2030 15:00:00 PST", at(2030, 6, 25, 23)),
        ("Tue, 25 Jun 2030 15:00:00 GMT", at(2030, 6, 25, 15)),
        ("Tuesday, 25-Jun-30 15:00:00 EST", at(2030, 6, 25, 20)),
        ("25-Aug-2007 15:00:00 +0200", at(2007, 8, 25, 13)),
        ("25 September 2030", at(2030, 9, 25)),
        ("2030-06-25", at(2030, 6, 25)),
        ("2030-06-25T15:00", at(2030, 6, 25, 15)),
        ("2030-06-25T15:00:00Z", at(2030, 6, 25, 15)),
        ("2030-06-25 15:00:00.123+05:30", at(2030, 6, 25, 9, 30)),
        ("2030-06-25T15:00:00-08", at(2030, 6, 25, 23)),
        ("01 Jan 99 00:00:00 UTC", at(1999, 1, 1)),
        ("20301123", at(2030, 11, 23)),
        ("20301123T101500Z", at(2030, 11, 23, 10, 15)),
        ("20301123T1015", at(2030, 11, 23, 10, 15)),
        ("20301123T101500.5+0130", at(2030, 11, 23, 8, 45)),
        ("20301123T10:15:30Z", at(2030, 11, 23, 10, 15, 30)),
    ],
)
@pytest.mark.parametrize(
    "around", ["unavailable_after: {}", "UNAVAILABLE_AFTER:{}", "nofollow, unavailable_after={}"]
)
@pytest.mark.parametrize("behind", ["", ", noindex", " noindex", "; noindex"])
def test_dates_in_directives_are_read_with_their_colons_and_commas(
    text: str, moment: int, around: str, behind: str
) -> None:
    for said in (header(around.format(text) + behind), metas(around.format(text) + behind)):
        assert said.unavailable_after_ms == moment
        assert ("noindex" in said.robots) == bool(behind)


@pytest.mark.parametrize(
    "text",
    [
        "tomorrow",
        "32 Jun 2030",
        "2030-13-01",
        "2030-06-25T25:00:00",
        "0000-01-01",
        "",
        "1",
        "20301323",
        "203006",
        "2030-0625",
        "1921622400",
        "20301123T256000Z",
    ],
)
def test_an_invalid_date_in_unavailable_after_is_ignored(text: str) -> None:
    assert header(f"unavailable_after: {text}").unavailable_after_ms is None


def test_the_earliest_of_several_dates_counts() -> None:
    said = header("unavailable_after: 2031-01-01, unavailable_after: 2030-01-01")
    both = with_metas(said, [("robots", "unavailable_after: 2032-01-01")])
    assert both == Directives(unavailable_after_ms=at(2030, 1, 1))


def test_no_directives_are_reported_if_nothing_is_forbidden() -> None:
    assert of_headers({"server": "x"}, (), OURS) is None
    assert of_headers({"x-robots-tag": "all"}, (), OURS) is None
    assert with_metas(None, [("robots", "index,follow"), ("tdm-reservation", "2")]) is None


BASE = "http://h/a/b"


@pytest.mark.parametrize(
    ("link", "canonical"),
    [
        ('</c>; rel="canonical"', "http://h/c"),
        ("<c>;rel=canonical", "http://h/a/c"),
        ('<http://o/x,y;z>; title="a, b; <c>"; REL="next Canonical"', "http://o/x,y;z"),
        ('</c>; rel=canonical; anchor="/foo"', ""),
        ('</c>; anchor="/foo"; rel=canonical, </d>; rel=canonical', "http://h/d"),
        ('</c>; title="x; rel=canonical; y"', ""),
        ('</c>; title="</d>; rel=canonical"; rel=next', ""),
        ('</c>; title="a\\"b"; rel="canonical"', "http://h/c"),
        ("</c>; rel=next; rel=canonical", ""),
        ("</\xc3\xa9>; rel=canonical", "http://h/%C3%A9"),
        ("</n>; rel=next, </c>; rel=canonical, </d>; rel=canonical", "http://h/c"),
        ('</c>; rel="canonicals"', ""),
        ("</canonical>; rel=next", ""),
        ("canonical", ""),
        ("<http://[>; rel=canonical", ""),
        ("<mailto:canonical>; rel=canonical", ""),
        ("", ""),
        ("<x>;rel=next," * 1000 + "<c>;rel=canonical", ""),
    ],
)
def test_a_link_header_may_name_the_canonical_url(link: str, canonical: str) -> None:
    assert canonical_of({"link": link}, BASE) == canonical


@pytest.mark.parametrize(
    "unit", ["<", ">", "<>", "<a>;", "<a>;a=", '<a>;a="', "<a> ; ", " ", ";a=b", "\\", "\xe9"]
)
def test_hostile_link_headers_cost_little(unit: str) -> None:
    text = "canonical" + unit * (10_000_000 // len(unit))
    began = time.thread_time()
    canonical_of({"link": text}, BASE)
    assert time.thread_time() - began < 0.25


# -- rights of text and data mining


POLICY = "https://provider.example/policies/1"


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"tdm-reservation": "1"}, Directives(tdm="reserved")),
        ({"tdm-reservation": " 1 "}, Directives(tdm="reserved")),
        ({"tdm-reservation": "0, 1"}, Directives(tdm="reserved")),
        ({"tdm-reservation": "0"}, Directives(tdm="open")),
        (
            {"tdm-reservation": "1", "tdm-policy": POLICY},
            Directives(tdm="reserved", tdm_policy=POLICY),
        ),
        ({"tdm-reservation": "0", "tdm-policy": POLICY}, Directives(tdm="open")),
        ({"tdm-policy": POLICY}, None),
        ({"tdm-reservation": "true"}, None),
        ({"tdm-reservation": "1", "tdm-policy": "x" * (MAX_POLICY_CHARS + 1)},
         Directives(tdm="reserved")),
        ({"tdm-reservation": "1", "tdm-policy": "http://ä/"}, Directives(tdm="reserved")),
    ],
)  # fmt: skip
def test_tdmrep_headers_are_read(headers: dict[str, str], said: Directives | None) -> None:
    assert of_headers(headers, (), OURS) == said


def test_tdmrep_elements_override_headers_and_headers_override_the_file() -> None:
    site = Directives(tdm="reserved", tdm_policy=POLICY)
    assert of_headers({}, (), OURS, site) == site
    said = of_headers({"tdm-reservation": "0"}, (), OURS, site)
    assert said == Directives(tdm="open")
    assert with_metas(said, [("tdm-reservation", "1")]) == Directives(tdm="reserved")
    assert with_metas(site, [("tdm-reservation", "0")]) == Directives(tdm="open")
    assert with_metas(site, [("tdm-reservation", "no")]) == site
    assert with_metas(site, [("tdm-policy", "/p")]) == Directives(tdm="reserved", tdm_policy="/p")


# -- hostile ones


def test_directives_beyond_a_bound_are_not_read() -> None:
    assert header("x" * MAX_CHARS + ", noindex") == Directives()
    assert metas(*["y" * (MAX_CHARS // 4)] * 5, "noindex") == Directives()
    assert metas("," * (MAX_CHARS - 7) + "noindex").robots == ("noindex",)


@pytest.mark.parametrize(
    "unit", ["a", " ", ":", "a:", "a b", "unavailable_after:", "unavailable_after: 1 ", "noindex,",
             "unavailable_after: 25 Jun 2030 15:00:00 ", "max-snippet:", "1 jan", "\u00a0"],
)  # fmt: skip
def test_hostile_directives_take_little_time(unit: str) -> None:
    text = unit * (10_000_000 // len(unit))
    began = time.thread_time()
    header(text)
    metas(*[text] * 50)
    assert time.thread_time() - began < 0.25, "what is beyond the bound costs nothing"
