"""The closing summary: numbers from the counters and from the store."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from greencrawl.cli.ui import display, summary
from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.records import (
    Attempt,
    Commit,
    Crawl,
    CrawlOptions,
    CrawlStats,
    Final,
    HostState,
    StoredPage,
)
from greencrawl.schema.records.auth import Basic
from greencrawl.store import Store, open_store

STATS = CrawlStats(
    crawl="example",
    state="done",
    reason="finished",
    stored=30,
    fetched=30,
    bytes=900,
    dead=1,
    hosts=2,
    failures={"timeout": 2, "robots": 4},
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path / 'content.sqlite'}")
    yield opened
    opened.close()


@pytest.fixture
def crawl(store: Store) -> Crawl:
    """Two pages, one dead letter, one URL gone, one excluded, one parked; a host that answered."""
    made = store.put_crawl(
        "example", CrawlOptions(seeds=("https://example.org/",)), ["example.org"]
    )
    work = Commit()
    for number, url in enumerate(("https://example.org/", "https://example.org/a"), start=1):
        work.pages.append(
            StoredPage(crawl=made.id, fingerprint=number, url=url, status=200, body=b"12345")
        )
        work.attempts.append(
            Attempt(
                crawl=made.id, fingerprint=number, url=url, code=200, kind="ok", errors=0,
                at_ms=number, elapsed_ms=500,
            )
        )  # fmt: skip
    for number, (state, kind) in enumerate(
        (("dead", "timeout"), ("gone", "gone"), ("excluded", "robots"), ("parked", "trap")),
        start=10,
    ):
        url = f"https://example.org/{state}"
        work.finals.append(
            Final(crawl=made.id, fingerprint=number, url=url, state=state, kind=kind)  # type: ignore[arg-type]
        )
    store.commit(work)
    return made


def test_the_rate_of_a_run_counts_only_its_own_pages() -> None:
    hosts = (HostState(host="slow.example", partition=0, latency=2.0),)
    made = summary.of_run(STATS, hosts, seconds=4.0, pages_before=10)
    assert (made.pages, made.seconds, made.pages_per_second) == (30, 4.0, 5.0)
    assert (made.dead, made.excluded, made.failures) == (1, 4, {"robots": 4, "timeout": 2})
    assert made.slowest_hosts[0].host == "slow.example"


def test_pages_whose_content_is_not_kept_are_no_failures(store: Store, crawl: Crawl) -> None:
    stats = replace(STATS, failures={"timeout": 2, "noindex": 1000})
    made = summary.of_run(stats, (), 4.0, 10)
    assert made.failures == {"timeout": 2}
    made = summary.with_store(made, store, "", "")
    assert made.withheld == {"noindex": 1000}
    shown = io.StringIO()
    summary.show(made, Console(file=shown, width=100))
    assert "content not kept  noindex 1,000" in shown.getvalue()


def test_a_summary_says_whether_bytes_were_transferred_or_are_stored(
    store: Store, crawl: Crawl
) -> None:
    made = summary.of_run(replace(STATS, bytes=5000), (), 4.0, 10)
    for one, said in (
        (made, "5.0 kB transferred"),
        (summary.with_store(made, store, "sqlite:///x", ""), "B stored"),
    ):
        shown = io.StringIO()
        summary.show(one, Console(file=shown, width=100))
        assert said in shown.getvalue()


def test_run_without_time_has_no_rate() -> None:
    assert summary.of_run(STATS, (), seconds=0.0, pages_before=0).pages_per_second == 0.0


def test_pages_and_final_states_are_counted_by_the_store(store: Store, crawl: Crawl) -> None:
    counters = summary.of_run(STATS, (), seconds=2.0, pages_before=1)
    made = summary.with_store(counters, store, "sqlite:///x", "greencrawl export")
    assert (made.pages, made.gone, made.dead, made.excluded, made.parked) == (2, 1, 1, 1, 1)
    assert made.hosts == 1
    assert made.slowest_hosts == (summary.HostTime("example.org", 0.5, 2),)


def test_a_crawl_that_was_not_done_is_summed_up_as_stopped(store: Store, crawl: Crawl) -> None:
    counters = summary.of_run(replace(STATS, state="active"), (), seconds=2.0, pages_before=1)
    assert summary.with_store(counters, store, "sqlite:///x", "").state == "stopped"


def test_the_summary_of_a_stopped_crawl_repeats_the_failed_tries_that_the_display_has_counted(
    store: Store,
) -> None:
    """They are no final states: the URLs wait for another try."""
    store.put_crawl("example", CrawlOptions(seeds=("https://example.org/",)), ["example.org"])
    stats = replace(STATS, state="active", later=3, dead=0, failures={"timeout": 2, "refused": 1})
    shown = io.StringIO()
    made = summary.with_store(summary.of_run(stats, (), 4.0, 10), store, "", "")
    summary.show(made, Console(file=shown, width=100))
    told = display.line(stats, 0.0, 1.0).partition("failed tries: ")[2]
    assert told == "timeout 2, refused 1"
    assert re.search(f"failed tries +{told} *\n", shown.getvalue())
    assert re.search("0 gone, 0 dead, 0 excluded *\n", shown.getvalue())
    assert made.failures == {}


def test_kinds_of_failure_are_shown_by_url_if_tries_are_not_the_same(
    store: Store, crawl: Crawl
) -> None:
    for one, said in (
        (
            summary.with_store(summary.of_run(STATS, (), 4.0, 10), store, "", ""),
            ["1 gone, 1 dead, 1 excluded (gone 1, robots 1, timeout 1)", "robots 4, timeout 2"],
        ),
        (
            summary.of_run(STATS, (), 4.0, 10),
            ["0 gone, 1 dead, 4 excluded\n", "robots 4, timeout 2"],
        ),
        (
            summary.of_store(store, crawl, "", ""),
            ["1 gone, 1 dead, 1 excluded (gone 1, robots 1, timeout 1)"],
        ),
    ):
        shown = io.StringIO()
        summary.show(one, Console(file=shown, width=100))
        assert all(re.sub(" +\n", "\n", shown.getvalue()).count(part) == 1 for part in said)
        assert ("failed tries" in shown.getvalue()) is (len(said) == 2)


def test_a_crawl_that_is_not_running_is_summed_up_from_the_store(
    store: Store, crawl: Crawl
) -> None:
    made = summary.of_store(store, crawl, "sqlite:///x", "greencrawl export example")
    assert made.failures == {"gone": 1, "robots": 1, "timeout": 1}
    assert (made.pages, made.hosts, made.seconds, made.parked) == (2, 1, 0.0, 1)


def test_the_time_between_two_runs_is_not_shown_as_time_of_work(store: Store, crawl: Crawl) -> None:
    ended = replace(crawl, started_ms=86_400_000, finished_ms=3 * 86_400_000)
    made = summary.of_store(store, ended, "sqlite:///x", "greencrawl export example")
    assert (made.seconds, made.pages_per_second) == (0.0, 0.0)
    out = io.StringIO()
    summary.show(made, Console(file=out, width=120))
    assert "pages/s" not in out.getvalue()
    assert re.search(r"began +1970-01-02 .*\nended +1970-01-04 ", out.getvalue())


def test_the_summary_table_shows_counts_failures_and_the_next_commands(
    store: Store, crawl: Crawl
) -> None:
    out = io.StringIO()
    made = summary.of_store(store, crawl, "sqlite:///x", "greencrawl export example")
    summary.show(made, Console(file=out, width=120))
    for part in (
        "2, 10 B", "1 gone, 1 dead, 1 excluded", "greencrawl export example", "timeout 1",
        "1 URL; see `greencrawl traps example`",
    ):  # fmt: skip
        assert part in out.getvalue()


def test_the_json_summary_has_every_field(tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    made = summary.of_run(STATS, (), seconds=4.0, pages_before=10)
    summary.write(made, file)
    assert set(json.loads(file.read_bytes())) == set(made.__struct_fields__)


def test_a_summary_file_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    made = summary.of_run(STATS, (), seconds=4.0, pages_before=10)
    with pytest.raises(GreencrawlError, match="cannot write the summary"):
        summary.write(made, tmp_path / "absent" / "summary.json")


def test_links_that_a_login_skips_are_counted_by_their_kind(store: Store) -> None:
    options = CrawlOptions(auth=(Basic(name="club", hosts=("example.org",)),))
    made = store.put_crawl("club", options, ["example.org"])
    finals = [
        Final(crawl=made.id, fingerprint=n, url=f"https://example.org/{n}/delete",
              state="excluded", kind=kind)
        for n, kind in enumerate(("action", "action", "robots"))
    ]  # fmt: skip
    store.commit(Commit(finals=finals))
    stats = replace(STATS, crawl="club")
    found = summary.with_store(summary.of_run(stats, (), 1.0, 0), store, "", "")
    assert found.failures == {"action": 2, "robots": 1}
    assert found.excluded == 3
