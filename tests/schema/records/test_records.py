"""Records in the form in which they are stored."""

from __future__ import annotations

import json

import pytest

from greencrawl.schema.records import (
    Admission,
    CrawlOptions,
    Done,
    Final,
    HostReport,
    Recrawl,
    SeedRequest,
    TaskKind,
    kept_options,
    pack_redirects,
    unpack_redirects,
)
from greencrawl.schema.records.auth import Basic
from greencrawl.schema.wire import from_json, from_msgpack, to_json, to_msgpack


def test_options_unknown_to_an_earlier_version_are_stored_only_if_they_are_used() -> None:
    plain = CrawlOptions(seeds=("https://a.org/",), depth=3)
    assert {"auth", "sources"}.isdisjoint(json.loads(kept_options(plain)))
    assert from_json(kept_options(plain), CrawlOptions) == plain
    assert b"traps" not in kept_options(plain)
    assert b"recrawl" not in kept_options(plain)
    begins_again = CrawlOptions(recrawl=Recrawl(every="90m"))
    assert from_json(kept_options(begins_again), CrawlOptions) == begins_again
    assert begins_again.recrawl is not None
    assert begins_again.recrawl.every_ms == 90 * 60_000
    unlike = CrawlOptions(traps="off", host_pages=7, shape_pages=9)
    assert b'"traps":"off"' in kept_options(unlike)
    assert from_json(kept_options(unlike), CrawlOptions) == unlike
    entry = CrawlOptions(auth=(Basic(name="a", hosts=("a.org",)),))
    assert from_json(kept_options(entry), CrawlOptions) == entry
    assert {"nofollow", "follow_actions"}.isdisjoint(json.loads(kept_options(plain)))
    assert "skip" not in json.loads(kept_options(entry))["auth"][0], "theirs is no empty list"
    off = CrawlOptions(auth=(Basic(name="a", hosts=("a.org",), skip=()),))
    assert json.loads(kept_options(off))["auth"][0]["skip"] == []
    assert from_json(kept_options(off), CrawlOptions) == off
    used = CrawlOptions(
        auth=(Basic(name="a", hosts=("a.org",), skip=("x",)),),
        nofollow="follow",
        follow_actions=("y",),
    )
    assert from_json(kept_options(used), CrawlOptions) == used


def test_a_host_report_without_a_reason_has_no_field_unknown_to_an_earlier_broker() -> None:
    sent = json.loads(to_json(HostReport(failed="refused", requests=1)))
    assert sent.keys().isdisjoint({"why", "put_off", "traps"})


def test_an_outcome_without_rewritten_links_has_no_field_unknown_to_an_earlier_broker() -> None:
    assert "rewritten" not in json.loads(to_json(Done(stored=True, bytes=3)))
    assert from_json(to_json(Done(rewritten=2)), Done) == Done(rewritten=2)


@pytest.mark.parametrize("kind", TaskKind)
@pytest.mark.parametrize("redirects", [0, 1, 63])
def test_a_tasks_kind_and_redirects_are_kept_in_one_number(kind: TaskKind, redirects: int) -> None:
    packed = pack_redirects(Admission("http://h/", redirects=redirects, kind=kind))
    assert unpack_redirects(packed) == (redirects, kind)
    numbers = {
        "PAGE": 0, "ROBOTS": 64, "ERRAND": 128, "SITEMAP": 192, "REQUISITE": 256,
        "SITEMAP_GUESS": 320, "CANONICAL": 384, "REFETCH": 448, "REREAD": 512,
    }  # fmt: skip
    assert packed == redirects + numbers[kind.name]


def test_a_stored_list_of_links_without_task_kinds_can_be_read() -> None:
    old = to_msgpack([["http://h/a", 2, 1, 1], ["http://h/b"]])
    assert from_msgpack(old, list[Admission]) == [
        Admission("http://h/a", 2, 1, 1), Admission("http://h/b")
    ]  # fmt: skip


def test_a_url_with_a_final_state_is_queued_again_with_its_former_task() -> None:
    last = Final(
        crawl=1, fingerprint=2, url="http://h/i", state="dead", kind="reset", depth=3, level=4,
        task=TaskKind.REQUISITE,
    )  # fmt: skip
    assert last.again == Admission("http://h/i", 3, 4, kind=TaskKind.REQUISITE)


def test_a_plain_request_for_seeds_has_no_field_unknown_to_an_earlier_version() -> None:
    assert to_json(SeedRequest(("http://h/",))) == b'{"urls":["http://h/"]}'
