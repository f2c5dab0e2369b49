"""Pages about stored pages, failures and the system."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from urllib.parse import quote

import pytest

from greencrawl.broker.service.members import LOST
from greencrawl.monitor.words import words
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.logs.records import LoggerSilent, LogLine, LogsQuery, LogsReply
from greencrawl.schema.net.urls import fingerprint
from greencrawl.schema.records import (
    Admission,
    Alert,
    Attempt,
    Commit,
    Counted,
    Crawl,
    Facts,
    Final,
    FrontierIdentity,
    HookRun,
    HostPatch,
    HostState,
    InForce,
    MemberRequest,
    NodeOptions,
    Refusal,
    StoredPage,
    UrlState,
)
from greencrawl.schema.text.spans import blocks_of, main_of
from greencrawl.store.steward import Ring, RingServer
from tests.monitor.hostile import EVIL, MARKS
from tests.monitor.rig import VIEW, Desk, form_token
from tests.support.queue_double import Sums

HOST = "http://example.org/"


def stored(crawl: Crawl, name: str, **more: object) -> StoredPage:
    url = HOST + name
    given: dict[str, object] = {
        "title": f"Title of {name}", "text": f"Text of {name}", "body": b"<p>x", "fetched_ms": 1000,
        "headers": {"content-type": "text/html"}, "status": 200, **more,
    }  # fmt: skip
    return StoredPage(crawl=crawl.id, fingerprint=fingerprint(url), url=url, **given)  # type: ignore[arg-type]


def final(crawl: Crawl, name: str, state: str, kind: str, **more: object) -> Final:
    url = HOST + name
    given: dict[str, object] = {"state": state, "kind": kind, "at_ms": 9, **more}
    return Final(crawl=crawl.id, fingerprint=fingerprint(url), url=url, **given)  # type: ignore[arg-type]


@pytest.fixture
def crawl(admin: Desk) -> Crawl:
    """A desk with pages, dead letters, parked URLs and failures of a hook."""
    made = admin.crawl("blog", hook="shop", traps="on")
    pages = [stored(made, f"p{n}") for n in range(3)]
    dead = [final(made, f"d{n}", "dead", "timeout", detail="too slow") for n in range(60)]
    dead.append(final(made, "gone", "dead", "reset"))
    parked = [final(made, f"t{n}", "parked", "trap", shape="/t#", detail="new?") for n in range(4)]
    parked += [final(made, "u", "parked", "trap", shape="/u", detail="new?")]
    failed = HookRun(
        crawl=made.id, fingerprint=pages[0].fingerprint, url=pages[0].url, at_ms=1000,
        failures={"on_page": "KeyError: 'price'"},
    )  # fmt: skip
    admin.store.commit(Commit(pages=pages, finals=dead + parked, hooks=[failed]))
    return made


def links(html: str, begin: str) -> list[str]:
    return [unescape(one) for one in re.findall(rf'href="({re.escape(begin)}[^"]*)"', html)]


# -- what is stored


def test_stored_pages_are_listed_searched_and_shown(admin: Desk, crawl: Crawl) -> None:
    html = admin.get("/monitor/pages?crawl=blog").text
    ids = links(html, "/monitor/pages/")
    assert len(ids) == 3
    found = admin.get("/monitor/pages?crawl=blog&grep=of+p1").text
    assert len(links(found, "/monitor/pages/")) == 1
    shown = admin.get(links(found, "/monitor/pages/")[0]).text
    assert "Title of p1" in shown
    assert "content-type" in shown
    assert "No page matches" in admin.get("/monitor/pages?crawl=blog&status=404").text
    assert admin.get("/monitor/pages/1-00000000000000ff").status_code == 404


def test_a_search_names_each_of_its_wrong_fields(admin: Desk, crawl: Crawl) -> None:
    html = admin.get("/monitor/pages?crawl=blog&grep=(&status=x&since=y&host=a/b").text
    for name in ("Search", "Status", "Since", "Host"):
        assert f"<p>{name}: " in html
    assert admin.get("/monitor/pages?crawl=nothing").status_code == 404
    assert "after: " in admin.get("/monitor/pages?crawl=blog&after=%00").text


def test_a_long_list_of_stored_pages_is_split_and_shows_each_once(
    admin: Desk, crawl: Crawl
) -> None:
    admin.store.commit(Commit(pages=[stored(crawl, f"q{n}") for n in range(60)]))
    first = admin.get("/monitor/pages?crawl=blog").text
    titles = re.findall(r"Title of (\w+)<", first)
    assert titles == [f"q{n}" for n in range(59, 9, -1)], "the newest come first"
    seen, path = list[str](), "/monitor/pages?crawl=blog"
    for _ in range(2):
        html = admin.get(path).text
        seen += links(html, "/monitor/pages/")
        path = "/monitor/pages" + (links(html, "?") or [""])[0]
    assert len(seen) == len(set(seen)) == 63
    assert path == "/monitor/pages"


def test_a_body_is_sent_as_a_file_and_never_rendered(admin: Desk, crawl: Crawl) -> None:
    page = links(admin.get("/monitor/pages?crawl=blog").text, "/monitor/pages/")[0]
    answer = admin.get(f"{page}/body")
    assert answer.content == b"<p>x"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_all_text_is_split_into_main_text_and_the_blocks_around_it() -> None:
    text, spans = "Menu Main one. Ad Main two. Foot", b""
    assert blocks_of(text, spans) == [(text, False)]
    spans = bytes([len(text), 9 << 2, 5, 9 << 2 | 1, 4])
    assert main_of(text, spans) == "Main one.\n\nMain two.\n"
    assert blocks_of(text, spans) == [
        ("Menu", False), ("Main one.", True), ("Ad", False), ("Main two.", True), ("Foot", False),
    ]  # fmt: skip
    assert blocks_of(text, spans[:-1]) == [(text, False)]
    assert blocks_of(text + "x", spans) == [(text + "x", False)]


# -- one URL


def test_a_url_is_explained_and_queued_again(admin: Desk, crawl: Crawl) -> None:
    admin.crawl("other")
    html = admin.get(f"/monitor/url?url={HOST}d1").text
    assert "given up at" in html
    assert "1 other crawl does not know this URL" in html
    assert "a URL, and why" in admin.get("/monitor/url").text
    assert "/monitor/hosts/example.org" in admin.get("/monitor/url?url=example.org").text
    answer = admin.post("/monitor/url", admin.stamp(), url=f"{HOST}d1", crawl="blog")
    assert answer.status_code == 303
    assert admin.queue.seen[crawl.id] == [f"{HOST}d1"]
    refused = admin.post("/monitor/url", admin.stamp(), url="mailto:x", crawl="blog")
    assert refused.status_code == 400


def test_a_stored_url_is_not_shown_as_being_fetched_though_its_lease_still_runs(
    admin: Desk, crawl: Crawl, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, int] = {}

    def find_url(crawl: Crawl, url: str, stored_ms: int = 0) -> UrlState:
        told[url] = stored_ms
        return UrlState(crawl=crawl.name, url=url, state="seen" if stored_ms else "leased")

    monkeypatch.setattr(admin.queue, "find_url", find_url)
    url = f"{HOST}p1"
    same = Attempt(
        crawl=crawl.id, fingerprint=fingerprint(url), url=url, code=304, kind="ok", errors=0,
        at_ms=5000, elapsed_ms=1, worker="w1",
    )  # fmt: skip
    admin.store.commit(Commit(attempts=[same]))
    said = {
        name: admin.get(f"/monitor/url?url={HOST}{name}").text for name in ("p0", "p1", "d1", "x")
    }
    assert told == {f"{HOST}p0": 1000, url: 5000, f"{HOST}d1": 9, f"{HOST}x": 0}
    assert ["being fetched" in said[name] for name in said] == [False, False, False, True]


def test_reasons_are_given_in_chinese_to_a_chinese_reader(admin: Desk, crawl: Crawl) -> None:
    admin.crawl("kept", exclude=["/skip"])
    finals = [
        final(crawl, "away", "gone", "gone", detail="HTTP 410"),
        final(crawl, "barred", "excluded", "robots", detail="robots.txt: Disallow: /barred"),
    ]
    admin.store.commit(Commit(finals=finals))
    admin.service.store.set_state(crawl.id, "paused", version=crawl.version)
    names = ("p0", "d1", "t1", "u", "away", "barred", "skip", "new")
    paths = [f"url?url={HOST}{name}" for name in names]
    paths += ["url?url=mailto:x", "crawls/nothing", "pages?crawl=blog&status=oops&since=soon"]
    for path in paths:
        html = admin.get(f"/monitor/{path}", Accept_Language="zh-CN").text
        told = re.findall(r'lang="en">([^<]*)<', html.partition("<main")[2])
        known = ("too slow", "new?", "HTTP 410", "Disallow: /barred")
        assert [one for one in told if one not in known] == [], path


def test_crawls_that_may_know_a_url_are_counted_while_redis_is_away(admin: Desk) -> None:
    for name in ("one", "two"):
        admin.crawl(name)
    admin.queue.lost_node = "b"
    html = admin.get(f"/monitor/url?url={HOST}lost").text
    assert "2 crawls cannot say whether the URL waits" in html
    assert html.count("Redis at redis://b is away") == 1
    assert "section class" not in html


def test_the_overview_names_a_full_node_and_says_what_to_set(admin: Desk) -> None:
    admin.queue.full = True
    html = admin.get("/monitor/").text
    assert "Redis node redis://a is near its memory limit: it uses 900" in html
    assert "give the node a greater maxmemory" in html


def test_attempts_of_a_url_are_listed_with_their_kinds(admin: Desk, crawl: Crawl) -> None:
    url = f"{HOST}d2"
    tried = Attempt(
        crawl=crawl.id, fingerprint=fingerprint(url), url=url, code=503, kind="unavailable",
        errors=1, wait=30.0, at_ms=5000, elapsed_ms=120, worker="w1",
    )  # fmt: skip
    admin.store.commit(Commit(attempts=[tried]))
    html = admin.get(f"/monitor/url?url={url}").text
    for said in ("unavailable (503)", "again after 30 seconds", "120 ms", "w1"):
        assert said in html


# -- failures and traps


def test_dead_letters_are_listed_by_kind_and_queued_again(admin: Desk, crawl: Crawl) -> None:
    html = admin.get("/monitor/failures?crawl=blog").text
    assert re.search(r'too slow <span class="quiet">60<', html)
    assert len(links(html, "/monitor/url?url=http")) == 50 + 1
    more = admin.get("/monitor/failures" + links(html, "?")[0]).text
    assert "d59" in more or "gone" in more
    one = admin.get("/monitor/failures?crawl=blog&kind=reset").text
    assert f"{HOST}gone" in one
    assert f"{HOST}d1" not in one
    admin.store.commit(Commit(finals=[final(crawl, "away", "gone", "gone")]))
    gone = admin.get("/monitor/failures?crawl=blog&kind=gone").text
    listed = gone.partition('id="hooks"')[0]
    assert len(links(listed, "/monitor/url?url=http")) == 1
    assert f"{HOST}away" in listed
    answer = admin.post("/monitor/failures/requeue", admin.stamp(), crawl="blog")
    assert answer.headers["location"].endswith("said=requeued&n=61")
    assert len(admin.queue.seen[crawl.id]) == 61


def test_pages_on_which_a_hook_failed_are_fetched_again_at_their_depth(
    admin: Desk, crawl: Crawl, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.store.commit(Commit(pages=[stored(crawl, "p0", depth=3, fetched_ms=2000)]))
    admitted: list[Admission] = []
    admit = admin.queue.admit
    monkeypatch.setattr(
        admin.queue, "admit", lambda c, items, **k: admitted.extend(items) or admit(c, items, **k)
    )
    html = admin.get("/monitor/failures?crawl=blog").text
    assert "KeyError: &#39;price&#39;" in html
    answer = admin.post(
        "/monitor/failures/hook", admin.stamp(), crawl="blog", function="on_page",
        message="KeyError: 'price'",
    )  # fmt: skip
    assert answer.headers["location"].endswith("said=hook_again&n=1")
    assert [(one.url, one.depth) for one in admitted] == [(f"{HOST}p0", 3)]


def test_a_trap_is_released(admin: Desk, crawl: Crawl) -> None:
    html = admin.get("/monitor/traps?crawl=blog").text
    assert "/t#" in html
    answer = admin.post("/monitor/traps/release", admin.stamp(), crawl="blog", shape="/t#")
    assert answer.headers["location"].endswith("said=released&n=4")
    assert admin.store.crawl("blog").released == ("/t#",)
    assert len(admin.queue.seen[crawl.id]) == 4
    admin.post("/monitor/traps/release", admin.stamp(), crawl="blog", all="1")
    assert len(admin.queue.seen[crawl.id]) == 5


def test_a_viewer_sees_the_pages_of_stored_urls_without_forms(desk: Desk) -> None:
    desk.log_in()
    made = desk.crawl("blog")
    dead = final(made, "d", "dead", "timeout")
    parked = final(made, "t", "parked", "trap", shape="/t#")
    desk.store.commit(Commit(pages=[stored(made, "p")], finals=[dead, parked]))
    page = links(desk.get("/monitor/pages").text, "/monitor/pages/")[0]
    desk.cookies.clear()
    desk.log_in(VIEW)
    for path in (
        page,
        "/monitor/pages",
        "/monitor/failures",
        "/monitor/traps",
        f"/monitor/url?url={HOST}d",
    ):
        answer = desk.get(path)
        assert answer.status_code == 200
        assert answer.text.count("<form method") == 1, path


def test_a_viewer_sees_orders_and_blocks_without_advice_to_change_them(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.log_in(VIEW)
    assert "Orders to all nodes: none" in desk.get("/monitor/nodes/*").text
    desk.service.members.order("*", NodeOptions(greenlets=50), (), by_whom="kim", revision=None)
    desk.monitor.app()._shared.forget()
    html = desk.get("/monitor/nodes/*").text
    assert "<code>greenlets = 50</code>" in html
    assert html.count("<form method") == 1
    state = HostState(host="example.org", partition=1, blocked_in=60.0)
    monkeypatch.setattr(desk.queue, "host", lambda name: state)
    html = desk.get("/monitor/hosts/example.org").text
    assert words("en")("host.is_blocked", span="1 minute") in html
    assert words("en")("host.is_blocked_todo") not in html


def test_a_failed_page_keeps_the_menu_of_a_logged_in_person(admin: Desk) -> None:
    for path, said in (("/monitor/nothing", "There is no page"), ("/monitor/crawls/none", "none")):
        failed = admin.get(path)
        assert failed.status_code == 404
        assert said in failed.text
        assert 'href="/monitor/nodes"' in failed.text
        assert form_token(failed.text) == admin.stamp()
    elsewhere = admin.ask("GET", "/monitor/nothing", {}, host="elsewhere.example")
    assert elsewhere.status_code == 404
    assert form_token(failed.text) not in elsewhere.text
    assert "/monitor/nodes" not in elsewhere.text


# -- the system


def test_delay_and_block_of_a_host_are_shown_and_changed(admin: Desk, crawl: Crawl) -> None:
    admin.store.put_block("slow.example", 2**45, "timeout")
    admin.store.put_delay("shy.example", 2500)
    html = admin.get("/monitor/hosts").text
    assert links(html, "/monitor/hosts/") == [
        f"/monitor/hosts/{name}.example" for name in ("slow", "slow", "shy")
    ]
    assert "2.5 seconds" in html
    assert admin.get("/monitor/hosts/Example.org:8080").status_code == 200
    admin.post("/monitor/hosts/example.org", admin.stamp(), delay="2.5")
    assert admin.queue.last == HostPatch(delay=2.5)
    admin.post("/monitor/hosts/example.org", admin.stamp(), block="0")
    assert admin.queue.last == HostPatch(block=0)
    wrong = admin.post("/monitor/hosts/example.org", admin.stamp(), delay="soon")
    assert wrong.status_code == 400
    assert "<b>delay</b>: must be a number" in wrong.text


def test_a_host_shows_the_delay_in_force_beside_its_own_delay(
    admin: Desk, crawl: Crawl, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = admin.get("/monitor/hosts").text.partition('id="slowest"')[2]
    assert ">4 seconds</td>" in listed
    state = HostState(host="example.org", partition=1, delay=2.0, kept_delay=30.0, sessions=1)
    monkeypatch.setattr(admin.queue, "host", lambda name: state)
    html = admin.get("/monitor/hosts/example.org").text
    assert "<dt>pause between requests now</dt><dd>30 seconds</dd>" in html
    assert "<dt>worker at this host</dt><dd>1</dd>" in html
    own = html.partition("Pause of this host")[2].partition("</tr>")[0]
    assert "<td>2 seconds</td>" in own


def test_a_label_is_singular_for_a_count_of_one(admin: Desk, crawl: Crawl) -> None:
    assert "<dt>worker process</dt>" in admin.get("/monitor/").text
    admin.queue.at_work = 2
    admin.monitor.app()._shared.forget()
    assert "<dt>worker processes</dt>" in admin.get("/monitor/").text


def test_workers_that_hold_leases_and_do_not_report_are_named(admin: Desk, crawl: Crawl) -> None:
    admin.queue.sums[crawl.id] = Sums(leased=3)
    request = MemberRequest(id="kew-0", node="kew", kind="worker", incarnation=5)
    admin.service.members.follow(request)
    for path in ("/monitor/", "/monitor/crawls/blog"):
        assert "kew-0" not in admin.get(path).text
    del admin.queue.beats.known["kew-0"]
    admin.monitor.app()._shared.forget()
    assert "Worker process kew-0 does not report." in admin.get("/monitor/").text
    assert "workers that do not report (kew-0)" in admin.get("/monitor/crawls/blog").text
    admin.store.member_left("kew-0", 5, LOST, epoch_ms(), Facts())
    admin.monitor.app()._shared.forget()
    assert "kew-0" in admin.get("/monitor/").text, "it was given up, and its leases last longer"
    admin.queue.lost_node = "b"
    admin.monitor.app()._shared.forget()
    assert "kew-0" not in admin.get("/monitor/").text, "Redis is away, which hears of workers"


def test_the_frontier_page_shows_nodes_that_are_away_and_starts_a_repair(admin: Desk) -> None:
    identity = FrontierIdentity(
        id="f", secret=1, partitions=2, suffixes="", canonicaliser=1, layout=1, nodes=("a", "b"),
        placement=(0, 1),
    )  # fmt: skip
    admin.store.create_frontier(identity)
    admin.queue.lost, admin.queue.lost_node = {1}, "b"
    html = admin.get("/monitor/frontier").text
    assert "Redis at redis://b is away" in html
    assert html.count(">answers<") == 1
    admin.post("/monitor/frontier/repair", admin.stamp())
    admin.post("/monitor/frontier/repair", admin.stamp(), all="1")
    assert admin.queue.repaired == [False, True]
    assert "redis://a: done" in admin.get("/monitor/frontier?again").text


def test_the_page_of_a_crawl_names_workers_that_cannot_import_its_hook(
    admin: Desk, crawl: Crawl
) -> None:
    refusal = Refusal(crawl=crawl.id, hook="shop", reason="<b>no module named shop")
    admin.store.put_refusals("kew-0", "kew", [refusal], 2**45)
    html = admin.get("/monitor/crawls/blog").text
    assert "kew-0 cannot import it:" in html
    assert "&lt;b&gt;no module named shop" in html


def test_the_store_page_shows_the_role_and_the_state_of_each_server(admin: Desk) -> None:
    servers = (
        RingServer(name="m1:3306", role="writer", up=True),
        RingServer(name="m2:3306", role="partner", up=True, follows="m1:3306", lag_seconds=0.0),
        RingServer(name="r1:3306", role="replica", up=False, why="<b>connection refused"),
    )
    ring = Ring(epoch=7, writer="m1:3306", partner="m2:3306", servers=servers, seen_ms=epoch_ms())
    admin.service.ring = lambda: ring
    html = admin.get("/monitor/store").text
    assert "m1:3306 takes writes, in epoch 7;" in html
    assert "m2:3306 acknowledges them." in html
    row = html.partition('data-key="r1:3306"')[2].partition("</tr>")[0]
    assert "away" in row
    assert "&lt;b&gt;connection refused" in row
    admin.service.ring = lambda: Ring(findings=("nobody may decide: 2 of 5 answer",), seen_ms=1)
    html = admin.get("/monitor/store?later=1").text
    assert "nobody may decide: 2 of 5 answer" in html
    assert "No server may take writes at present." in html


def test_the_store_page_shows_the_kind_of_store_and_its_crawls(admin: Desk, crawl: Crawl) -> None:
    html = admin.get("/monitor/store").text
    assert "SQLite" in html
    assert links(html, "/monitor/pages?crawl=") == ["/monitor/pages?crawl=blog"]


def test_plots_of_the_past_are_drawn_from_a_sample_of_each_minute(
    admin: Desk, crawl: Crawl
) -> None:
    minute = epoch_ms() // 60_000
    rows = [Counted(crawl=crawl.id, minute=minute - ago, pages=600 - ago) for ago in (600, 30, 29)]
    admin.store.put_samples(rows)
    values = {}
    for span in ("hour", "day", "month", "year"):
        html = unescape(admin.get(f"/monitor/crawls/blog?span={span}&part=1").text)
        found = re.search(r'data-plot="(.*?)" data-label', html)
        assert found is not None
        values[span] = json.loads(found[1])[1]
    assert values["day"] == [0.0167, 0.0167]
    assert values["month"] == [0.0167], "a minute is too little among hours"
    assert values["hour"] == values["year"]
    alert = Alert(
        kind="disk_full", subject="box", text="<b>box is full", since_ms=1, began_ms=minute * 60_000
    )
    admin.store.put_alerts([alert])
    admin.monitor.app()._shared.forget()
    html = admin.get("/monitor/").text
    assert "A disk is nearly full" in html
    assert "&lt;b&gt;box is full" in html


def test_the_monitor_says_that_no_worker_takes_urls(admin: Desk, crawl: Crawl) -> None:
    pages = "/monitor/", "/monitor/crawls/blog"
    assert not any("No worker takes URLs" in admin.get(page).text for page in pages)
    admin.queue.at_work = 0
    admin.monitor.app()._shared.forget()
    for page in pages:
        assert "all are paused or drained: see the page Nodes" in admin.get(page).text


def test_nodes_are_shown_given_orders_and_drained(admin: Desk) -> None:
    assert "No worker is running" in admin.get("/monitor/nodes").text
    facts = Facts(
        machine="box", pages_per_second=2.5, rss_bytes=5_000_000, greenlets=300, sessions=7,
        options={"greenlets": InForce(300, "environment")}, failures={"timeout": 3, "parked": 7},
    )  # fmt: skip
    for number in (0, 1):
        admin.service.members.follow(
            MemberRequest(id=f"w-{number}", node="w", kind="worker", incarnation=5, facts=facts)
        )
    admin.service.members.leave("w-1", 5, "stopped", facts)
    admin.monitor.app()._shared.forget()
    html = admin.get("/monitor/nodes").text
    assert links(html, "/monitor/nodes/") == [f"/monitor/nodes/{one}" for one in ("*", "w", "w")]
    assert "left" in html
    drained = admin.post("/monitor/nodes/w", admin.stamp(), **{"o.drain": "true"})
    assert drained.headers["location"] == "/monitor/nodes?said=ordered"
    assert "draining" in admin.get("/monitor/nodes").text
    one = admin.get("/monitor/nodes/w").text
    for said in ("7 of 300", "its environment", "too slow: 3<", "box"):
        assert said in one
    assert "parked" not in one
    revision = {"revision": "1", "stay": "1"}
    fields = {"o.drain": "", "o.greenlets": "50", "o.log_level": "debug", "o.processes": ""}
    admin.post("/monitor/nodes/w", admin.stamp(), **fields, **revision)
    assert admin.service.members.options_of("w")[1] == NodeOptions(greenlets=50, log_level="debug")
    assert admin.post("/monitor/nodes/w", admin.stamp(), **fields, **revision).status_code == 400
    wrong = admin.post("/monitor/nodes/w", admin.stamp(), **{"o.greenlets": "many"})
    assert wrong.status_code == 400
    assert "<b>greenlets</b>: must be a whole number" in wrong.text
    assert "Expected" not in wrong.text
    assert admin.post("/monitor/nodes/x", admin.stamp(), **{"o.drain": "true"}).status_code == 404
    assert admin.get("/monitor/nodes/x").status_code == 404
    admin.post("/monitor/nodes/*", admin.stamp(), **{"o.paused": "true"})
    log = admin.get("/monitor/orders").text
    for said in ("All nodes", "greenlets", "taken back", "monitor"):
        assert said in log


def test_only_a_node_that_is_gone_can_be_forgotten(admin: Desk) -> None:
    here = MemberRequest(id="w-0", node="w", kind="worker", incarnation=5)
    admin.service.members.follow(here)
    assert "Remove this node" not in admin.get("/monitor/nodes/w").text
    assert admin.post("/monitor/nodes/w/forget", admin.stamp()).status_code == 400
    admin.service.members.leave("w-0", 5, "lost", Facts())
    assert "Remove this node" in admin.get("/monitor/nodes/w").text
    done = admin.post("/monitor/nodes/w/forget", admin.stamp())
    assert done.headers["location"] == "/monitor/nodes?said=forgotten"
    assert admin.post("/monitor/nodes/w/forget", admin.stamp()).status_code == 404
    assert "forgotten" in admin.get("/monitor/orders").text


def test_a_node_is_offered_only_the_orders_that_its_kind_follows(admin: Desk) -> None:
    for kind in ("broker", "worker"):
        admin.service.members.follow(
            MemberRequest(id=f"{kind}-1", node=kind, kind=kind, incarnation=5)  # type: ignore[arg-type]
        )
    fields = {kind: admin.get(f"/monitor/nodes/{kind}").text for kind in ("broker", "worker", "*")}
    assert re.findall(r'name="(o\.[a-z_]+)"', fields["broker"]) == ["o.log_level"]
    assert "o.processes" in fields["worker"]
    assert "o.processes" in fields["*"]
    refused = admin.post("/monitor/nodes/broker", admin.stamp(), **{"o.paused": "true"})
    assert refused.status_code == 400
    assert "accepts only log_level" in refused.text
    missing = admin.get("/monitor/nodes/nobody")
    assert missing.status_code == 404
    assert "o.log_level" not in missing.text, "there is nothing to order"


def test_the_nodes_page_says_that_nodes_cannot_report_while_redis_is_away(
    admin: Desk,
) -> None:
    admin.service.members.follow(MemberRequest(id="w-0", node="w", kind="worker", incarnation=5))
    assert "GREENCRAWL_REDIS" not in admin.get("/monitor/nodes").text
    admin.queue.beats.away = True
    admin.queue.lost_node = "b"
    admin.monitor.app()._shared.forget()
    assert "The nodes cannot report" in admin.get("/monitor/nodes").text


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 30, "-1", "x", "\u0661"])
def test_invalid_numbers_in_a_request_cause_no_server_error(
    admin: Desk, crawl: Crawl, number: str
) -> None:
    page = links(admin.get("/monitor/pages?crawl=blog").text, "/monitor/pages/")[0]
    for path in (f"{page}/body?at=", "/monitor/orders?before=", "/monitor/?said=seeded&n="):
        assert admin.get(path + quote(number)).status_code in (200, 404), path
    forms = {"/monitor/crawls/blog/edit": {"step": "save"}, "/monitor/nodes/*": {"o.drain": ""}}
    for path, fields in forms.items():
        answer = admin.post(path, admin.stamp(), revision=number, **fields)
        assert answer.status_code < 500, path


def test_log_lines_of_all_processes_are_shown_and_escaped(
    admin: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "There is no logger" in admin.get("/monitor/logs").text
    asked: list[LogsQuery] = []
    line = LogLine(
        at_ms=1, member="w-0", incarnation=1, sequence=1, level="error", event="page_failed",
        said={"url": EVIL, "n": 5, "event": "page_failed"},
    )  # fmt: skip
    silent = LoggerSilent(logger="http://b", why="refused")

    def answer(query: LogsQuery) -> LogsReply:
        asked.append(query)
        return LogsReply(items=(line,), next="1-1-1-w-0", loggers=("http://a",), silent=(silent,))

    monkeypatch.setattr(admin.service.loggers, "logs", answer)
    html = admin.get("/monitor/logs?level=warning&node=w&since=2h").text
    assert (asked[-1].level, asked[-1].node, asked[-1].newest) == ("warning", "w", True)
    assert "page_failed" in html
    assert "Logger http://b does not answer" in html
    assert links(html, "?level") == ["?level=warning&node=w&since=2h&after=1-1-1-w-0"]
    assert not [mark for mark in MARKS if "<" in mark and mark in html]
    for query in ("since=soon", "level=loud", "after=x", "node=%3Cb%3E"):
        wrong = admin.get(f"/monitor/logs?{query}")
        assert wrong.status_code == 200
        assert 'class="alert"' in wrong.text, query


def test_pages_of_the_monitor_say_which_part_is_away_and_what_to_do(
    admin: Desk, crawl: Crawl
) -> None:
    admin.queue.away = True
    html = admin.get("/monitor/").text
    assert "Redis does not answer" in html
    assert "GREENCRAWL_REDIS" in html
    assert admin.get("/monitor/crawls/blog").status_code == 200
    assert admin.get("/monitor/hosts/example.org").status_code == 503
    admin.queue.away = False
    admin.queue.broken = RuntimeError("a secret of ours")
    for path in ("/monitor/hosts/other.example", "/monitor/hosts/other.example?part=1"):
        broken = admin.get(path)
        assert broken.status_code == 500
        assert "secret" not in broken.text
        assert "see its log" in broken.text


# -- strangers' texts


def test_crawled_content_is_escaped_wherever_it_is_shown(desk: Desk, tmp_path: Path) -> None:
    desk.log_in()
    made = desk.crawl("blog", hook="shop")
    page = stored(
        made, "x", title=EVIL, text=EVIL, headers={"x-evil": EVIL, EVIL[:40]: "x"}, language=EVIL,
        canonical="javascript:alert(1)", final_url="javascript:alert(2)",
        fields={EVIL: EVIL}, links=[Admission("javascript:alert(3)", 1, 1)],
    )  # fmt: skip
    dead = final(made, "d", "dead", "timeout", detail=EVIL)
    parked = final(made, "t", "parked", "trap", shape=f"/{EVIL[:200]}", detail=EVIL)
    failed = HookRun(
        crawl=made.id, fingerprint=page.fingerprint, url=page.url, at_ms=1000,
        failures={"on_page": EVIL},
    )  # fmt: skip
    desk.store.commit(Commit(pages=[page], finals=[dead, parked], hooks=[failed]))
    paths = ["/monitor/pages", f"/monitor/pages/{page.id}", "/monitor/failures", "/monitor/traps"]
    paths += [f"/monitor/url?url={HOST}d", "/monitor/traps?part=1", "/monitor/"]
    paths += ["/monitor/url?url=javascript:alert(1)", f"/monitor/url?url={quote(EVIL)}"]
    for path in paths:
        html = desk.get(path).text
        assert desk.get(path).status_code == 200, path
        for mark in MARKS:
            if "<" in mark:
                assert mark not in html, path
        assert 'href="javascript:' not in html
        assert re.findall(r"49(?:\{%|\$|<!|&lt;!)", html) == [], path  # nothing was computed


def test_a_page_is_loaded_with_the_last_rendered_part_and_its_script_fetches_a_new_one(
    admin: Desk,
) -> None:
    now = [100.0]
    admin.monitor.app()._shared._clock = lambda: now[0]
    assert admin.get("/monitor/").status_code == 200
    admin.crawl("late")
    now[0] += 4
    assert "late" not in admin.get("/monitor/").text
    assert "late" in admin.get("/monitor/?part=1").text
    assert "late" in admin.get("/monitor/").text
    admin.crawl("later")
    now[0] += 6
    assert "later" in admin.get("/monitor/").text


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/monitor/?said=paused", {}), ("/monitor/", {"Cache_Control": "max-age=0"})],
    ids=["after a form at another broker", "loaded again"],
)
def test_a_page_is_rendered_again_after_a_form_and_on_a_reload(
    admin: Desk, path: str, headers: dict[str, str]
) -> None:
    now = [100.0]
    admin.monitor.app()._shared._clock = lambda: now[0]
    admin.get("/monitor/")
    admin.get(path)
    admin.crawl("late")
    now[0] += 1.5
    assert "late" in admin.get(path, **headers).text


def test_a_failed_page_is_rendered_again_on_a_reload(
    admin: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    admin.monitor.app()._shared._clock = lambda: now[0]

    def refuse() -> None:
        raise Unavailable("the store is away")

    with monkeypatch.context() as away:
        away.setattr(admin.store, "crawls", refuse)
        assert admin.get("/monitor/").status_code == 503
    now[0] += 1.5
    assert admin.get("/monitor/").status_code == 200
