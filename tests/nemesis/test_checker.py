"""Each judge of the nemesis finds its errors, and reports nothing if all is right."""

from __future__ import annotations

from dataclasses import replace

from tests.nemesis import checker, site
from tests.nemesis.api import Call
from tests.nemesis.checker import Hit, Span, Stillness
from tests.nemesis.faults import Done
from tests.nemesis.reading import CrawlRow, Sample, Snapshot
from tests.nemesis.run import spans_of
from tests.nemesis.schedule import Event
from tests.nemesis.site import Graph

GRAPH = Graph(3, 0, 4, 6)
PORT = 8000
SEEDS = GRAPH.seeds(1, PORT)
HOST = site.address(0)


def hit(arrived: float, seconds: float = 0.1, target: str = "/x", host: str = HOST) -> Hit:
    return Hit(arrived, arrived + seconds, host, target, 200, 1)


def kinds(findings: list[checker.Finding]) -> list[str]:
    return [finding.kind for finding in findings]


# -- politeness


def test_a_gap_as_long_as_the_delay_is_polite_and_a_shorter_one_is_not() -> None:
    assert checker.impolite([hit(0), hit(0.4)], 0.3) == []
    assert checker.impolite([hit(0), hit(0.385)], 0.3) == []  # within the clock's error
    assert kinds(checker.impolite([hit(0), hit(0.37)], 0.3)) == ["impolite"]
    assert checker.impolite([hit(0), hit(0.1, host=site.address(1))], 0.3) == []


def test_overlapping_requests_are_found_even_behind_a_shorter_one() -> None:
    log = [hit(0, seconds=5), hit(1, seconds=0.1), hit(4)]
    found = checker.impolite(log, 0.3)
    assert [finding.text.startswith("overlap") for finding in found] == [True, True]


def test_the_delay_is_required_between_requests_of_every_kind() -> None:
    targets = ["/robots.txt", site.USUAL_PLACE, f"/{GRAPH.tag}/image/0.0.png", "/x", "/login"]
    for before in targets:
        for after in targets:
            log = [hit(0, target=before), hit(0.37, target=after)]
            assert kinds(checker.impolite(log, 0.3)) == ["impolite"]


def test_the_crawl_delay_of_a_robots_txt_is_required_once_it_was_read() -> None:
    host = site.address(4)
    first, second = hit(0, target="/robots.txt", host=host), hit(0.5, host=host)
    assert checker.impolite([first, second], 0.3) == []
    assert kinds(checker.impolite([hit(0, host=host), second], 0.3)) == ["impolite"]


# -- URLs that must be settled


def settled(urls: set[str]) -> Snapshot:
    row = CrawlRow(1, "c", "done", "finished", False)
    return Snapshot(row, pages=dict.fromkeys(urls, 200))


def test_every_url_that_the_seeds_lead_to_must_be_settled() -> None:
    urls = site.reachable(SEEDS)
    assert len(urls) > GRAPH.hosts * GRAPH.pages
    assert checker.unsettled(settled(urls), SEEDS) == set()
    leaf = next(url for url in urls if "/u/" in url)
    assert checker.unsettled(settled(urls - {leaf}), SEEDS) == {leaf}


def test_a_link_that_only_sql_knows_must_be_settled_too() -> None:
    found = settled(site.reachable(SEEDS))
    only = GRAPH.url(0, "w/1.2", PORT)
    found.links.add(only)
    assert checker.unsettled(found, SEEDS) == {only}
    found.finals[only] = ("gone", "gone")
    assert checker.unsettled(found, SEEDS) == set()


def test_urls_that_only_a_dead_page_links_to_need_not_be_settled() -> None:
    dead = GRAPH.url(0, "p/0", PORT)
    found = settled(set())
    found.finals[dead] = ("dead", "timeout")
    assert checker.unsettled(found, [dead]) == set()
    assert checker.odd_deaths(found, ("timeout",)) == []
    found.finals[dead] = ("dead", "parse")
    assert kinds(checker.odd_deaths(found, ("timeout",))) == ["lost"]


def test_a_page_limit_is_an_upper_bound_and_excuses_missing_urls_once_it_is_reached() -> None:
    urls = site.reachable(SEEDS)
    leaf = next(url for url in urls if "/u/" in url)
    found = settled(urls - {leaf})
    assert checker.owed(found, SEEDS, 0) == {leaf}
    assert checker.owed(found, SEEDS, found.stored + 1) == {leaf}
    assert checker.owed(found, SEEDS, found.stored) == set()
    # Files that are no pages do not count towards it.
    found.pages[next(url for url in urls if "/p/" in url)] = 404
    assert checker.owed(found, SEEDS, found.stored + 1) == {leaf}
    assert checker.beyond_limit("c", 10, 10) == []
    assert checker.beyond_limit("c", 500, 0) == []
    assert kinds(checker.beyond_limit("c", 11, 10)) == ["too many"]


MAPPED = site.mapped(3)
"""A site with sitemaps, requisites and traps; its first host's robots.txt names sitemaps, its
second host has one."""


def test_every_url_that_sitemaps_and_requisites_lead_to_must_be_settled() -> None:
    seeds = MAPPED.seeds(1, PORT)
    urls = site.reachable(seeds)
    assert checker.unsettled(settled(urls), seeds) == set()
    for kind in ("/m/0.1.xml.gz.", "/m/1.of0.xml.", "/x/new.xml", "/font/", ".more.css", "/day/7"):
        one = next(url for url in sorted(urls) if kind in url)
        assert checker.unsettled(settled(urls - {one}), seeds) == {one}


def test_urls_of_a_sitemap_at_the_usual_place_must_be_settled_if_it_was_read() -> None:
    seeds = MAPPED.seeds(1, PORT)
    found = settled(site.reachable(seeds))
    place = site.guess(MAPPED.host(1), PORT)
    found.links.add(place)  # its row has them
    assert checker.unsettled(found, seeds) == set()
    leaves = set(site.resource_at(place).links)
    assert len(leaves) == site.LISTED
    found.links |= leaves
    assert checker.unsettled(found, seeds) == leaves


def test_a_sitemap_that_was_never_looked_for_is_found_unless_a_fault_explains_it() -> None:
    home = MAPPED.seeds(1, PORT)[1]
    host = site.address(MAPPED.host(1))
    found, log = settled({home}), [hit(5, host=host)]
    assert kinds(checker.unasked(found, [home], log, [])) == ["lost"]
    assert kinds(checker.unasked(found, [home], log, [(6, 9)])) == ["lost"]
    assert checker.unasked(found, [home], log, [(0, 5)]) == []
    asked = hit(6, target=site.USUAL_PLACE, host=host)
    assert checker.unasked(found, [home], [*log, asked], []) == []
    assert checker.unasked(settled(set()), [home], log, []) == []
    named = MAPPED.seeds(1, PORT)[0]
    assert (
        checker.unasked(settled({named}), [named], [hit(5, host=site.address(MAPPED.host(0)))], [])
        == []
    )


def test_urls_that_only_a_parked_page_links_to_need_not_be_settled() -> None:
    seeds = MAPPED.seeds(1, PORT)
    day = MAPPED.url(0, "day/1", PORT)
    below = site.reachable(seeds) - site.reachable(seeds, {day})
    found = settled(site.reachable(seeds) - below - {day})
    found.finals[day] = ("parked", "trap")
    assert below
    assert checker.unsettled(found, seeds) == set()
    del found.finals[day]
    assert day in checker.unsettled(found, seeds)


# -- leases


def test_a_session_that_opens_while_its_crawl_is_paused_is_found() -> None:
    looks = [Sample("A", 10, {"t1": 7}), Sample("A", 20, {"t1": 7}), Sample("A", 22, {"t2": 7})]
    assert checker.leased_while_paused(looks, {7: [(21, 99)]}) == []  # within the grace
    assert kinds(checker.leased_while_paused(looks, {7: [(12, 99)]})) == ["promise"]
    assert checker.leased_while_paused(looks, {7: [(12, 21)]}) == []  # resumed by then
    assert checker.leased_while_paused(looks, {8: [(12, 99)]}) == []
    looks[-1].seconds = 9  # it was resumed before that look was finished
    assert checker.leased_while_paused(looks, {7: [(12, 30)]}) == []
    assert kinds(checker.leased_while_paused(looks, {7: [(12, 32)]})) == ["promise"]


def test_a_session_of_a_copy_does_not_count_as_opened_when_its_node_comes_back() -> None:
    looks = [Sample("A", 20), Sample("A", 22, {"t": 7}, ages={"t": 11.0})]
    assert checker.leased_while_paused(looks, {7: [(12, 99)]}) == []
    looks[-1].ages["t"] = 1.0
    assert kinds(checker.leased_while_paused(looks, {7: [(12, 99)]})) == ["promise"]


def test_a_pause_counts_from_its_answer_until_the_next_call() -> None:
    def call(op: str, sent: float, status: int = 200, took: float = 1.0) -> Call:
        return Call(op, "c", sent, sent + took, status)

    assert checker.pauses_of([call("pause", 5), call("resume", 9)], "c", 50) == [(6, 9)]
    assert checker.pauses_of([call("pause", 5)], "c", 50) == [(6, 50)]
    assert checker.pauses_of([call("pause", 5, status=503)], "c", 50) == []
    overlapping = [call("pause", 5), call("resume", 4, took=3)]
    assert checker.pauses_of(overlapping, "c", 50) == []
    unknown = [Call("resume", "c", 3, 4, 0), call("pause", 5)]
    assert checker.pauses_of(unknown, "c", 50) == []


def test_a_crawl_counts_as_deleted_if_no_later_call_may_have_created_it() -> None:
    made, gone = Call("create", "c", 1, 2, 201), Call("delete", "c", 3, 4, 202)
    assert checker.deleted([made, gone], "c")
    assert not checker.deleted([made, replace(gone, status=0)], "c")
    assert not checker.deleted([replace(made, answered=3.5), gone], "c")
    assert not checker.deleted([made, replace(made, status=0), gone], "c")


def test_seeds_count_only_after_they_were_acknowledged() -> None:
    call = Call("seed", "c", 1, 2, 200, urls=["u"])
    assert checker.acknowledged_seeds([call], "c", 3) == {"u"}
    assert checker.acknowledged_seeds([call], "c", 1.5) == set()
    assert checker.acknowledged_seeds([replace(call, status=503)], "c", 3) == set()
    assert checker.acknowledged_seeds([call], "d", 3) == set()


# -- standing still


def looks(late: float, until: int = 60) -> list[Sample]:
    name = f"{HOST}:{PORT}"
    return [Sample("A", at, {}, {name: late + at}) for at in range(0, until, 2)]


def test_a_node_stands_still_if_its_hosts_wait_and_none_gets_a_request() -> None:
    assert "standing still" in kinds(Stillness([]).judge(looks(5, 20), [], 99))
    asked = [hit(at) for at in range(0, 60, 5)]
    assert [
        one for one in Stillness([]).judge(looks(5), asked, 99) if one.text.startswith("node")
    ] == []
    assert Stillness([]).judge(looks(-99), [], 30) == []  # nothing is due
    assert Stillness([Span(0, 99, ("A",))]).judge(looks(5), [], 99) == []
    assert Stillness([Span(0, 99, ("B",))]).judge(looks(5), [], 99) != []


def test_a_host_that_waits_for_long_is_found_though_others_go_on() -> None:
    name = f"{site.address(1)}:{PORT}"
    seen = [replace(look, overdue={**look.overdue, name: look.at}) for look in looks(5)]
    asked = [hit(at) for at in range(0, 60, 5)]
    found = Stillness([]).judge(seen, asked, 99)
    assert any(site.address(1) in finding.text for finding in found)
    worker = Span(0, 99, ("A",), hosts_only=True)
    assert Stillness([worker]).judge(seen, asked, 99) == []
    # A fault of single hosts does not excuse the whole node.
    assert any("node A" in one.text for one in Stillness([worker]).judge(seen, [], 99))


def test_a_node_whose_clock_jumps_without_a_fault_is_found() -> None:
    def drifting(*drifts: float | None) -> list[Sample]:
        return [Sample("A", at, drift_seconds=drift) for at, drift in enumerate(drifts)]

    assert checker.wandering(drifting(5, 5.1, None, 5.2), []) == []
    assert kinds(checker.wandering(drifting(5, 8, 5, None, 8), [])) == ["clock"]
    assert kinds(checker.wandering(drifting(5, 8), [Span(0, 9, ("B",))])) == ["clock"]
    assert checker.wandering(drifting(5, 8), [Span(0, 9, ("A",))]) == []


def test_each_fault_concerns_only_the_nodes_that_it_breaks() -> None:
    def nodes(kind: str, **arguments: object) -> set[str]:
        done = Done(Event(0, kind, 5, arguments), 0, 5)
        return {node for span in spans_of(done, 4) if not span.hosts_only for node in span.nodes}

    assert nodes("stop", part="A") == nodes("kill", part="A1") == {"A"}
    assert nodes("cut", link="b1-B") == nodes("cut", link="replica-B") == {"B"}
    assert nodes("older", node="A") == nodes("clock", node="A") == {"A"}
    assert nodes("promote", node="B", minority=["b1"]) == {"B"}
    assert nodes("disk", place="A") == {"A"}
    assert nodes("disk", place="store") == nodes("lock") == nodes("stop", part="sql") == {"A", "B"}
    assert nodes("kill", part="b1") == nodes("cut", link="b1-sql") == {"A", "B"}
    assert nodes("memory", node="A") == set()
    assert nodes("stop", part="w1") == nodes("cut", link="w1-b2") == set()
    writer = Done(Event(0, "stop", 5, {"part": "w1"}), 0, 5, holds_sql=True)
    assert [(span.nodes, span.hosts_only) for span in spans_of(writer, 4)] == [(("A", "B"), False)]


# -- memory


def test_growing_memory_is_found_and_steady_memory_is_not() -> None:
    megabytes = 1 << 20
    flat = [(float(at), 90 * megabytes) for at in range(50)]
    assert checker.growth("w1", flat) == []
    growing = [(float(at), (90 + 4 * at) * megabytes) for at in range(50)]
    assert kinds(checker.growth("w1", growing)) == ["memory"]
    assert checker.growth("w1", growing[:10]) == []  # too few samples for a verdict
