"""Pictures of the Monitor for docs/monitor.md: ``python -m tests.monitor.screenshots [FOLDER]``.

Three nodes, a logger and small sites on loopback; the store has twenty crawls and 100,000 pages
(``scenery.py``). With a FOLDER pictures of all pages are written there for a person to check: wide
and narrow, light and dark, in both languages. They show a system at work, also as a person with
read access sees it, and then without its Redis; a system that was just started, and then without
its store; and a store on a ring of servers, and then without one of them. Texts that do not fit
their place are reported.

``FOLDER full``, ``FOLDER empty`` and ``FOLDER ring`` draw one of these systems.
"""

from gevent import monkey

monkey.patch_all()

import sys  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Iterator, Mapping, Sequence  # noqa: E402
from contextlib import ExitStack, contextmanager  # noqa: E402
from pathlib import Path  # noqa: E402

import gevent  # noqa: E402

from greencrawl.monitor.app import LOADED_SECONDS  # noqa: E402
from greencrawl.store import open_store  # noqa: E402
from greencrawl.store.mysql.cluster.steward import by_hand  # noqa: E402
from greencrawl.store.steward import steward_of  # noqa: E402
from tests.monitor import scenery  # noqa: E402
from tests.support.cdp import Browser, Page  # noqa: E402
from tests.support.checkout import ROOT  # noqa: E402
from tests.support.dns_server import DnsServer, Zone  # noqa: E402
from tests.support.logger_process import LoggerProcess  # noqa: E402
from tests.support.mariadb import MariaDb, local_cluster  # noqa: E402
from tests.support.redis_server import RedisServer  # noqa: E402
from tests.support.site_server import Answer, Request, SiteServer  # noqa: E402
from tests.support.system import System, wait_until  # noqa: E402

ADMIN, WORKER, VIEW = "the-admins-token", "a-workers-token", "a-viewers-token"
TARGET = ROOT / "docs" / "monitor"
ADDRESSES = [f"127.0.1.{n}" for n in range(1, 9)]
WARM_SECONDS = 20.0
"""How long the system runs before the pictures, so that there are rates and reports of nodes."""
NARROW, WIDE = 390, 1280
NODES = ("kyoto", "kew", "wuhan")
PATHS = {
    "overview": "", "crawl": "crawls/gardens", "crawl-hook": "crawls/shops",
    "crawl-done": "crawls/botany-papers", "crawl-resting": "crawls/flower-prices",
    "crawl-month": "crawls/garden-forums?span=month", "edit": "crawls/gardens/edit", "new": "new",
    "pages": "pages?crawl=herbarium-2025", "pages-none": "pages?crawl=gardens&grep=Rhubarb",
    "pages-wrong": "pages?crawl=gardens&status=oops", "url-none": "url",
    "hosts": "hosts", "failures": "failures?crawl=shops",
    "failures-kind": "failures?crawl=gardens&kind=timeout", "traps": "traps?crawl=gardens",
    "nodes": "nodes", "node": "nodes/kew", "nodes-all": "nodes/*", "frontier": "frontier",
    "store": "store", "logs": "logs", "logs-level": "logs?level=error", "orders": "orders",
    "missing": "nothing", "no-such-crawl": "crawls/nothing",
}  # fmt: skip
EMPTY = ("new", "pages", "url", "failures", "traps", "nodes", "hosts", "frontier", "store", "logs",
         "orders", "nodes/*")  # fmt: skip
LONELY = {"overview": "", "crawl": "crawls/lonely", "pages": "pages", "failures": "failures",
          "traps": "traps", "host": "hosts/127.0.0.1:9", "edit": "crawls/lonely/edit",
          "url": "url?url=http://127.0.0.1:9/"}  # fmt: skip
LOOKS = (
    ("en-wide", "en", False, WIDE), ("en-dark-phone", "en", True, NARROW),
    ("zh-dark-wide", "zh-CN", True, WIDE), ("zh-phone", "zh-CN", False, NARROW),
)  # fmt: skip
DRAWN = """[...document.querySelectorAll("[data-plot]")].every((one) =>
  plots.has(one) || JSON.parse(one.dataset.plot)[0].length < 2)"""
"""Returns true once all plots are drawn: they come after the page."""
TIGHT = """[...document.querySelectorAll("main *")].filter((one) =>
  one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 1
  && getComputedStyle(one).overflowX !== "visible").map((one) =>
  `${one.tagName} ${one.id || one.className} ${one.getAttribute("aria-label") ?? ""}: `
  + `${one.scrollWidth} in ${one.clientWidth}`)"""
"""Finds elements that are wider than their place: scrolled, or cut."""
ENGLISH = """(() => {
  const found = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode.data, place = texts.currentNode.parentElement;
    if (/[a-z]{2,} [a-z]{2,}/i.test(text) && !place.closest("[lang=en], code, pre"))
      found.push(text.trim().slice(0, 80));
  }
  return found;
})()"""
"""Finds texts of several English words that are not marked as English."""


def site(request: Request) -> Answer:
    """Pages about plants, without end; a few of them are broken."""
    last = request.target.rpartition("/")[2]
    number = int(last) if last.isdigit() else 0
    if number % 23 == 22:
        return Answer(500 if number % 46 == 45 else 404)
    plant = scenery.PLANTS[number % len(scenery.PLANTS)]
    text = scenery.TEXT.format(plant=plant)
    links = "".join(
        f'<a href="/{n}">{n}</a> ' for n in (3 * number + 1, 3 * number + 2, 3 * number + 3)
    )
    body = f"<title>{plant}, plant {number}</title><nav>Home Plants Shop</nav><h1>{plant}</h1>"
    return Answer(200, f"{body}<p>{text}</p>{links}".encode(), wait=0.02 * (number % 7))


class Nodes:
    """A broker, three nodes and a logger, each in a folder of its own."""

    def __init__(
        self, stack: ExitStack, folder: Path, names: DnsServer | None, store: str, **more: str
    ) -> None:
        self.redis = RedisServer(folder / "redis").start()
        stack.callback(self.redis.stop)
        self.store = store
        self.shared = {
            "store": store, "admin_token": ADMIN, "worker_token": WORKER, "view_token": VIEW,
            "dns_servers": names.address if names is not None else "", **more,
        }  # fmt: skip
        self.broker = stack.enter_context(
            System(folder / "b", [self.redis.url], worker_id="broker-1", **self.shared)
        )
        self.broker.start_broker()
        self.home = f"http://127.0.0.1:{self.broker.port}/monitor/"
        self._stack = stack
        self._folder = folder

    def work(self) -> None:
        """Start the nodes and the logger."""
        address = f"http://127.0.0.1:{self.broker.port}"
        logger = LoggerProcess(self._folder / "logger", broker=address, worker_token=WORKER)
        self._stack.callback(logger.stop)
        logger.start()
        for number, name in enumerate(NODES):
            worker = System(
                self._folder / name, [self.redis.url], worker_id=name, broker=address,
                processes=1 + number % 2, **self.shared,
            )  # fmt: skip
            self._stack.enter_context(worker).start_worker()

        def heard() -> bool:
            found = self.broker.call("GET", "/v1/members")["members"]
            return {one["node"] for one in found} >= {*NODES}

        wait_until(heard, 60, "all nodes are members")


def seeded(nodes: Nodes, port: int) -> None:
    """Write everything that the pictures show into the store, and tell Redis."""
    store = open_store(nodes.store)
    scenery.paint(store, port)
    store.close()
    nodes.broker.call("POST", "/v1/repair", {"all": True})

    def repaired() -> bool:
        found = nodes.broker.call("GET", "/v1/repair")["nodes"]
        return all(one["phase"] in ("none", "done") for one in found)

    gevent.sleep(1.0)  # the time until it starts
    wait_until(repaired, 120, "Redis knows what is stored")
    for scene in scenery.SCENES:
        if scene.state == "active":
            urls = scenery.options_of(scene, port).seeds
            more = [f"{url}{n}" for url in urls for n in range(1000, 1200)]
            nodes.broker.call("POST", f"/v1/crawls/{scene.name}/urls", {"urls": [*urls, *more]})


def ordered(nodes: Nodes, port: int) -> None:
    """Give orders to nodes, and change hosts, as people do."""
    orders: list[tuple[str, dict[str, object]]] = [
        ("*", {"log_level": "info"}),
        ("kew", {"requests_per_second": 40}),
        ("wuhan", {"drain": True}),
        ("wuhan", {"drain": None, "greenlets": 200}),
    ]
    for member, options in orders:
        given = {name: value for name, value in options.items() if value is not None}
        unset = [name for name, value in options.items() if value is None]
        body = {"member": member, "options": given, "unset": unset, "by": "amelie"}
        nodes.broker.call("PATCH", "/v1/orders", body)
    nodes.broker.call("PATCH", f"/v1/hosts/forum.shops.example:{port}", {"block": 5400})
    nodes.broker.call("PATCH", f"/v1/hosts/docs.gardens.example:{port}", {"delay": 5})


def logged_in(page: Page, home: str, token: str = ADMIN) -> None:
    page.goto(home)
    page.fill("#token", token)
    page.click("form.login button", goes=True)


def drawn(
    page: Page,
    home: str,
    folder: Path,
    paths: Mapping[str, str],
    before: str = "",
    looks: Sequence[tuple[str, str, bool, int]] = LOOKS,
) -> None:
    """Write a picture of each page in each size, colour and language."""
    for look, language, dark, width in looks:
        page.speak(language)
        page.look(dark=dark)
        page.resize(width, 900, phone=width == NARROW)
        for name, path in paths.items():
            page.goto(home + path)
            kept(page, folder / f"{before}{name}-{look}.png")
    page.speak("en")
    page.look(dark=False)
    page.resize(WIDE, 900)


def kept(page: Page, file: Path) -> None:
    """Write one picture; report texts that do not fit, and English texts on a Chinese page."""
    page.until(f"!document.body.dataset.plots || {DRAWN}")
    page.picture(file)
    seen = page.run(TIGHT) + (page.run(ENGLISH) if "-zh-" in file.name else [])
    for one in seen:
        print(f"{file.name}: {one}", flush=True)


def asked(page: Page, home: str, folder: Path) -> None:
    """Draw what appears while people do something: questions, differences, errors in a form."""
    for look, language, dark, width in LOOKS[1:3]:
        page.speak(language)
        page.look(dark=dark)
        page.resize(width, 900, phone=width == NARROW)
        page.goto(f"{home}crawls/gardens?said=saved")
        page.click("details.sure summary")
        kept(page, folder / f"do-question-{look}.png")
        page.fill("#urls", "http://www.gardens.example/one\nftp://www.gardens.example/two\nthree")
        page.click("form.stack button", goes=True)
        kept(page, folder / f"do-seeded-{look}.png")
        page.goto(f"{home}crawls/gardens/edit")
        page.fill("#o-delay", "0.5")
        page.fill("#o-exclude", "/search\\?\n/login")
        page.click("form.options button.main", goes=True)
        kept(page, folder / f"do-difference-{look}.png")
        page.goto(f"{home}crawls/gardens/edit")
        page.fill("#o-delay", "soon")
        page.fill("#o-tries", "-3")
        page.click("form.options button.main", goes=True)
        kept(page, folder / f"do-wrong-{look}.png")
        page.goto(f"{home}frontier")
        page.run("document.querySelectorAll('main details').forEach((one) => one.open = true)")
        kept(page, folder / f"do-partitions-{look}.png")


@contextmanager
def world(folder: Path, browser: Browser) -> Iterator[tuple[Nodes, Page]]:
    """Draw the whole system at work."""
    zone = Zone(ADDRESSES[0:1])
    with (
        ExitStack() as stack,
        SiteServer(site, ADDRESSES) as web,
        DnsServer({"example": zone}) as names,
        browser.page(width=WIDE, height=800) as page,
    ):
        store = f"sqlite:///{folder / 'content.sqlite'}"
        nodes = Nodes(stack, folder, names, store)
        seeded(nodes, web.port)
        nodes.work()
        ordered(nodes, web.port)
        logged_in(page, nodes.home)
        gevent.sleep(WARM_SECONDS)
        yield nodes, page


def all_pages(nodes: Nodes, page: Page, browser: Browser, folder: Path) -> None:
    """Draw all pages of the system at work, also as a person with read access sees them; then
    without its Redis."""
    page.goto(f"{nodes.home}pages?crawl=gardens")
    found = page.run("document.querySelector('#pages th a').pathname").removeprefix("/monitor/")
    page.goto(f"{nodes.home}failures?crawl=gardens")
    url = page.run("document.querySelector('#letters th a').href").partition("/monitor/")[2]
    page.goto(f"{nodes.home}crawls/gardens/edit")
    seeds = page.run("document.querySelector('#o-seeds').value.split('\\n')")
    first = seeds[0].partition("//")[2].strip("/")
    host = f"hosts/{first}"
    more = {
        "page": found, "url": url, "url-seed": f"url?url={seeds[0]}", "host": host,
        "host-delayed": host.replace("www.", "docs."),
        "host-blocked": host.replace("www.gardens", "forum.shops"),
    }  # fmt: skip
    drawn(page, nodes.home, folder, {**PATHS, **more})
    asked(page, nodes.home, folder)
    with browser.page(width=WIDE, height=800) as viewer:
        logged_in(viewer, nodes.home, VIEW)
        drawn(viewer, nodes.home, folder, {**PATHS, **more}, "view-", LOOKS[1:3])
    nodes.redis.stop()
    gevent.sleep(LOADED_SECONDS)  # until it is noticed
    drawn(page, nodes.home, folder, {**PATHS, **more}, "no-redis-")


def empty(folder: Path, browser: Browser, target: Path) -> None:
    """Draw a system that was just started; then take its store away."""
    bare = {"overview": "", **{name.replace("/*", "-all"): name for name in EMPTY}}
    with ExitStack() as stack:
        database = MariaDb(folder / "db").start()
        stack.callback(database.stop)
        nodes = Nodes(stack, folder, None, database.url)
        page = stack.enter_context(browser.page(width=WIDE, height=800))
        drawn(page, nodes.home, target, {"login": ""})
        page.goto(nodes.home)
        page.fill("#token", "a guess")
        page.click("form.login button", goes=True)
        kept(page, target / "login-wrong.png")
        logged_in(page, nodes.home)
        drawn(page, nodes.home, target, bare, "empty-")
        nodes.broker.crawl(["http://127.0.0.1:9/"], "lonely")
        gevent.sleep(LOADED_SECONDS)  # until parts from before it are drawn anew
        drawn(page, nodes.home, target, LONELY, "no-worker-")
        database.stop()
        drawn(page, nodes.home, target, {**bare, **LONELY}, "no-store-")


def ring(folder: Path, browser: Browser, target: Path) -> None:
    """Two masters with three replicas; then one of the masters is away."""
    with ExitStack() as stack:
        cluster = local_cluster(folder / "c")
        stack.callback(cluster.stop)
        cluster.start()
        steward = steward_of(cluster.url(), cluster.steward)
        assert steward is not None
        by_hand.form(steward)
        steward.close()
        given = {"store_steward": cluster.steward}
        nodes = Nodes(stack, folder, None, cluster.url(), **given)
        page = stack.enter_context(browser.page(width=WIDE, height=800))
        nodes.broker.crawl(["http://127.0.0.1:9/"], "lonely")
        logged_in(page, nodes.home)
        page.goto(f"{nodes.home}store")
        page.until("document.querySelectorAll('#servers tbody tr').length === 5", 60)
        paths = {"store": "store", "overview": "", "frontier": "frontier"}
        drawn(page, nodes.home, target, paths, "ring-")
        for name in ("m1", "r1"):
            cluster.stop([name])
            page.goto(f"{nodes.home}store")
            page.until("document.querySelector('#servers .state') !== null", 60)
            gevent.sleep(5.0)
            drawn(page, nodes.home, target, paths, f"ring-without-{name}-")


def for_the_docs(nodes: Nodes, page: Page) -> None:
    """Draw the pictures of docs/monitor.md."""
    TARGET.mkdir(exist_ok=True)
    page.goto(nodes.home)
    page.until(DRAWN)
    page.picture(TARGET / "overview.png", whole=False)
    page.goto(f"{nodes.home}crawls/gardens/edit")
    page.fill("#o-delay", "0.5")
    page.fill("#o-exclude", "/search\\?")
    page.click("form.options button.main", goes=True)
    page.resize(WIDE, 420)
    page.picture(TARGET / "difference.png", whole=False)
    page.look(dark=True)
    page.resize(NARROW, 800, phone=True)
    page.goto(f"{nodes.home}crawls/gardens")
    page.until(DRAWN)
    page.picture(TARGET / "phone.png", whole=False)


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with Browser(folder / "browser") as browser:
            if not arguments:
                with world(folder / "world", browser) as (nodes, page):
                    for_the_docs(nodes, page)
                return 0
            target = Path(arguments[0])
            target.mkdir(parents=True, exist_ok=True)
            if "full" in arguments[1:] or not arguments[1:]:
                with world(folder / "world", browser) as (nodes, page):
                    all_pages(nodes, page, browser, target)
            if "empty" in arguments[1:] or not arguments[1:]:
                empty(folder / "empty", browser, target)
            if "ring" in arguments[1:] or not arguments[1:]:
                ring(folder / "ring", browser, target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
