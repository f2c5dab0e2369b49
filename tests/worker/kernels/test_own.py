"""A user's own kernel in the pipeline: whatever it does, it harms only its page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gevent
import pytest

from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.records import (
    Admission,
    CrawlOptions,
    Dead,
    Done,
    Failure,
    FailureKind,
    Fetched,
    KernelRule,
    Retry,
    StoredPage,
    Task,
    TaskKind,
)
from greencrawl.worker.http.client import LeaseExpired
from greencrawl.worker.kernels.choosing import Kernels
from greencrawl.worker.kernels.judged import MOST_REQUESTS
from greencrawl.worker.kernels.own import MOST_FURTHER
from greencrawl.worker.link_checker import MAX_LINKS
from greencrawl.worker.process.crash_record import Suspect
from tests.support.own_kernels import Asking, Hostile
from tests.worker.test_pipeline import World, html, status

OWN = "tests.support.own_kernels"


def answer(body: str, **headers: str) -> Fetched:
    return html(body, content_type="application/x-own", **headers)


def rules(kind: str, match: str = "http://h/own/*") -> tuple[KernelRule, ...]:
    return (KernelRule(match=match, kernel=f"{OWN}:{kind}"),)


class Own(World):
    """A world in which one kernel handles all URLs below ``http://h/own/``."""

    def use(self, kind: str, **options: Any) -> None:
        self.set(kernels=rules(kind), **options)

    def read(self, word: str, body: str = "", **headers: str) -> None:
        self.site.answers[f"http://h/own/{word}"] = answer(body, **headers)
        self.run(f"http://h/own/{word}")

    @property
    def page(self) -> StoredPage:
        assert self.result.page is not None
        return self.result.page

    @property
    def detail(self) -> str:
        assert self.outcomes == [Dead("kernel")]
        return self.result.finals[0].detail


@pytest.fixture
def world(tmp_path: Path) -> Own:
    return Own(tmp_path)


# -- what a kernel returns


def test_the_reading_of_a_kernel_is_stored_and_its_links_meet_the_crawls_rules(world: Own) -> None:
    world.use("Plain", exclude=("private",))
    world.read("list", "Title\n/a\nhttp://other/\n/private\nhttp://h/a\n/own/b")
    page = world.page
    assert (page.title, page.text, page.fields) == ("Title", "of Title", {"lines": 5})
    assert [one.url for one in page.links] == ["http://h/a", "http://h/own/b"]
    assert {one.depth for one in page.links} == {1}
    assert page.items.startswith(b'[{"url":"/a"}')
    assert page.body, "it can be read again"
    assert world.result.attempts[-1].detail == "kernel lines"
    assert world.outcomes == [Done(stored=True, bytes=len(page.body))]


def test_further_pages_of_a_kernel_are_no_deeper_if_the_same_kernel_reads_them(world: Own) -> None:
    world.use("Plain", depth=0)
    listed = ["T", ">/own/2", ">/own/list", ">http://other/own/3", ">/else", "/own/4"]
    world.read("list", "\n".join(listed))
    assert world.page.links == [Admission("http://h/own/2", 0, 0)]
    world.stores.results.clear()
    world.use("Plain")
    world.read("list", "\n".join(listed))
    assert [(one.url, one.depth) for one in world.page.links] == [
        ("http://h/own/2", 0), ("http://h/own/4", 1), ("http://h/else", 1),
    ]  # fmt: skip


def test_further_pages_of_a_kernel_meet_the_crawls_rules(world: Own) -> None:
    world.use("Plain", exclude=("private",), scope="host")
    world.read("list", "T\n>/own/private")
    assert world.page.links == []


def test_further_pages_of_a_kernel_are_bounded_in_number(world: Own) -> None:
    world.use("Plain")
    world.read("list", "\n".join(["T", *(f">/own/{n}" for n in range(MOST_FURTHER + 50))]))
    assert len(world.page.links) == MOST_FURTHER


def test_directives_of_an_answer_hold_for_the_reading_of_a_kernel(world: Own) -> None:
    world.use("Plain")
    world.read("list", "Title\n/a", x_robots_tag="noindex, nofollow")
    page = world.page
    assert (page.title, page.text, page.fields, page.items, page.body) == ("", "", None, b"", b"")
    assert page.links == []


def test_urls_that_no_kernel_rule_matches_are_read_by_content(world: Own) -> None:
    world.use("Plain")
    world.site.answers["http://h/"] = html("<title>T</title>")
    world.run("http://h/")
    assert (world.page.title, world.result.attempts[-1].detail) == ("T", "")


def test_an_empty_answer_is_not_read_by_a_kernel(world: Own) -> None:
    world.use("Hostile")
    world.site.answers["http://h/own/raise"] = status(204)
    world.run("http://h/own/raise")
    assert world.outcomes == [Done(stored=True)]


def test_a_requisite_is_not_read_by_a_kernel(world: Own) -> None:
    world.use("Plain", requisites="on", include=("nothing",))
    world.site.answers["http://h/own/i"] = answer("T")
    world.run(Task(1, "http://h/own/i", 1, kind=TaskKind.REQUISITE))
    assert (world.page.title, world.page.body) == ("", b"T")


# -- kernels that harm their process


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("raise", "read: ValueError: not as it was"),
        ("exit", "read: SystemExit: 3"),
        ("none", "must return a Reading, not NoneType"),
        ("dict", "must return a Reading, not dict"),
        ("number", "read: "),
        ("surrogate", "read: "),
        ("fields", "read: "),
        ("records", "must yield dicts"),
        ("many", "more than 5,000 records"),
        ("endless", "found must be a list"),
        ("things", "read: "),
        ("long", "more than 33,554,432 bytes"),
        ("refuses", "not a list of ours"),
    ],
)
def test_a_wrong_read_of_a_kernel_costs_only_its_own_page(world: Own, word: str, says: str) -> None:
    world.use("Hostile")
    world.site.answers["http://h/own/good"] = answer("")
    world.site.answers[f"http://h/own/{word}"] = answer("")
    world.run(f"http://h/own/{word}", "http://h/own/good")
    bad, good = world.stores.results
    assert bad.outcome == Dead("kernel")
    assert bad.finals[0].detail.startswith("kernel hostile: ")
    assert says in bad.finals[0].detail
    assert good.page is not None
    assert good.page.title == "read"
    assert world.crash_record.suspect() is None


def test_a_million_links_of_a_kernel_are_bounded_as_those_of_any_page(world: Own) -> None:
    world.use("Hostile")
    world.read("links")
    assert len(world.page.links) == MAX_LINKS
    assert world.outcomes[0].kind == "links"
    assert "950,000 links were left out" in world.result.attempts[0].detail


def test_links_that_a_kernel_admits_itself_are_ignored(world: Own) -> None:
    world.use("Hostile")
    world.read("own-links")
    assert (world.page.links, world.page.items) == ([], b"")
    assert world.outcomes[0].kind != "costly", "nor does it charge the host"


def test_the_crash_record_names_the_page_while_a_kernel_reads_it(
    world: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked: list[object] = []
    read = Hostile.read

    def watched(*given: Any) -> Any:
        marked.append(world.crash_record.suspect())
        return read(*given)

    monkeypatch.setattr(Hostile, "read", watched)
    world.use("Hostile")
    world.read("good")
    assert [type(one) for one in marked] == [Suspect]


# -- requests of a kernel


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("raise", "fetch: ValueError: not as it was"),
        ("exit", "fetch: SystemExit: 3"),
        ("none", "must return Fetched or Failure, not NoneType"),
        ("text", "must return Fetched or Failure, not str"),
        ("body", "fetch: "),
        ("status", "a status of 0"),
        ("header", "header 'x' cannot be sent like this"),
        ("foreign", "is at another host than h: let it be a link"),
        ("other?get=http://h.evil/", "is at another host than h"),
        ("other?get=http://h:8080/", "is at another host than h"),
        ("other?get=ftp://h/", "InvalidUrl"),
        ("other?put=http://h/a", "'PUT' is none of GET, HEAD, POST"),
        ("other?get=http://h/private", "is not asked for: robots.txt: Disallow: /private"),
        ("other?get=http://h/secret", "is not asked for: exclude pattern '^http://h/secret'"),
        ("many", f"{MOST_REQUESTS} requests were made for one page"),
    ],
)
def test_a_wrong_fetch_of_a_kernel_costs_its_page_and_sends_nothing_more(
    world: Own, word: str, says: str
) -> None:
    world.use("Asking", exclude=("^http://h/secret",))
    world.site.answers["http://h/robots.txt"] = answer("User-agent: *\nDisallow: /private")
    world.site.answers["http://h/own/good"] = answer("good")
    world.site.answers[f"http://h/own/{word}"] = answer("first")
    world.run(f"http://h/own/{word}", "http://h/own/good")
    bad, good = world.stores.results
    assert bad.outcome == Dead("kernel")
    assert bad.finals[0].detail.startswith("kernel asking: ")
    assert says in bad.finals[0].detail
    assert set(world.site.pages) == {f"http://h/own/{word}", "http://h/own/good"}
    assert len(world.site.pages) <= MOST_REQUESTS + 1
    assert good.page is not None
    assert good.page.title == "good"
    assert (world.crash_record.suspect(), world.memory_budget.bytes) == (None, 0)


def test_a_further_request_of_a_kernel_is_paced_and_counted(world: Own) -> None:
    world.use("Asking")
    world.site.answers["http://h/own/joined"] = answer("one ")
    world.site.answers["http://h/more"] = answer("two")
    close = world.run("http://h/own/joined", delay=3.0)
    assert close is not None
    assert close.report.requests == 3, "robots.txt among them"
    assert world.stopping.waits == [3, 3]
    assert (world.page.title, world.page.headers["x-made"]) == ("one two", "here")
    assert world.site.headers[-1]["x-part"] == "2"
    assert world.page.fetched_ms > 0


def test_a_post_of_a_kernel_goes_without_credentials(
    world: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    get = world.errands.get
    monkeypatch.setattr(
        world.errands, "get", lambda visit, url, *rest: asked.append(url) or get(visit, url, *rest)
    )
    world.use("Asking")
    world.site.answers["http://h/own/other?post=http://h/api"] = answer("")
    world.site.answers["http://h/api"] = answer("posted")
    world.run("http://h/own/other?post=http://h/api")
    assert world.page.title == "posted"
    assert asked == ["http://h/own/other?post=http://h/api"]


def test_the_crash_record_names_the_page_while_a_kernel_fetches_except_while_it_waits(
    world: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[object] = []
    marked: list[object] = []
    world.site.meanwhile = lambda _: waiting.append(world.crash_record.suspect())
    fetch = Asking.fetch

    def watched(*given: Any) -> Any:
        marked.append(world.crash_record.suspect())
        made = fetch(*given)
        marked.append(world.crash_record.suspect())
        return made

    monkeypatch.setattr(Asking, "fetch", watched)
    world.use("Asking")
    world.read("good", "good")
    assert [type(one) for one in marked] == [Suspect, Suspect]
    assert waiting == [None, None]
    assert world.crash_record.suspect() is None


def test_a_kernel_cannot_catch_the_end_of_its_lease(world: Own) -> None:
    world.use("Asking")
    world.site.answers["http://h/own/caught"] = answer("first")
    world.site.answers["http://h/over"] = LeaseExpired("late")
    assert world.run("http://h/own/caught") is None
    assert world.stores.results == []


@pytest.mark.parametrize("word", ["parallel", "left"])
def test_a_kernel_makes_one_request_at_a_time_and_none_after_its_fetch(
    world: Own, word: str
) -> None:
    world.use("Asking")
    Asking.answers.clear()
    under_way: list[int] = [0]

    def slowly(url: str) -> None:
        under_way[0] += 1
        assert under_way == [1], url
        gevent.sleep(0.01)
        under_way[0] -= 1

    world.site.meanwhile = slowly
    world.site.answers[f"http://h/own/{word}"] = answer("first")
    world.site.answers["http://h/own/good"] = answer("good")
    world.run(f"http://h/own/{word}", "http://h/own/good")
    assert [type(one) for one in world.outcomes] == [Done, Done]
    gevent.sleep(0)
    refused = [one for one in Asking.answers if isinstance(one, Failure)]
    assert len(refused) == len(Asking.answers) - 1 > 0
    assert {one.detail.partition(",")[0] for one in refused} == {"one request at a time"}
    assert len(world.site.pages) == 3
    assert (world.crash_record.suspect(), world.memory_budget.bytes) == (None, 0)


def test_answers_that_a_kernel_keeps_are_in_hand_until_it_returns(world: Own) -> None:
    world.use("Asking", max_body_bytes=1024)
    Asking.answers.clear()
    held: list[int] = []
    for number in range(5):
        world.site.answers[f"http://h/part-{number}"] = answer("x" * 400)
    world.site.answers["http://h/own/unread"] = answer("first")
    world.site.answers["http://h/own/good"] = answer("good")
    world.site.meanwhile = lambda _: held.append(world.memory_budget.bytes)
    world.run("http://h/own/unread", "http://h/own/good")
    assert held == [0, 0, 5, 405, 805, 0]
    refused = [one for one in Asking.answers if isinstance(one, Failure)]
    assert [one.detail for one in refused] == [
        "answers of 1,205 bytes are in hand: no more requests are made"
    ] * 2
    assert isinstance(world.outcomes[0], Retry)
    assert world.outcomes[0].kind == "timeout"
    assert world.stores.results[0].attempts[0].detail.startswith("kernel asking: it is not wanted")
    assert world.outcomes[1].stored
    assert world.memory_budget.bytes == 0


def test_a_body_that_a_kernel_makes_is_cut_at_the_limit(world: Own) -> None:
    world.use("Asking", max_body_bytes=1024)
    world.read("long")
    assert (len(world.page.body), world.page.truncated) == (1024, True)


# -- suspects


def test_a_suspect_of_a_kernel_is_fetched_and_read_in_quarantine(world: Own) -> None:
    world.use("Asking")
    world.site.answers["http://h/own/joined"] = answer("one ")
    world.site.answers["http://h/more"] = answer("two")
    world.run(Task(1, "http://h/own/joined", deliveries=4))
    assert world.page.title == "one two"
    assert world.quarantine.read_ == ["http://h/own/joined"] * 2


# -- classes that are no kernels


@pytest.mark.parametrize(
    ("named", "says"),
    [
        (f"{OWN}:Nobody", "has no class Nobody"),
        (f"{OWN}:OWN", "has no class OWN"),
        ("tests.support.nowhere:X", "cannot import 'tests.support.nowhere'"),
        (f"{OWN}:Nameless", "name must be"),
        (f"{OWN}:Greedy", "name must be"),
        (f"{OWN}:Narrow", "has no fetch"),
        (f"{OWN}:Unmade", "cannot be made: OSError: no browser here"),
    ],
)
def test_a_class_that_is_no_kernel_is_refused(named: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        Kernels(CrawlOptions(kernels=(KernelRule(match="*", kernel=named),)))


def test_two_kernels_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="the same name"):
        Kernels(CrawlOptions(kernels=rules("Plain") + rules("Twin")))


def test_a_failure_of_the_host_names_the_kernel(world: Own) -> None:
    world.use("Plain")
    world.site.answers["http://h/own/a"] = Failure(FailureKind.TIMEOUT, "late")
    world.run("http://h/own/a", "http://h/own/b")
    assert [one.attempts[0].detail for one in world.stores.results] == [
        "kernel lines: late", "kernel lines: HTTP 404",
    ]  # fmt: skip
