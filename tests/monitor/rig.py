"""Shared parts of tests of the Monitor: a Monitor without processes, on a double of the
frontier."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import falcon.testing

from greencrawl.monitor.mount import Monitor
from greencrawl.schema.records import Crawl, CrawlOptions
from tests.support.queue_double import Parts

ADMIN, VIEW = "an-admins-token", "a-viewers-token"
HOST = "127.0.0.1"
ORIGIN = f"http://{HOST}"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Desk(Parts):
    """A Monitor and a person who uses it: cookies are kept, forms are sent as browsers do."""

    def __init__(self, folder: Path, admin: str = ADMIN, view: str = VIEW) -> None:
        super().__init__(folder)
        self.monitor = Monitor(self.service, admin, view)
        self.client = falcon.testing.TestClient(self.monitor.app().wsgi)
        self.cookies: dict[str, str] = {}

    def close(self) -> None:
        self.monitor.stop()
        self.service.stop()
        self.store.close()

    def crawl(self, name: str = "blog", **options: Any) -> Crawl:
        """Make a crawl without the Monitor."""
        made = self.store.put_crawl(name, CrawlOptions(**options), ["example.org"])
        self.queue.put_crawl(made)
        return made

    def get(self, path: str, **headers: str) -> falcon.testing.Result:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("GET", path, named)

    def post(
        self, path: str, stamp: str, headers: dict[str, str] | None = None, **fields: Any
    ) -> falcon.testing.Result:
        """Send a form with the token ``stamp`` as a browser does from a page of the Monitor, with
        ``headers`` changed; one that is "" is not sent."""
        sent = {"Origin": ORIGIN, **FORM, **(headers or {})}
        body = urlencode({"form_token": stamp, **fields}, doseq=True)
        kept = {name: value for name, value in sent.items() if value}
        host = kept.pop("Host", HOST)
        return self.ask("POST", path, kept, body=body, host=host)

    def ask(
        self, method: str, path: str, headers: dict[str, str], **more: Any
    ) -> falcon.testing.Result:
        where, _, query = path.partition("?")
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        kept = {**({"Cookie": cookie} if cookie else {}), **headers}
        result = self.client.simulate_request(
            method, where, query_string=query, headers=kept, **{"host": HOST, **more}
        )
        for name, one in result.cookies.items():
            self.cookies[name] = one.value
        return result

    def log_in(self, token: str = ADMIN) -> falcon.testing.Result:
        form = self.get("/monitor/login")
        return self.post("/monitor/login", form_token(form.text), token=token)

    def stamp(self) -> str:
        """Return the token of forms on a page."""
        return form_token(self.get("/monitor/").text)


def form_token(html: str) -> str:
    """Return the token of the first form of a page."""
    found = re.search(r'name="form_token" value="([^"]+)"', html)
    assert found is not None, html[:500]
    return unescape(found[1])
