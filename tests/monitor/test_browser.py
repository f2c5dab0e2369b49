"""The Monitor in a real Chromium: one broker, one worker and one browser for all of these tests.

Each test makes crawls of its own, and harms no process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import gevent
import pytest

from greencrawl.schema.net.urls import fingerprint
from greencrawl.schema.records import Commit, Final, HookRun, StoredPage
from tests.monitor.hostile import EVIL
from tests.monitor.world import World, a_world
from tests.support.axe import findings
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.system import wait_until

MOST_BYTES = 120 * 1024
"""For a first visit: page, style, scripts, pictures."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with a_world(tmp_path_factory.mktemp("monitor")) as made:
        yield made


def test_a_person_makes_a_crawl_slows_it_down_and_pauses_it(world: World) -> None:
    with world.page() as page:
        page.click("a.button.main", goes=True)
        page.fill("#name", "story")
        page.fill("#o-seeds", world.url("story", "slow/0"))
        page.click("details.group:nth-of-type(3) summary")
        page.fill("#o-delay", "0.02")
        page.fill("#o-traps", "off")  # pages of the site are alike
        page.click("form.options button.main", goes=True)
        assert page.run("location.pathname") == "/monitor/crawls/story"
        assert "The crawl is created" in page.text(".notice")
        # The page is updated by itself.
        page.until("Number(document.querySelectorAll('.figures dd')[1].innerText) > 3")

        page.click("nav.tabs a:last-child", goes=True)
        page.fill("#o-delay", "30")
        page.click("form.options button.main", goes=True)
        rows = page.text("#differences")
        assert "delay" in rows
        assert "0.02" in rows
        page.click("button[value=save]", goes=True)
        assert "Saved" in page.text(".notice")
        assert world.system.call("GET", "/v1/crawls/story")["options"]["delay"] == 30
        # The worker gets the new delay when its session is extended or ends; then it is silent.
        wait_until(lambda: _still(world), 40, "the site is asked every 30 s")

        page.click("form[action$='/pause'] button", goes=True)
        assert "paused" in page.text(".state-line")
        page.click("details.sure summary")
        page.until("document.querySelector('details.sure').open")
        page.click("details.sure button", goes=True)
        page.until("document.querySelector('.state').innerText === 'done'")
        page.goto(world.home)
        assert "stopped" not in page.text("#crawls")
        assert "story" in page.text("#crawls")


def _still(world: World) -> bool:
    """Return whether the site's log had no request for a second."""
    before = len(world.web.hits)
    gevent.sleep(1.0)
    return len(world.web.hits) == before


def test_a_node_can_be_drained_and_continued(world: World) -> None:
    with world.page() as page:
        page.goto(f"{world.home}nodes")
        page.click("#nodes button[aria-label^=Drain]", goes=True)
        assert "draining" in page.text("#nodes")
        (ordered,) = world.system.call("GET", "/v1/orders")["nodes"]
        assert ordered["options"] == {"drain": True}
        page.click("#nodes button[aria-label^='Continue']", goes=True)
        assert "draining" not in page.text("#nodes")
        page.goto(f"{world.home}orders")
        assert "taken back" in page.text("#orders")
    world.crawl("drained", "0")
    world.system.wait_done(30, "drained")


def test_the_page_of_a_url_says_why_it_was_not_fetched(world: World) -> None:
    world.crawl("why", "0", "nothing")
    world.system.wait_done(30, "why")
    with world.page() as page:
        page.fill("#search", world.url("why", "nothing"))
        page.click(".search button", goes=True)
        said = page.text("section[aria-label=why]")
        assert "404" in said
        page.goto(f"{world.home}pages?crawl=why")
        page.click("#pages th a", goes=True)
        assert "Text of" in page.text(".blocks")


def test_a_trap_is_released_and_a_failed_hook_runs_again(world: World) -> None:
    """Then the URL is fetched, and the hook's failure on it is gone."""
    world.crawl("mended", "broken", traps="on", hook="tests.support.picky_hook")
    world.system.wait_done(30, "mended")
    number = int(world.system.call("GET", "/v1/crawls/mended")["id"])
    parked = [
        Final(crawl=number, fingerprint=fingerprint(url), url=url, at_ms=1, state="parked",
              kind="trap", shape=f"/trap/{name}/#")
        for name in ("kept", "free") for url in [world.url("mended", f"trap/{name}/1")]
    ]  # fmt: skip
    world.commit(Commit(finals=parked))
    with world.page() as page:
        page.goto(f"{world.home}failures?crawl=mended")
        assert "it is broken" in page.text("section.card pre")
        world.site.broken = False
        page.click("section.card button", goes=True)
        assert "1 page is fetched again" in page.text(".notice")
        world.system.wait_done(30, "mended")
        page.goto(f"{world.home}failures?crawl=mended")
        assert "no hook has failed" in page.text(".empty")

        page.goto(f"{world.home}traps?crawl=mended")
        page.click("tr[data-key='/trap/free/#'] button", goes=True)
        assert "/trap/free/#" not in page.text("#traps")
        assert "/trap/kept/#" in page.text("#traps")
    world.system.wait_done(30, "mended")
    asked = {hit.target for hit in world.web.hits}
    assert "/trap/free/1" in asked
    assert "/trap/kept/1" not in asked


def test_foreign_texts_run_no_script_in_the_browser(world: World) -> None:
    """There is no dialog, no request elsewhere, no violation of the CSP: see ``World.page``."""
    world.crawl("evil", "evil", "0", traps="on")
    world.system.wait_done(30, "evil")
    number = int(world.system.call("GET", "/v1/crawls/evil")["id"])
    url = "http://evil.example/"
    page_row = StoredPage(
        crawl=number, fingerprint=fingerprint(url), url=url, status=200, title=EVIL, text=EVIL,
        headers={"x-evil": EVIL}, body=EVIL.encode(), fetched_ms=1, canonical="javascript:alert(1)",
        fields={EVIL: EVIL}, language=EVIL, links=[],
    )  # fmt: skip
    finals = [
        Final(crawl=number, fingerprint=n, url=f"{url}{n}", state=state, kind=kind, detail=EVIL,  # type: ignore[arg-type]
              shape=f"/{EVIL[:200]}" if state == "parked" else "")
        for n, (state, kind) in enumerate([("dead", "timeout"), ("parked", "trap")], 5)
    ]  # fmt: skip
    failed = HookRun(
        crawl=number, fingerprint=page_row.fingerprint, url=url, at_ms=1, failures={"on_page": EVIL}
    )
    world.commit(Commit(pages=[page_row], finals=finals, hooks=[failed]))
    paths = [
        "pages?crawl=evil", f"pages/{page_row.id}", "failures?crawl=evil", "traps?crawl=evil",
        f"url?crawl=evil&url={url}5", "crawls/evil", "crawls/evil/edit", "",
    ]  # fmt: skip
    with world.page() as page:
        for path in paths:
            page.goto(world.home + path)
            live = page.run("document.querySelectorAll('[data-live]').length")
            if live:  # drawn by the script as well
                page.run("follow && 0")
                page.run(
                    "fetch(location.href + (location.search ? '&' : '?') + 'part=1')"
                    ".then((answer) => answer.text()).then((text) => morph("
                    "document.querySelector('[data-live]'),"
                    "new DOMParser().parseFromString(text, 'text/html').body))"
                )
            marks = page.run(
                "document.querySelectorAll('main script, main iframe, main base').length"
            )
            assert marks == 0
        page.goto(f"{world.home}pages/{page_row.id}")
        assert page.run("document.querySelector('h1').textContent") == " ".join(EVIL.split())
        assert (
            page.run("[...document.links].filter((a) => a.protocol === 'javascript:').length") == 0
        )


def test_the_content_security_policy_stops_scripts_that_were_not_escaped(world: World) -> None:
    """The page forgets to escape on purpose; the test's checks notice it."""
    with world.page() as page:
        page.run(
            """(() => {
              const add = (name, given) =>
                document.body.append(Object.assign(document.createElement(name), given));
              add("script", { textContent: "window.ran = 1" });
              add("script", { src: "http://127.0.0.9:9/x.js" });
              add("img", { src: "http://127.0.0.9:9/x.png" });
              add("iframe", { src: "http://127.0.0.9:9/" });
              document.body.setAttribute("onclick", "window.ran = 2");
              document.body.click();
            })()"""
        )
        asked = "fetch('http://127.0.0.9:9/').then(() => 1, () => 0)"
        assert page.run(asked) == 0
        assert page.run("window.ran === undefined")
        assert len(page.breaches) >= 4
        page.breaches.clear()
        page.requests = [one for one in page.requests if "127.0.0.9" not in one]


def test_another_site_can_neither_read_the_monitor_nor_change_a_crawl(world: World) -> None:
    world.crawl("kept", "slow/0")
    attack = f"""<form id=f method=post action="{world.home}crawls/kept/pause">
      <input name=form_token value=x></form><script>f.submit()</script>"""

    def foreign(request: Request) -> Answer:
        return Answer(200, attack.encode())

    with SiteServer(foreign) as other, world.browser.page() as page:
        page.goto(world.home)
        page.fill("#token", "the-admins-token")
        page.click("form.login button", goes=True)
        page.going(lambda: page.goto(f"http://127.0.0.1:{other.port}/"))
        page.until("document.body.innerText.includes('another website')")
        framed = f"<iframe src='{world.home}'></iframe>"
        page.run(f"document.body.innerHTML = {json.dumps(framed)}")
    assert world.system.call("GET", "/v1/crawls/kept")["state"] == "active"
    world.system.call("POST", "/v1/crawls/kept/stop", {"now": True})


def test_focus_and_open_sections_stay_while_the_page_is_updated(world: World) -> None:
    world.crawl("typed", "slow/0")
    with world.page() as page:
        page.goto(f"{world.home}crawls/typed")
        page.click("details.sure summary")
        page.run("document.querySelector('details.sure button').focus()")
        before = page.text(".figures")
        page.until(f"document.querySelector('.figures').innerText !== {json.dumps(before)}")
        assert page.run("document.querySelector('details.sure').open")
        assert page.run("document.activeElement.textContent") == "Stop"
        page.press("Escape")
        assert not page.run("document.querySelector('details.sure').open")
        assert page.run("document.activeElement.tagName") == "SUMMARY"
    world.system.call("POST", "/v1/crawls/typed/stop", {"now": True})


def test_plots_are_drawn_again_when_their_place_is_replaced(world: World) -> None:
    world.crawl("plotted", "slow/0")
    with world.page() as page:
        drawn = "document.querySelector('[data-plot] canvas') !== null"
        page.until(drawn)
        page.run("document.querySelector('[data-plot]').parentNode.remove()")
        page.until(drawn)
        assert page.run("[...plots.keys()].every((place) => place.isConnected)")
    world.system.call("POST", "/v1/crawls/plotted/stop", {"now": True})


def test_a_hidden_tab_sends_no_requests_and_a_lost_broker_is_shown(world: World) -> None:
    with world.page() as page:

        def asked() -> int:
            return sum("part=1" in one for one in page.requests)

        page.run("Object.defineProperty(document, 'hidden', { get: () => window.away, set() {} })")
        page.run("window.away = true")
        page.run("new Promise((done) => setTimeout(done, CALM_MS + 500))")
        before = asked()
        page.run("new Promise((done) => setTimeout(done, EVERY_MS + 500))")
        assert asked() == before
        seen = "document.dispatchEvent(new Event('visibilitychange'))"
        page.run(f"window.away = false; for (let n = 0; n < 5; n++) {seen}; 0")
        wait_until(lambda: asked() > before, 10, "it asks again when it is seen")
        page.run("0")
        assert asked() == before + 1, "once, however often the tab comes and goes meanwhile"

        given = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        page.call("Network.emulateNetworkConditions", offline=True, **given)
        page.until("!document.getElementById('lost').hidden")
        assert "The broker does not answer" in page.text("#lost")
        page.call("Network.emulateNetworkConditions", offline=False, **given)
        page.until("document.getElementById('lost').hidden")


def test_the_page_of_a_crawl_is_shown_without_scripts(world: World) -> None:
    world.crawl("plain", "0")
    world.system.wait_done(30, "plain")
    with world.page(script=False) as page:
        page.goto(f"{world.home}crawls/plain")
        html = page.call("DOM.getDocument", depth=-1)
        assert "plain" in json.dumps(html)
        assert not [one for one in page.requests if one.endswith(".js")]


def test_the_tab_key_reaches_the_skip_link_first_and_then_the_menu(world: World) -> None:
    with world.page() as page:
        page.press("Tab")
        assert page.run("document.activeElement.className") == "skip"
        page.going(lambda: (page.press("Enter"), page.call("Page.reload")))
        seen = []
        for _ in range(24):
            page.press("Tab")
            seen.append(page.run("document.activeElement.textContent.trim()"))
        assert "Overview" in seen
        assert "New crawl" in seen


def test_axe_finds_nothing_serious(world: World) -> None:
    """By day this checks two pages with dark colours; by night all pages, in both languages and
    themes."""
    world.crawl("axe", "0", "nothing")
    world.system.wait_done(30, "axe")
    with world.page(dark=True) as page:
        for path in ("", "crawls/axe"):
            page.goto(world.home + path)
            page.run("document.querySelectorAll('details').forEach((one) => { one.open = true })")
            assert findings(page) == [], path


def test_pages_fit_a_phone(world: World) -> None:
    world.crawl("phone", "0", "nothing")
    world.system.wait_done(30, "phone")
    with world.page(width=390) as page:
        page.resize(390, 800, phone=True)
        for path in (
            "",
            "crawls/phone",
            "crawls/phone/edit",
            "pages",
            "failures",
            "nodes",
            "hosts",
        ):
            page.goto(world.home + path)
            # innerWidth grows with elements that are too wide
            assert page.run("document.documentElement.scrollWidth") <= 390, path


def test_a_first_visit_loads_few_bytes(world: World) -> None:
    with world.page() as page:
        page.goto(world.home)
        bytes_ = page.run(
            "performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
            ".reduce((sum, one) => sum + one.decodedBodySize, 0)"
        )
        assert 20_000 < bytes_ <= MOST_BYTES
