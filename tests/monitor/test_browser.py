"""The Monitor in a real Chromium: one broker, one worker and one browser for all of these tests.

Each test makes crawls of its own, and harms no process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gevent
import pytest

from greencrawl.schema.net.urls import fingerprint
from greencrawl.schema.records import Commit, Final, HookRun, StoredPage
from greencrawl.store import open_store
from tests.monitor.hostile import EVIL
from tests.support.axe import findings
from tests.support.cdp import Browser, Page
from tests.support.effort import LONG, cases
from tests.support.shared_system import shared_system
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.system import System, wait_until

TOKENS = {
    "admin_token": "the-admins-token",
    "view_token": "a-viewers-token",
    "worker_token": "w-token",
}
ADDRESSES = [f"127.0.1.{n}" for n in range(1, 20)]
MOST_BYTES = 120 * 1024
"""Of a first visit: page, style, scripts, pictures."""


def site(request: Request) -> Answer:
    """``/evil`` has hostile texts; ``/slow/…`` goes on for long; the rest is a small tree."""
    if request.target == "/evil":
        title = EVIL.replace("<", "&lt;")
        headers = {
            "Content-Type": "text/html; charset=utf-8",
            "X-Evil": "<script>alert(1)</script>",
        }
        return Answer(200, f"<title>{title}</title><p>{title}</p>".encode(), headers)
    path = request.target.rpartition("/")[2]
    if not path.isdigit():
        return Answer(404)
    number, slow = int(path), "slow/" if request.target.startswith("/slow/") else ""
    more = [] if number >= (4000 if slow else 4) else [2 * number + 1, 2 * number + 2]
    links = "".join(f'<a href="/{slow}{n}">{n}</a>' for n in more)
    return Answer(200, f"<title>Page {number}</title><p>Text of {number}.</p>{links}".encode())


class World:
    """A crawler, what it crawls, and a browser."""

    def __init__(self, system: System, web: SiteServer, browser: Browser) -> None:
        self.system = system
        self.web = web
        self.browser = browser
        self.home = f"http://127.0.0.1:{system.port}/monitor/"
        self._hosts: dict[str, str] = {}

    def url(self, crawl: str, path: str = "0") -> str:
        """A page of the crawl's own host: what one crawl's delay holds back is no other's."""
        host = self._hosts.setdefault(crawl, ADDRESSES[len(self._hosts)])
        return f"http://{host}:{self.web.port}/{path}"

    @contextmanager
    def page(self, token: str = "the-admins-token", **more: Any) -> Iterator[Page]:
        """A page of somebody who has logged in."""
        with self.browser.page(**more) as page:
            page.goto(self.home)
            page.fill("#token", token)
            page.click("form.login button", goes=True)
            yield page
            assert page.dialogs == []
            assert page.breaches == []
            assert page.errors == []
            assert [one for one in page.requests if not one.startswith(self.home)] == []

    def crawl(self, name: str, *paths: str, **options: object) -> None:
        self.system.crawl([self.url(name, path) for path in paths], name, delay=0, **options)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("monitor")
    with (
        SiteServer(site, ADDRESSES) as web,
        shared_system(folder, **TOKENS) as system,
        Browser(folder / "browser") as browser,
    ):
        yield World(system, web, browser)


def test_a_person_makes_a_crawl_slows_it_down_and_pauses_it(world: World) -> None:
    with world.page() as page:
        page.click("a.button.main", goes=True)
        page.fill("#name", "story")
        page.fill("#o-seeds", world.url("story", "slow/0"))
        page.click("details.group:nth-of-type(3) summary")
        page.fill("#o-delay", "0.02")
        page.click("form.options button.main", goes=True)
        assert page.run("location.pathname") == "/monitor/crawls/story"
        assert "The crawl is made" in page.text(".notice")
        # The page follows by itself.
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
        # The worker has it when its session is extended or ended; then the site is left alone.
        wait_until(lambda: _still(world), 40, "the site is asked every 30 s")

        page.click("form[action$='/pause'] button", goes=True)
        assert "paused" in page.text(".standing")
        page.click("details.sure summary")
        page.until("document.querySelector('details.sure').open")
        page.click("details.sure button", goes=True)
        page.until("document.querySelector('.state').innerText === 'done'")
        page.goto(world.home)
        assert "stopped" not in page.text("#crawls")
        assert "story" in page.text("#crawls")


def _still(world: World) -> bool:
    """Whether nothing was asked for a second, by the site's log."""
    before = len(world.web.hits)
    gevent.sleep(1.0)
    return len(world.web.hits) == before


def test_a_node_is_drained_and_goes_on(world: World) -> None:
    with world.page() as page:
        page.goto(f"{world.home}nodes")
        page.click("#nodes button[aria-label^=Drain]", goes=True)
        assert "draining" in page.text("#nodes")
        (ordered,) = world.system.call("GET", "/v1/orders")["nodes"]
        assert ordered["options"] == {"drain": True}
        page.click("#nodes button[aria-label^='Go on']", goes=True)
        assert "draining" not in page.text("#nodes")
        page.goto(f"{world.home}orders")
        assert "taken back" in page.text("#orders")
    world.crawl("drained", "0")
    world.system.wait_done(30, "drained")


def test_a_url_says_why_it_was_not_fetched(world: World) -> None:
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


def test_strangers_texts_run_nothing(world: World) -> None:
    """No dialog, no request elsewhere, no breach of the CSP: see ``World.page``."""
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
    store = open_store(f"sqlite:///{world.system.folder / 'data' / 'content.sqlite'}")
    store.commit(Commit(pages=[page_row], finals=finals, hooks=[failed]))
    store.close()
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


def test_what_gets_in_all_the_same_is_stopped_by_the_policy(world: World) -> None:
    """As if a place had forgotten to escape; and what tests go by does see it."""
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


def test_another_site_can_neither_read_nor_change(world: World) -> None:
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
        page.until("document.body.innerText.includes('another web page')")
        framed = f"<iframe src='{world.home}'></iframe>"
        page.run(f"document.body.innerHTML = {json.dumps(framed)}")
    assert world.system.call("GET", "/v1/crawls/kept")["state"] == "active"
    world.system.call("POST", "/v1/crawls/kept/stop", {"now": True})


def test_what_is_typed_and_open_stays_while_the_page_follows(world: World) -> None:
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


def test_a_tab_that_nobody_sees_asks_for_nothing_and_a_lost_broker_is_told(world: World) -> None:
    with world.page() as page:

        def asked() -> int:
            return sum("part=1" in one for one in page.requests)

        page.run("Object.defineProperty(document, 'hidden', { get: () => window.away, set() {} })")
        page.run("window.away = true")
        page.run("new Promise((done) => setTimeout(done, 2 * EVERY_MS + 500))")
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


def test_all_works_without_a_script(world: World) -> None:
    world.crawl("plain", "0")
    world.system.wait_done(30, "plain")
    with world.page(script=False) as page:
        page.goto(f"{world.home}crawls/plain")
        html = page.call("DOM.getDocument", depth=-1)
        assert "plain" in json.dumps(html)
        assert not [one for one in page.requests if one.endswith(".js")]


def test_the_keyboard_reaches_all_in_order(world: World) -> None:
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


@pytest.mark.parametrize("language", cases(["en"], ["zh-CN"]))
@pytest.mark.parametrize("dark", cases([True], [False]))
def test_axe_finds_nothing_serious(world: World, language: str, dark: bool) -> None:
    if "axe" not in {crawl["name"] for crawl in world.system.call("GET", "/v1/crawls")}:
        world.crawl("axe", "0", "nothing")
        world.system.wait_done(30, "axe")
    paths = ["", "crawls/axe"]
    if LONG:
        paths += ["crawls/axe/edit", "new", "pages", "url", f"url?url={world.url('axe')}"]
        paths += [
            "failures",
            "traps",
            "hosts",
            "frontier",
            "store",
            "nodes",
            "orders",
            "logs",
            "nothing",
        ]
    found = {}
    with world.page(dark=dark, language=language) as page:
        for path in paths:
            page.goto(world.home + path)
            page.run("document.querySelectorAll('details').forEach((one) => { one.open = true })")
            found[path] = findings(page)
        for start, link in (("pages?crawl=axe", "#pages th a"), ("nodes", "#nodes th a")):
            if LONG:
                page.goto(world.home + start)
                page.click(link, goes=True)
                found[link] = findings(page)
    if LONG:
        with world.browser.page(dark=dark, language=language) as page:
            page.goto(world.home)
            found["login"] = findings(page)
    assert {path: bad for path, bad in found.items() if bad} == {}


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
            wide = page.run("document.documentElement.scrollWidth")  # innerWidth grows with it
            assert wide <= 390, path


def test_a_first_visit_is_small(world: World) -> None:
    with world.page() as page:
        page.goto(world.home)
        bytes_ = page.run(
            "performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
            ".reduce((sum, one) => sum + one.decodedBodySize, 0)"
        )
        assert 20_000 < bytes_ <= MOST_BYTES
