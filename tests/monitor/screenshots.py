"""Pictures of the Monitor for docs/monitor.md: ``python -m tests.monitor.screenshots [FOLDER]``.

It starts a crawler and small sites on loopback, and looks at them while they are crawled. With a
FOLDER all pages are drawn there, wide and narrow, light and dark, to be looked at.
"""

from gevent import monkey

monkey.patch_all()

import sys  # noqa: E402
import tempfile  # noqa: E402
from pathlib import Path  # noqa: E402

import gevent  # noqa: E402

from tests.support.cdp import Browser, Page  # noqa: E402
from tests.support.checkout import ROOT  # noqa: E402
from tests.support.shared_system import shared_system  # noqa: E402
from tests.support.site_server import Answer, Request, SiteServer  # noqa: E402
from tests.support.system import System  # noqa: E402

TOKEN = "the-admins-token"
TARGET = ROOT / "docs" / "monitor"
PLANTS = ("Fern", "Mint", "Basil", "Orchid", "Cactus", "Tea", "Willow", "Thyme", "Moss", "Lily")
WARM_SECONDS = 25.0
"""For a plot that shows something."""
NARROW, WIDE = 390, 1280


def site(request: Request) -> Answer:
    """Some thousand pages on plants; a few of them are broken."""
    if not request.target.strip("/").isdigit() and request.target != "/":
        return Answer(404)
    number = int(request.target.strip("/") or 0)
    if number % 23 == 22:
        return Answer(500 if number % 2 else 404)
    plant = PLANTS[number % len(PLANTS)]
    words = f"{plant} likes half a day of light, and water when the soil is dry. " * 3
    links = "".join(
        f'<a href="/{n}">{n}</a> ' for n in (3 * number + 1, 3 * number + 2, 3 * number + 3)
    )
    body = f"<title>{plant}, plant {number}</title><nav>Home Plants Shop</nav><h1>{plant}</h1>"
    body += f"<p>{words}</p><p>{words}</p>{links if number < 3000 else ''}"
    return Answer(200, body.encode(), wait=0.01 * (number % 7))


def crawls(system: System, port: int, addresses: list[str]) -> None:
    for n, (name, delay) in enumerate(
        (("gardens", 0.05), ("shops", 0.1), ("guides", 0.2), ("news", 1))
    ):
        seeds = [f"http://{address}:{port}/" for address in addresses[2 * n : 2 * n + 2]]
        limit = {"max_pages": 40} if name == "guides" else {}
        system.crawl(seeds, name, delay=delay, contact="https://example.org/bot", **limit)
    system.call("POST", "/v1/crawls/news/pause")


def everything(page: Page, home: str, folder: Path) -> None:
    """Each page in each look, to be looked at."""
    page.goto(f"{home}pages?crawl=guides")
    found = page.run("document.querySelector('#pages th a').pathname").removeprefix("/monitor/")
    paths = {
        "overview": "", "crawl": "crawls/gardens", "edit": "crawls/gardens/edit", "new": "new",
        "pages": "pages?crawl=guides", "page": found, "url": "url?url=http://127.0.1.1:1/",
        "hosts": "hosts", "failures": "failures?crawl=gardens", "traps": "traps",
        "frontier": "frontier", "store": "store",
    }  # fmt: skip
    for language in ("en", "zh-CN"):
        page.speak(language)
        for dark in (False, True):
            page.look(dark=dark)
            for width in (WIDE, NARROW):
                page.resize(width, 900, phone=width == NARROW)
                for name, path in paths.items():
                    page.goto(home + path)
                    look = f"{name}-{language[:2]}-{'dark' if dark else 'light'}-{width}.png"
                    page.picture(folder / look)


def main(arguments: list[str]) -> int:
    addresses = [f"127.0.1.{n}" for n in range(1, 9)]
    with (
        tempfile.TemporaryDirectory() as temporary,
        SiteServer(site, addresses) as web,
        shared_system(Path(temporary), admin_token=TOKEN, worker_token="a-workers-token") as system,
        Browser(Path(temporary) / "browser") as browser,
        browser.page(width=WIDE, height=800) as page,
    ):
        home = f"http://127.0.0.1:{system.port}/monitor/"
        crawls(system, web.port, addresses)
        page.goto(home)
        page.fill("#token", TOKEN)
        page.click("form.login button", goes=True)
        gevent.sleep(WARM_SECONDS)
        if arguments:
            folder = Path(arguments[0])
            folder.mkdir(parents=True, exist_ok=True)
            everything(page, home, folder)
            return 0
        TARGET.mkdir(exist_ok=True)
        page.goto(home)
        page.picture(TARGET / "overview.png", whole=False)
        page.goto(f"{home}crawls/gardens/edit")
        page.fill("#o-delay", "0.5")
        page.fill("#o-exclude", "/search\\?")
        page.click("form.options button.main", goes=True)
        page.resize(WIDE, 420)
        page.picture(TARGET / "difference.png", whole=False)
        page.look(dark=True)
        page.resize(NARROW, 800, phone=True)
        page.goto(f"{home}crawls/gardens")
        page.picture(TARGET / "phone.png", whole=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
