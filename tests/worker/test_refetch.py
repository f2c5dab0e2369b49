"""Which header fields ask for a page only if it has changed, and for which crawls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from greencrawl.schema.net.urls import fingerprint
from greencrawl.schema.records import (
    Crawl,
    CrawlOptions,
    Failure,
    FailureKind,
    Fetched,
    KernelRule,
    Session,
    Task,
    TaskKind,
    Validators,
)
from greencrawl.schema.records.auth import Basic
from greencrawl.worker.crawls import CrawlContext, context_of
from greencrawl.worker.refetch import conditions, fields_of, is_unchanged, with_conditions

DATE = "Wed, 21 Oct 2015 07:28:00 GMT"


class Pages:
    """The store's answer; ``asked`` has the fingerprints of each question."""

    def __init__(self, known: dict[int, Validators]) -> None:
        self.known = known
        self.asked: list[list[int]] = []

    def with_page(self, crawl: int, fingerprints: Sequence[int]) -> frozenset[int]:
        raise AssertionError("nothing is parked")

    def validators(self, crawl: int, fingerprints: list[int]) -> dict[int, Validators]:
        self.asked.append(fingerprints)
        return {number: self.known[number] for number in fingerprints if number in self.known}


def url(number: int) -> str:
    return f"http://a.example/{number}"


def context(**options: Any) -> CrawlContext:
    given = CrawlOptions(scope="any", **options)
    return context_of(Crawl(id=1, name="c", state="active", options=given))


def session(*kinds: TaskKind) -> Session:
    tasks = tuple(Task(number=n, url=url(n), kind=kind) for n, kind in enumerate(kinds, 1))
    return Session(
        session="1/a.example", token="0" * 16, crawl=1, revision=1, host="a.example", ttl=60,
        delay=0, floor=0, robots_known=True, tasks=tasks,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("etag", "sent"),
    [
        ('"a"', True), ('W/"a-1"', True), ('""', True), ('"caf\xe9"', True),
        ("", False), ("a", False), ('"a', False), ('w/"a"', False), ('"a", "b"', False),
        ('"a b"', False), ('"\t"', False), (f'"{"a" * 257}"', False),
    ],
)  # fmt: skip
def test_an_entity_tag_is_sent_unchanged_only_if_it_is_valid(etag: str, sent: bool) -> None:
    assert fields_of(Validators(etag)) == ({"if-none-match": etag} if sent else {})


@pytest.mark.parametrize(
    ("date", "sent"),
    [
        (DATE, True), ("Wednesday, 21-Oct-15 07:28:00 GMT", True),
        ("", False), ("0", False), ("yesterday", False), (DATE + " " * 40, False),
        ("Wed, 21 Oct 20\xb25 07:28:00 GMT", False),
    ],
)  # fmt: skip
def test_a_last_modified_time_is_sent_unchanged_only_if_it_is_valid(date: str, sent: bool) -> None:
    assert fields_of(Validators("", date)) == ({"if-modified-since": date} if sent else {})


def test_both_validators_are_sent_if_the_server_sent_both() -> None:
    assert fields_of(Validators('"a"', DATE)) == {
        "if-none-match": '"a"', "if-modified-since": DATE,
    }  # fmt: skip


def test_validators_are_looked_up_together_and_only_for_the_refetches_of_a_session() -> None:
    known = {fingerprint(url(n)): Validators(f'"{n}"') for n in (1, 2, 3)}
    known[fingerprint(url(4))] = Validators("no tag")
    store: Any = Pages(known)
    kinds = (TaskKind.REFETCH, TaskKind.PAGE, TaskKind.REFETCH, TaskKind.REFETCH, TaskKind.REFETCH)
    found = conditions(store, fingerprint, context(), session(*kinds))
    assert found == {1: {"if-none-match": '"1"'}, 3: {"if-none-match": '"3"'}}
    assert store.asked == [[fingerprint(url(n)) for n in (1, 3, 4, 5)]]
    assert conditions(store, fingerprint, context(), session(TaskKind.PAGE, TaskKind.PAGE)) == {}
    assert len(store.asked) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"hook": "tests.support.deadly_hook"},
        {"auth": (Basic(name="shop", hosts=("a.example",)),)},
        {"kernels": (KernelRule(match="*", kernel="tests.support.own_kernels:Asking"),)},
    ],
)
def test_a_crawl_with_a_hook_a_login_or_a_kernel_sends_no_validators(
    options: dict[str, Any],
) -> None:
    store: Any = Pages({fingerprint(url(1)): Validators('"1"')})
    assert conditions(store, fingerprint, context(**options), session(TaskKind.REFETCH)) == {}
    assert store.asked == []


def test_conditional_headers_are_added_only_for_their_own_task() -> None:
    asked, headers = {1: {"if-none-match": '"1"'}}, {"accept": "*/*"}
    first, second = (Task(number=n, url=url(n)) for n in (1, 2))
    assert with_conditions(asked, first, headers) == {"accept": "*/*", "if-none-match": '"1"'}
    assert with_conditions(asked, second, headers) is headers
    assert with_conditions({}, first, headers) is headers


def test_a_304_means_unchanged_only_after_a_conditional_request() -> None:
    asked, task = {1: {"if-none-match": '"1"'}}, Task(number=1, url=url(1))
    same = Fetched(url(1), 304, {}, b"")
    assert is_unchanged(same, task, asked)
    assert not is_unchanged(same, Task(number=2, url=url(2)), asked)
    assert not is_unchanged(Fetched(url(1), 200, {}, b""), task, asked)
    assert not is_unchanged(Failure(FailureKind.TIMEOUT), task, asked)
