"""Shared parts of tests of the Monitor in a browser: a crawler, its site, and a browser."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from greencrawl.schema.records import Commit
from greencrawl.store import Store, open_store
from tests.monitor.hostile import EVIL
from tests.support.cdp import Browser, Page
from tests.support.logger_process import LoggerProcess
from tests.support.shared_system import shared_system
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.system import System

TOKENS = {
    "admin_token": "the-admins-token",
    "view_token": "a-viewers-token",
    "worker_token": "w-token",
}
ADDRESSES = [f"127.0.1.{n}" for n in range(1, 20)]


class Site:
    """``/evil`` has hostile texts; ``/broken`` says that it is broken until it is corrected;
    ``/slow/…`` goes on for long; the rest is a small tree."""

    def __init__(self) -> None:
        self.broken = True

    def __call__(self, request: Request) -> Answer:
        if request.target == "/evil":
            title = EVIL.replace("<", "&lt;")
            headers = {
                "Content-Type": "text/html; charset=utf-8",
                "X-Evil": "<script>alert(1)</script>",
            }
            return Answer(200, f"<title>{title}</title><p>{title}</p>".encode(), headers)
        if request.target == "/broken":
            return Answer(200, b"<title>broken</title>" if self.broken else b"<title>whole</title>")
        path = request.target.rpartition("/")[2]
        if not path.isdigit():
            return Answer(404)
        number, slow = int(path), "slow/" if request.target.startswith("/slow/") else ""
        more = [] if number >= (4000 if slow else 4) else [2 * number + 1, 2 * number + 2]
        links = "".join(f'<a href="/{slow}{n}">{n}</a>' for n in more)
        own = "".join(chr(97 + byte % 26) for byte in hashlib.sha512(path.encode()).digest())
        text = f"<p>Text of {number}.</p><p>{own}</p>"  # otherwise it would count as a trap
        return Answer(200, f"<title>Page {number}</title>{text}{links}".encode())


class World:
    """A crawler, its site, and a browser."""

    def __init__(self, system: System, site: Site, web: SiteServer, browser: Browser) -> None:
        self.system = system
        self.site = site
        self.web = web
        self.browser = browser
        self.home = f"http://127.0.0.1:{system.port}/monitor/"
        self._hosts: dict[str, str] = {}

    def url(self, crawl: str, path: str = "0") -> str:
        """Return a page on a host that only this crawl has, so its delay slows no other crawl."""
        host = self._hosts.setdefault(crawl, ADDRESSES[len(self._hosts)])
        return f"http://{host}:{self.web.port}/{path}"

    @contextmanager
    def page(self, token: str = "the-admins-token", **more: Any) -> Iterator[Page]:
        """Return a browser's page of a person who has logged in."""
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

    def commit(self, work: Commit) -> None:
        """Store a page that was never fetched."""
        store = self.store()
        store.commit(work)
        store.close()

    def store(self) -> Store:
        """Return the system's store; close it afterwards."""
        return open_store(f"sqlite:///{self.system.folder / 'data' / 'content.sqlite'}")

    def logger(self, folder: Path) -> LoggerProcess:
        """Return one more process of this system; start and stop it."""
        return LoggerProcess(
            folder,
            broker=f"http://127.0.0.1:{self.system.port}",
            worker_token=TOKENS["worker_token"],
        )


@contextmanager
def a_world(folder: Path, **settings: str) -> Iterator[World]:
    """Start one broker, one worker and one browser; yield the world."""
    site = Site()
    with (
        SiteServer(site, ADDRESSES) as web,
        shared_system(folder, **TOKENS, **settings) as system,
        Browser(folder / "browser") as browser,
    ):
        yield World(system, site, web, browser)
