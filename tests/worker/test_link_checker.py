"""The link checker: which of a page's links are followed, and how soon."""

from __future__ import annotations

import pytest

from greencrawl.schema.net import scope
from greencrawl.schema.net.action_texts import texts_of
from greencrawl.schema.net.urls import resolved
from greencrawl.schema.records import (
    INDEX_STEP,
    Admission,
    Crawl,
    CrawlOptions,
    Link,
    Page,
    Task,
    TaskKind,
)
from greencrawl.schema.records.auth import Basic
from greencrawl.worker.link_checker import (
    MAX_LINKS,
    MAX_REDIRECTS,
    MAX_SKIPPED,
    Checker,
    redirect_problem,
    redirected,
)


def checker(**options: object) -> Checker:
    made = CrawlOptions(**options)  # type: ignore[arg-type]
    crawl = Crawl(id=1, name="t", state="active", options=made, roots=("h",))
    return Checker(crawl, scope.compile(crawl))


def page(*links: Link | str, **fields: object) -> Page:
    found = [Link(link) if isinstance(link, str) else link for link in links]
    return Page(url="http://h/dir/page", links=found, **fields)  # type: ignore[arg-type]


def urls(admissions: list[Admission]) -> list[str]:
    return [admission.url for admission in admissions]


def test_links_in_scope_are_taken_once_and_in_order() -> None:
    found = page("http://h/b", "http://elsewhere/", "http://h/a", "http://h/b")
    assert checker().check(found, found.links, 0) == [
        Admission("http://h/b", 1, 1),
        Admission("http://h/a", 1, 1),
    ]


def test_verdicts_on_the_long_urls_of_a_trap_take_no_memory() -> None:
    ours, found = checker(), page("http://h/" + "a" * 4000, "http://h/b")
    assert urls(ours.check(found, found.links, 0)) == [link.url for link in found.links]
    assert list(ours._verdicts) == ["http://h/b"]


def test_verdict_is_the_same_when_it_is_remembered() -> None:
    again, found = checker(exclude=("x$",)), page("http://h/ax", "http://h/a", "http://o/")
    first = again.check(found, found.links, 0)
    assert urls(again.check(found, found.links, 0)) == urls(first) == ["http://h/a"]


@pytest.mark.parametrize("rel", ["nofollow", "NoFollow", "noopener nofollow ugc"])
def test_nofollow_of_a_link_is_honoured(rel: str) -> None:
    found = page(Link("http://h/a", rel=rel), Link("http://h/b", rel="noopener"))
    assert urls(checker().check(found, found.links, 0)) == ["http://h/b"]


def test_nofollow_of_a_link_is_not_honoured_where_the_crawl_says_so() -> None:
    found = page(Link("http://h/a", rel="nofollow"), "http://h/b")
    ours = checker(nofollow="follow")
    assert urls(ours.check(found, found.links, 0)) == ["http://h/a", "http://h/b"]
    found = page(base="http://h/dir/page")
    again = ours.follow(found, ["http://h/a", "http://h/b"], ["nofollow", None], 0)
    assert urls(again) == ["http://h/a", "http://h/b"]
    closed = page("http://h/b", follow=False)
    assert ours.check(closed, closed.links, 0) == [], "that of a page is"


CLUB = (Basic(name="club", hosts=("http://h",)),)


def test_links_that_change_something_are_skipped_and_noted_once() -> None:
    ours = checker(auth=CLUB)
    given = [
        ("/a/1", "Title"),
        ("/a/1/删除/", "x"),
        ("/o?k=1", "删除"),
        ("/o?k=2", "删除"),
        ("/bye", "« Log out »"),
        ("/a/2", "Log out cable"),
    ]
    where = resolved([url for url, _ in given], "http://h/")
    texts = texts_of(zip(where, (text for _, text in given), strict=True))
    found = page(*where, base="http://h/dir/page")
    wanted = ["http://h/a/1", "http://h/a/2"]
    assert urls(ours.check(found, found.links, 0, texts)) == wanted
    skipped = ours.take_skipped()
    assert sorted(skipped) == sorted([where[1], where[2], where[3], where[4]])
    assert all(why.startswith("auth club: action '") for why in skipped.values())
    assert skipped[where[4]].endswith("in the text of a link on http://h/dir/page")
    assert urls(ours.follow(found, where, [None] * 6, 0, texts)) == wanted
    assert ours.take_skipped() == {}, "noted before"
    assert urls(checker().follow(found, where, [None] * 6, 0)) == where, "nobody is logged in"
    let = checker(auth=CLUB, follow_actions=("/bye$",))
    assert urls(let.follow(found, where, [None] * 6, 0, texts)) == [where[0], where[4], where[5]]
    off = checker(auth=(Basic(name="club", hosts=("http://h",), skip=()),))
    assert not off.wants_texts
    assert urls(off.follow(found, where, [None] * 6, 0)) == where


@pytest.mark.parametrize("follow", [False, True])
def test_a_link_that_is_an_action_is_skipped_though_a_rule_would_rewrite_it(follow: bool) -> None:
    """Here the original link would change something."""
    rules = ("tracking", "index", "query-order", "session-ids")
    club = Basic(name="club", hosts=("http://h",), skip=("utm_id=7",))
    given = [
        "http://h/a?utm_source=x&action=delete&id=1", "http://h/b?utm_id=7", "http://h/c?s=1",
        "http://h/o?k=1&b=2", "http://h/index.html", "http://h/logout;jsessionid=1",
    ]  # fmt: skip
    texts = texts_of([(given[3], "删除")])
    found = page(*given, base="http://h/dir/page")
    ours = checker(auth=(club,), normalise=rules)
    if follow:
        got = ours.follow(found, given, [None] * len(given), 0, texts)
    else:
        got = ours.check(found, found.links, 0, texts)
    assert urls(got) == ["http://h/c?s=1", "http://h/"]
    assert sorted(ours.take_skipped()) == [given[0], given[5], given[3]]


def test_links_of_a_hook_are_skipped_by_the_texts_that_the_page_has() -> None:
    found = page("http://h/o?k=1", "http://h/a")
    chosen = [Link("http://h/o?k=1", anchor="mine"), Link("http://h/a")]
    texts = texts_of([("http://h/o?k=1", "删除"), ("http://h/a", "")])
    assert urls(checker(auth=CLUB).check(found, chosen, 0, texts)) == ["http://h/a"]


def test_a_link_that_logs_out_by_its_text_is_skipped_where_it_is_an_icon_too() -> None:
    ours = checker(auth=CLUB)
    found = page(base="http://h/dir/page")
    where = ["http://h/bye", "http://h/a/1"]
    said = texts_of(zip(where, ["退出", "删除"], strict=True))
    assert urls(ours.follow(found, where, [None] * 2, 0, said)) == []
    silent = texts_of([(url, "") for url in where])
    assert urls(ours.follow(found, where, [None] * 2, 0, silent)) == where[1:]


def test_a_link_of_a_page_to_itself_is_not_skipped_as_an_action() -> None:
    where = ["http://h/a/1", "http://h/a/2"]
    found = Page(url=where[0], base=where[0])
    said = texts_of([(url, "Delete") for url in where])
    assert urls(checker(auth=CLUB).follow(found, where, [None] * 2, 0, said)) == where[:1]


def test_a_page_of_many_actions_has_a_bounded_number_noted() -> None:
    ours = checker(auth=CLUB)
    found = page(*[f"http://h/{n}/delete" for n in range(MAX_SKIPPED + 5)])
    assert ours.check(found, found.links, 0) == []
    assert len(ours.take_skipped()) == MAX_SKIPPED


def test_nofollow_of_a_page_is_honoured() -> None:
    found = page("http://h/a", follow=False)
    assert checker().check(found, found.links, 0) == []


def test_links_are_followed_down_to_the_depth_limit() -> None:
    found = page("http://h/a")
    limited = checker(depth=2)
    assert [a.depth for a in limited.check(found, found.links, 1)] == [2]
    assert limited.check(found, found.links, 2) == []


def test_links_of_a_page_beyond_the_bound_are_left_out() -> None:
    found = page(*(f"http://h/{i}" for i in range(MAX_LINKS + 5)))
    found.omitted_links = 2  # extraction did not look at 2 links
    found.links.append(Link("http://elsewhere/"))
    assert len(checker().check(found, found.links, 0)) == MAX_LINKS
    assert found.omitted_links == 7


@pytest.mark.parametrize("follow", [False, True])
def test_links_are_rewritten_by_the_rules_of_the_crawl_and_counted(follow: bool) -> None:
    ours = checker(normalise=("tracking", "index"), exclude=("utm_", "/secret/$"))
    found = page(
        "http://h/a?utm_source=1", "http://h/a", "http://h/secret/index.html", "http://h/b"
    )
    if follow:
        found.base = "http://h/"
        got = ours.follow(found, [link.url for link in found.links], [None] * 4, 0)
    else:
        got = ours.check(found, found.links, 0)
    assert urls(got) == ["http://h/a", "http://h/b"]
    assert found.rewritten_links == 2


def test_links_stay_as_they_are_where_the_crawl_has_no_rules() -> None:
    found = page("http://h/a?utm_source=1", "http://h/%7Eb/index.html")
    assert urls(checker().check(found, found.links, 0)) == [link.url for link in found.links]
    assert found.rewritten_links == 0


def test_links_of_a_hook_are_made_canonical_or_dropped() -> None:
    found = page("http://h/a", base="http://h/base/")
    chosen = [Link("../x#f"), Link("mailto:me@h"), Link("HTTP://H:80/y")]
    assert urls(checker().check(found, chosen, 0)) == ["http://h/x", "http://h/y"]


def test_best_first_puts_a_higher_score_on_an_earlier_level() -> None:
    found = page(Link("http://h/a", score=0.1), Link("http://h/b", score=0.9))
    low, high = checker(order="best").check(found, found.links, 0)
    assert high.level < low.level


def test_depth_first_order_prefers_deeper_links() -> None:
    found = page("http://h/a")
    made = checker(order="depth")
    near, far = (made.check(found, found.links, depth)[0] for depth in (0, 5))
    assert far.level < near.level


def follow(
    checker: Checker, found: Page, references: list[str], rels: list[str | None] | None = None
) -> list[Admission]:
    return checker.follow(
        found, resolved(references, found.base), rels or [None] * len(references), 0
    )


def test_references_are_followed_without_link_objects() -> None:
    found = page(follow=True, base="http://h/dir/page")
    references = ["a", "/b#x", "http://elsewhere/", "mailto:me@h", "a?b", "/dir/a", "http://h:81/"]
    assert follow(checker(), found, references) == [
        Admission("http://h/dir/a", 1, 1),
        Admission("http://h/b", 1, 1),
        Admission("http://h/dir/a?b", 1, 1),
    ]


@pytest.mark.parametrize(
    ("options", "asked_alone"),
    [
        ({}, ["http://h/", "http://elsewhere/"]),
        ({"scope": "prefix"}, ["http://h/dir/a", "http://elsewhere/"]),
        ({"include": ("a",)}, ["http://h/dir/a", "http://elsewhere/"]),
        ({"exclude": ("b",)}, ["http://h/dir/a", "http://elsewhere/"]),
    ],
)
def test_one_verdict_on_a_host_holds_for_its_links_if_the_scope_needs_no_more(
    options: dict[str, object], asked_alone: list[str]
) -> None:
    ours, found = checker(**options), page(base="http://h/dir/page")
    references = ["a", "http://elsewhere/"]
    assert urls(follow(ours, found, references)) == ["http://h/dir/a"]
    assert list(ours._verdicts) == asked_alone


def test_links_of_a_page_whose_base_is_out_of_scope_are_judged_one_by_one() -> None:
    found = page(base="http://elsewhere/")
    assert urls(follow(checker(), found, ["a", "http://h/a"])) == ["http://h/a"]


def test_nofollow_bars_a_url_only_if_all_its_references_say_so() -> None:
    found = page(base="http://h/")
    references, rels = (
        ["a", "b", "/b", "c", "a"],
        ["NoFollow", "nofollow", "ugc nofollow", "", None],
    )
    assert urls(follow(checker(), found, references, rels)) == ["http://h/a", "http://h/c"]


def test_page_without_follow_or_at_the_last_depth_is_not_followed() -> None:
    assert follow(checker(), page(base="http://h/", follow=False), ["a"]) == []
    assert follow(checker(depth=1), page(base="http://h/"), ["a"]) != []
    assert follow(checker(depth=0), page(base="http://h/"), ["a"]) == []


def test_verdicts_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greencrawl.worker.link_checker._VERDICTS", 5)
    ours = checker(exclude=("x$",))
    for i in range(20):
        found = page(*(f"http://h/{i}/{j}" for j in range(3)))
        assert len(ours.check(found, found.links, 0)) == 3
        assert len(ours._verdicts) <= 6


def test_a_redirect_keeps_its_depth_and_counts_redirects() -> None:
    task = Task(1, "http://h/a", depth=3, level=3, redirects=2)
    assert redirected(task, "http://h/b") == Admission("http://h/b", 3, 3, 3)


@pytest.mark.parametrize(
    ("task", "location", "said"),
    [
        (Task(1, "http://h/a"), "", "no Location"),
        (Task(1, "http://h/a"), "a#top", "to itself"),
        (Task(1, "http://h/a"), "ftp://h/", "neither http nor https"),
        (Task(1, "http://h/a", redirects=MAX_REDIRECTS), "/b", "more than 10 in a row"),
        (Task(1, "http://h/a", redirects=MAX_REDIRECTS - 1), "/b", ""),
        (Task(1, "http://h/a", redirects=INDEX_STEP + MAX_REDIRECTS - 1), "/b", ""),
        (Task(1, "http://h/a", redirects=INDEX_STEP + MAX_REDIRECTS), "/b", "more than 10 in a"),
    ],
)
def test_a_redirect_that_leads_nowhere_is_refused_with_a_reason(
    task: Task, location: str, said: str
) -> None:
    problem = redirect_problem(task, location)
    assert said in problem
    assert bool(problem) == bool(said)


def test_the_reason_for_a_refused_redirect_tells_no_password() -> None:
    problem = redirect_problem(Task(1, "http://h/"), "ftp://user:secret@h/")
    assert problem
    assert "secret" not in problem


def requisites(ours: Checker, found: Page, *given: str, depth: int = 0) -> list[Admission]:
    links = ours.check(found, found.links, depth)
    return ours.with_requisites(found, links, given, Task(1, found.url, depth))


def test_requisites_come_last_at_the_depth_of_their_page_from_any_host() -> None:
    found = page("http://h/b")
    assert requisites(checker(depth=3), found, "http://cdn/x", "http://h/y", depth=2) == [
        Admission("http://h/b", 3, 3),
        Admission("http://cdn/x", 2, 2, 0, TaskKind.REQUISITE),
        Admission("http://h/y", 2, 2, 0, TaskKind.REQUISITE),
    ]


def test_a_requisite_that_is_a_followed_link_too_is_admitted_as_a_link() -> None:
    found = page("http://h/b", Link("http://h/c", rel="nofollow"))
    admitted = requisites(checker(), found, "http://h/b", "http://h/c")
    assert [(one.url, one.kind) for one in admitted] == [
        ("http://h/b", TaskKind.PAGE), ("http://h/c", TaskKind.REQUISITE),
    ]  # fmt: skip


def test_requisites_are_not_subject_to_nofollow_depth_or_include() -> None:
    ours = checker(depth=0, include=("^never",))
    found = page("http://h/b", follow=False)
    assert urls(requisites(ours, found, "http://h/x", "http://cdn/x")) == [
        "http://h/x",
        "http://cdn/x",
    ]


def test_requisites_are_subject_to_exclude_and_actions() -> None:
    ours = checker(exclude=("ads[.]",), auth=CLUB)
    found = requisites(ours, page(), "http://ads.example/x", "http://h/logout", "http://h/x")
    assert urls(found) == ["http://h/x"]
    assert list(ours.take_skipped()) == ["http://h/logout"]


def test_links_and_requisites_together_are_bounded() -> None:
    links = [f"http://h/{number}" for number in range(MAX_LINKS - 1)]
    found = page(*links)
    admitted = requisites(checker(), found, "http://h/x", "http://h/y", "http://h/z")
    assert len(admitted) == MAX_LINKS
    assert admitted[-1].url == "http://h/x"
    assert found.omitted_links == 2


def test_a_redirected_requisite_stays_a_requisite() -> None:
    task = Task(1, "http://h/x", 2, 5, redirects=1, kind=TaskKind.REQUISITE)
    assert redirected(task, "http://h/y") == Admission("http://h/y", 2, 5, 2, TaskKind.REQUISITE)
