"""Each judge of crawls that begin again can fail; and the data of a real frontier are read."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as replaced

from greencrawl.broker.frontier import Frontier
from greencrawl.schema.records import (
    Admission,
    Commit,
    CrawlOptions,
    LeaseRequest,
    Recrawl,
)
from greencrawl.store import open_store
from tests.nemesis import periods, reading, refetches, site
from tests.nemesis.checker import Hit
from tests.nemesis.periods import Period, Plan, Row, Suspects, Tasks
from tests.nemesis.refetches import Harm, Leases
from tests.nemesis.schedule import make
from tests.nemesis.site import Graph
from tests.support.redis_server import RedisServer
from tests.support.store_records import page

GRAPH = Graph(3, 0, 4, 6)
HOST = site.address(0)
SEED = f"http://{HOST}:80/{GRAPH.tag}/p/0"
PAGE = f"http://{HOST}:80/{GRAPH.tag}/p/1"
GONE = f"http://{HOST}:80/{GRAPH.tag}/missing/6"
PERIODS = [Period(0, 20, 1000), Period(30, 50, 1030), Period(60, 80, 1060)]


def plan(**given: object) -> Plan:
    found = Plan(
        1, "r0", "resting", list(PERIODS), {1: SEED, 2: PAGE}, {3: GONE},
        {1: Row(1061, 0, 9), 2: Row(1061, 0, 9), 3: Row(1090, 0, 9)},
    )  # fmt: skip
    return replace(found, **given)  # type: ignore[arg-type]


def hits(n: int, *times: float) -> list[Hit]:
    return [Hit(at, at + 0.1, HOST, f"/{GRAPH.tag}/p/{n}", 200, 1) for at in times]


def told(log: list[Hit], *harms: Harm, all_pages: bool = True) -> list[str]:
    turns = periods.turns(plan(), [SEED], all_pages=all_pages)
    return [one.kind for one in refetches.judge(log, Leases(), harms, {}, (), turns)[0]]


def test_a_known_url_may_be_requested_once_a_period_and_no_more() -> None:
    assert told(hits(1, 10, 35, 65)) == []
    assert told(hits(1, 10, 35, 40, 65)) == ["refetched"]
    assert told(hits(1, 10, 35, 40, 65), Harm(34, 38)) == [], "it was leased at a fault"
    assert told(hits(1, 10, 35, 40, 65), Harm(61, 70)) == ["refetched"], "that was another period"
    assert told(hits(0, 10, 35, 36, 65)) == ["refetched"]


def test_only_seeds_may_be_requested_again_if_the_recrawl_depth_is_zero() -> None:
    assert told(hits(0, 10, 35, 65), all_pages=False) == []
    assert told(hits(0, 10, 35, 40), all_pages=False) == ["refetched"]
    assert told(hits(1, 10, 35), all_pages=False) == ["refetched"]


def test_a_node_that_came_back_older_explains_one_more_request_for_each_url_it_holds() -> None:
    place = f"{HOST}/{GRAPH.tag}/p/1"
    older = Harm(20, 25, ("A",), held=frozenset({place}), since=2, stroke="older")
    log = hits(1, 10, 28, 40, 65)
    assert told(log) == ["refetched"]
    assert told(log, older) == []
    assert told(hits(1, 10, 65), older) == [], "what waits there is what its date asks for"
    assert told(hits(1, 10, 65, 70), older) == ["refetched"]
    assert told(log, replace(older, held=frozenset())) == ["refetched"]


def test_a_period_that_ended_after_the_log_was_read_is_not_judged() -> None:
    log = hits(0, 5, 31) + hits(1, 10, 35)
    found = plan().ended_by(79)
    assert periods.passed_over(found, log, [SEED], {}, all_pages=True) == []
    found = plan().ended_by(80)
    (passed_over,) = periods.passed_over(found, log, [SEED], {}, all_pages=True)
    assert "period 3" in passed_over.text


def passed(log: list[Hit], failed: dict[str, int], *, all_pages: bool = True) -> list[str]:
    found = periods.passed_over(plan(), log, [SEED], failed, all_pages=all_pages)
    return [one.text.partition(" nobody")[0] for one in found]


def test_a_known_url_without_a_request_in_a_period_is_found() -> None:
    seed = hits(0, 5, 31, 61)
    assert passed(seed + hits(1, 10, 35, 65), {}) == []
    assert passed(seed + hits(1, 10, 65), {}) == ["crawl r0: in period 2"]
    assert passed(seed + hits(1, 10), {}) == ["crawl r0: in period 2", "crawl r0: in period 3"]
    assert passed(seed + hits(1, 45), {}) == ["crawl r0: in period 3"], "it was new in the second"
    assert passed(seed + hits(1, 10), {}, all_pages=False) == []
    assert passed(hits(0, 5, 61) + hits(1, 10), {}, all_pages=False) == ["crawl r0: in period 2"]
    assert passed(seed + hits(1, 10), {PAGE: 1}) == [], "nobody knows when it was stored"
    assert passed(seed + hits(1, 10), {GONE: 9}) == [], "the host was down"


def test_every_page_and_gone_url_has_a_calendar_row_that_waits_while_the_crawl_rests() -> None:
    assert periods.broken(plan()) == {}
    rows = plan().rows
    without = plan(rows={1: rows[1]})
    assert periods.broken(without) == {"are known and have no row": {2, 3}}
    assert periods.broken(replace(without, state="active")) == periods.broken(without)
    on_way = plan(rows={**rows, 2: Row(1000, 7, 9)})
    assert periods.broken(on_way) == {"are on their way though the crawl rests": {2}}
    due = plan(rows={**rows, 2: Row(1060, 0, 9), 3: Row(periods.RETIRED_S, 0, 9)})
    assert periods.broken(due) == {"are due though the crawl rests": {2}}
    assert periods.broken(replace(due, state="active")) == {}
    assert periods.broken(replace(on_way, state="active")) == {}
    (finding,) = periods.findings(due, periods.broken(due), 5.0)
    assert finding.kind == "calendar"
    assert PAGE in finding.text


def test_a_calendar_row_on_its_way_has_exactly_one_task() -> None:
    before = plan(state="active", rows={**plan().rows, 2: Row(1060, 7, 9)})

    def told(after: Plan, **of: int) -> periods.Wrong:
        there = Tasks(Counter({PAGE: of.get("page", 0), SEED: of.get("seed", 0)}))
        return periods.suspicious(before, there, after) | periods.doubled(before, there)

    assert told(before, page=1) == {}
    assert told(before) == {"are on their way, and nothing waits": {2}}
    assert told(replace(before, rows=plan().rows)) == {}, "it was fetched meanwhile"
    assert told(before, page=1, seed=2) == {"have more than one task": {1}}


def test_a_row_that_moves_between_two_reads_is_not_judged_by_one_look() -> None:
    one, wrong = plan(), {"are on their way, and nothing waits": {1}}
    suspects = Suspects()
    assert suspects.confirmed(wrong, one, 10) == {}
    assert suspects.confirmed(wrong, one, 15) == {}
    assert suspects.confirmed(wrong, one, 16) == wrong
    assert suspects.confirmed({}, one, 17) == {}
    assert suspects.confirmed(wrong, one, 18) == {}
    fetched = plan(rows={**one.rows, 1: Row(1061, 0, 17)})
    assert suspects.confirmed(wrong, fetched, 30) == {}, "it is another task"


def test_a_crawl_may_be_stopped_when_it_rests_after_a_whole_period_without_a_fault() -> None:
    assert periods.rests_after(plan(), 55)
    assert not periods.rests_after(plan(), 65)
    assert not periods.rests_after(plan(state="active"), 55)


def test_every_schedule_has_crawls_that_begin_again() -> None:
    for seed in range(5):
        events = make(seed, "sqlite", 3).events
        again = [one.arguments for one in events if "recrawl" in one.arguments]
        assert [one["recrawl"]["depth"] for one in again] == ["all", 0]
        ended = {one.arguments["crawl"] for one in events if one.kind == "delete"}
        assert not ended & {one["crawl"] for one in again}


def test_calendars_and_tasks_are_read_from_a_real_frontier(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'c.sqlite'}"
    store = open_store(url)
    frontier = Frontier([redis_server.url], store, partitions=4, create=True)
    again = Recrawl(every="1h", depth="all")
    crawl = store.put_crawl("c", CrawlOptions(scope="any", recrawl=again), ())
    frontier.put_crawl(crawl)
    store.commit(Commit(pages=[replaced(page(crawl.id, frontier.fingerprint(SEED)), url=SEED)]))
    many = [f"http://{HOST}:8080/{GRAPH.tag}/p/{n}" for n in range(60)]
    few = [f"http://{site.address(1)}:8080/{GRAPH.tag}/p/{n}" for n in range(2)]
    frontier.admit(crawl.id, [Admission(one, 1) for one in many + few])
    client = redis_server.client

    def there(number: int) -> Tasks:
        found = Tasks()
        periods.note_tasks(found, client, number)
        return found

    assert there(crawl.id).of == dict.fromkeys(many + few, 1)
    assert there(crawl.id).refetches.total() == 0
    assert there(crawl.id + 1).of == {}
    frontier.start()
    assert frontier.lease(
        LeaseRequest(worker="w1-0", incarnation=1, sequence=1, max_sessions=1, tasks_per_session=5)
    ).sessions
    assert there(crawl.id).of == dict.fromkeys(many + few, 1)
    frontier.stop()
    found = periods.read(reading.Sql(url), crawl.id)
    assert found is not None
    assert (found.name, found.state, list(found.pages.values())) == ("c", "active", [SEED])
    (row,) = found.rows.values()
    assert row.due_s == found.periods[0].started_s + 1 if found.periods else row.due_s
    assert not row.queued
    assert found.rows.keys() == found.pages.keys()
    assert periods.read(reading.Sql(url), crawl.id + 1) is None
    store.close()
