"""A second request is found unless a fault may have caused it, by the leases at that time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from greencrawl.broker.frontier import Frontier
from greencrawl.schema.records import (
    Admission,
    CrawlOptions,
    Done,
    FinishItem,
    LeaseRequest,
    Retry,
    Task,
)
from greencrawl.store import open_store
from tests.nemesis import reading, site
from tests.nemesis.checker import Finding, Hit
from tests.nemesis.faults import Done as Stroke
from tests.nemesis.reading import Session
from tests.nemesis.refetches import Harm, Leases, harms_of, judge
from tests.nemesis.schedule import Event
from tests.nemesis.site import Graph
from tests.support.redis_server import RedisServer

GRAPH = Graph(3, 0, 4, 6)
HOST = site.address(0)
"""A place on node A; the next one is on node B."""
OTHER = site.address(1)


def hit(at: float, n: int, host: str = HOST, status: int = 200) -> Hit:
    return Hit(at, at + 0.1, host, f"/{GRAPH.tag}/p/{n}", status, 1)


def leases(log: list[Hit], worker: str = "w1") -> Leases:
    """Return the leases if each URL is leased for a second before its request and after it."""
    found = Leases()
    looks = [(one.arrived + step / 2, one) for one in log for step in range(-2, 3)]
    for at, one in sorted(looks, key=lambda look: look[0]):
        node = "A" if one.host == HOST else "B"
        token = f"{one.target}{one.arrived}"
        found.note(node, at, [Session(token, worker, one.host, (one.host + one.target,))])
    return found


def told(log: list[Hit], *harms: Harm, worker: str = "w1", **allowed: int) -> list[Finding]:
    more = {f"{HOST}/{GRAPH.tag}/p/{name[1:]}": count for name, count in allowed.items()}
    return judge(log, leases(log, worker), harms, more)[0]


def test_a_brief_stop_does_not_explain_that_every_url_was_fetched_twice() -> None:
    first = [hit(n / 2, n) for n in range(200)]
    again = [hit(200 + n / 2, n) for n in range(200)]
    brief = Harm(150, 165, worker="w1", stroke="stop")
    (found,) = told(first + again, brief)
    assert found.kind == "refetched"
    assert "200 URLs" in found.text
    # The fault explains only URLs that were leased at its start.
    found, many = told(first + again, Harm(50, 51, worker="w1", stroke="stop"))
    assert f" {200 - 13} URLs" in found.text  # leased from 47 to 51, requested from 46 to 52
    assert many.text == "stop: 13 URLs asked for again, at most 5 were leased"


def test_a_url_that_was_never_settled_is_judged_only_by_its_number_of_requests() -> None:
    """A page above a crawl's limit is not stored: any fault may bring it again, once."""
    log = [hit(10, 1), hit(30, 1)]
    assert told(log, Harm(20, 25, ("A",)), p1=0) == [], "nothing was leased then"
    assert told(log, Harm(40, 45, ("A",)), p1=0) != []
    assert told([*log, hit(35, 1)], Harm(20, 25, ("A",)), p1=0) != []


def test_a_fault_explains_only_requests_that_it_concerned() -> None:
    log = [hit(10, 1), hit(30, 1)]
    assert told(log) != []
    assert told(log, Harm(11, 15)) == []
    assert told(log, Harm(11, 15, ("A",))) == []
    assert told(log, Harm(11, 15, ("B",))) != []
    assert told(log, Harm(11, 15, worker="w1")) == []
    assert told(log, Harm(11, 15, worker="w2")) != []
    assert told(log, Harm(31, 40)) != []  # it came after
    assert told(log, Harm(15, 40)) != []  # the URL was settled by then
    # The second session does not explain its own existence.
    assert told(log, Harm(28, 40, worker="w1")) != []


def test_a_fault_explains_one_more_request_and_not_two() -> None:
    log = [hit(10, 1), hit(12, 1), hit(14, 1)]
    cut = Harm(9, 20, stroke="cut 9")
    assert told(log, cut, cut) != []
    assert told(log, cut, Harm(10, 20, stroke="cut 10")) == []
    assert told(log, cut, p1=1) == []


def test_after_a_turn_and_a_fault_two_requests_are_explained_in_either_order() -> None:
    """The older node comes back with the URL as waiting, before a period asks for it again."""
    log = [hit(10, 1), hit(40, 1), hit(41, 1)]
    place = f"{HOST}/{GRAPH.tag}/p/1"
    older = Harm(20, 35, ("A",), held=frozenset({place}), since=5, stroke="older")

    def judged(
        log: list[Hit],
        turns: list[float],
        *harms: Harm,
        forced: frozenset[str] = frozenset({place}),
    ) -> list[Finding]:
        return judge(log, leases(log), harms, {}, turns={place: turns}, forced=forced)[0]

    assert judged(log, [38], older) == []
    assert judged(log, [40.5], older) == []
    assert judged(log, [38], older, forced=frozenset()) != [], "it is known to wait already"
    assert judged(log, [38]) != []
    assert judged(log, [], older) != []
    assert judged([*log, hit(42, 1)], [38], older) != [], "a turn counts once"
    assert judged(log, [38], replace(older, begin=50, end=60)) != []


def test_a_fault_explains_at_most_as_many_urls_as_were_leased_at_one_moment() -> None:
    # A long outage, in which each URL is leased for two seconds: four at a time, five at most.
    first = [hit(10 + n / 2, n) for n in range(40)]
    again = [hit(100 + n / 2, n) for n in range(40)]
    (found,) = told(first + again, Harm(9, 31, stroke="lock 9"))
    assert found.text == "lock 9: 40 URLs asked for again, at most 5 were leased"
    assert told(first + again[:5], Harm(9, 31, stroke="lock 9")) == []
    assert told(first + again, Harm(9, 31, stroke="a"), Harm(9, 31, stroke="b")) == []


def test_a_node_that_came_back_older_explains_its_unfinished_urls() -> None:
    log = [hit(10, 1), hit(60, 1)]
    place = f"{HOST}/{GRAPH.tag}/p/1"
    assert told(log, Harm(30, 50, ("A",))) != []
    assert told(log, Harm(30, 50, ("A",), held=frozenset({place}))) == []
    assert told(log, Harm(30, 50, ("A",), held=None)) == []  # its data are unknown
    # It was settled when the copy was made: so something has to explain why it waits there.
    assert told(log, Harm(30, 50, ("A",), held=frozenset({place}), since=20)) != []
    assert told(log, Harm(30, 50, ("B",), held=frozenset({place}))) != []
    assert told(log, Harm(70, 80, ("A",), held=None)) != []


def test_a_recovering_node_may_treat_links_that_come_meanwhile_as_new() -> None:
    page = GRAPH.url(1, "p/0", 8000)
    linked = next(url for url in site.resource_at(page).links if site.address(1) not in url)
    host, _, path = linked.removeprefix("http://").replace(":8000", "").partition("/")
    log = [Hit(at, at, host, f"/{path}", 200, 1) for at in (10, 60)]
    source = Hit(31, 31, OTHER, f"/{GRAPH.tag}/p/0", 200, 1)
    older = Harm(30, 40, since=5, recovers=True)
    assert told([*log, source], older) == []
    assert told(log, older) != []
    assert told([*log, replace(source, arrived=50)], older) != []
    assert told([*log, source], replace(older, since=20)) != []  # it knew it
    assert told([*log, source], replace(older, recovers=False)) != []


def test_a_node_that_lost_data_may_look_for_a_sitemap_again_at_its_usual_place() -> None:
    host = site.address(site.mapped(3).host(1))
    log = [Hit(at, at, host, site.USUAL_PLACE, 200, 1) for at in (10, 60)]
    lost = Harm(30, 40, since=5, recovers=True)
    assert told(log) != []
    assert told(log, lost) == []
    assert told(log, replace(lost, since=20)) != []  # the node still knew the URL
    assert told(log, replace(lost, recovers=False)) != []


def test_a_url_that_no_look_saw_counts_as_leased_when_it_was_requested() -> None:
    log, brief = [hit(10, 1), hit(30, 1)], Harm(11, 15, worker="w2")
    unseen = leases([hit(5, 2)])
    assert judge(log, unseen, [brief], {})[0] == []
    assert judge(log, unseen, [Harm(14, 15)], {})[0] != []


def test_forced_urls_failures_and_logins_do_not_count_as_refetches() -> None:
    log = [hit(10, 1), hit(30, 1)]
    assert told(log, p1=1) == []
    member = site.address(7)
    login = [hit(10, 1, member, 302), hit(11, 1, member)]
    assert told(login) == []
    robots = [Hit(at, at, HOST, "/robots.txt", 200, 1) for at in (1, 2)]
    assert told(robots) == []


def test_each_fault_harms_only_the_nodes_and_workers_that_it_breaks() -> None:
    def harm(kind: str, held: set[str] | None = None, **arguments: object) -> Harm:
        (found,) = harms_of([Stroke(Event(0, kind, 5, arguments), 10, 15, held=held)], {}, 4)
        return found

    assert harm("stop", part="w1").worker == harm("cut", link="w1-A").worker == "w1"
    assert harm("kill", part="A2").nodes == harm("cut", link="replica-A").nodes == ("A",)
    assert harm("disk", place="B").nodes == harm("clock", node="B").nodes == ("B",)
    for one in (harm("kill", part="b1"), harm("lock"), harm("cut", link="b1-sql")):
        assert (one.nodes, one.worker) == (("A", "B"), "")
    assert harm("disk", place="store").nodes == harm("stop", part="sql").nodes == ("A", "B")
    older = harm("older", {"x"}, node="A")
    assert (older.nodes, older.held, older.begin, older.end) == (("A",), frozenset("x"), 10, 25)
    copy = Stroke(Event(0, "copy", 0, {"node": "A"}), 10, 11)
    skipped = Stroke(Event(0, "kill", 0, {"part": "b1"}), 10, 11, skipped="so")
    assert harms_of([copy, skipped], {}, 4) == []
    (by_itself,) = harms_of([], {"w1": [20.0]}, 4)
    assert (by_itself.worker, by_itself.begin, by_itself.end) == ("w1", 18, 30)


def test_a_node_at_its_memory_limit_may_forget_all_that_a_recovery_tells_it() -> None:
    older = Stroke(Event(10, "older", 5, {"node": "A"}), 10, 15)
    full = Stroke(Event(5, "memory", 20, {"node": "A"}), 5, 25)
    assert [harm.held for harm in harms_of([older, full], {}, 4)] == [None, frozenset()]
    full.event.arguments["node"] = "B"
    assert [harm.held for harm in harms_of([older, full], {}, 4)] == [frozenset(), frozenset()]


def test_a_recovery_lasts_until_the_node_answers() -> None:
    older = Stroke(Event(10, "older", 5, {"node": "A"}), 10, 15)
    full = Stroke(Event(50, "memory", 20, {"node": "A"}), 50, 70)
    frozen = Stroke(Event(20, "stop", 30, {"part": "A"}), 20, 51)
    assert [one.end for one in harms_of([older, frozen], {}, 4)] == [61, 61]
    cut = Stroke(Event(20, "cut", 40, {"link": "b2-A"}), 20, 60)
    assert harms_of([older, cut], {}, 4)[0].end == 70, "no broker can tell it anything"
    for link in ("b2-B", "w2-A"):
        cut.event.arguments["link"] = link
        assert harms_of([older, cut], {}, 4)[0].end == 25
    assert next(one.held for one in harms_of([older, frozen, full], {}, 4)) is None
    assert harms_of([older, full], {}, 4)[0].held == frozenset()
    frozen.event.arguments["part"] = "A1"  # one of its servers
    assert harms_of([older, frozen], {}, 4)[0].end == 61
    frozen.event.arguments["part"] = "B"
    assert harms_of([older, frozen], {}, 4)[0].end == 25


def test_the_unfinished_urls_of_a_node_are_read_from_redis(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    frontier = Frontier([redis_server.url], store, partitions=4, create=True)
    crawl = store.put_crawl("c", CrawlOptions(scope="any", delay=0.3), ())
    frontier.put_crawl(crawl)
    many = [f"http://{HOST}:8080/{GRAPH.tag}/p/{n}" for n in range(60)]
    few = [f"http://{OTHER}:8080/{GRAPH.tag}/p/{n}" for n in range(2)]
    frontier.admit(crawl.id, [Admission(url, 1) for url in many + few])
    client = redis_server.client
    assert reading.sessions(client) == []
    wanted = {url.removeprefix("http://").replace(":8080", "") for url in many + few}
    assert reading.unfinished(client) == wanted

    frontier.start()
    (leased,) = frontier.lease(
        LeaseRequest(worker="w1-0", incarnation=1, sequence=1, max_sessions=1, tasks_per_session=5)
    ).sessions
    (seen,) = reading.sessions(client)
    host = leased.host.partition(":")[0]
    assert (seen.token, seen.worker, seen.address) == (leased.token, "w1", host)
    assert {f"http://{place.replace(host, leased.host)}" for place in seen.places} == {
        task.url for task in leased.tasks
    }
    done, again, *_ = leased.tasks
    outcomes: list[tuple[Task, Done | Retry]] = [
        (done, Done(stored=True)),
        (again, Retry(wait=60, kind="timeout")),
    ]
    items = [
        FinishItem(session=leased.session, token=leased.token, task=task.number, outcome=one)
        for task, one in outcomes
    ]
    assert frontier.finish(items) == ["ok", "ok"]
    assert reading.unfinished(client) == wanted - {
        done.url.removeprefix("http://").replace(":8080", "")
    }
    frontier.stop()
    store.close()
