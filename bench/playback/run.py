"""Crawl a site twice, with and without requisites, and show its pages from both archives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from bench.playback.browser import Browser, Exchange
from bench.playback.player import COLLECTION, Player
from bench.playback.tools import browser, environment
from bench.rig.nginx import Nginx
from bench.traps.crawl import Manner, run
from bench.traps.debian import unpacked
from greencrawl.store import open_store

PACKAGES = ("libjs-jquery", "libjs-underscore", "python3.11-doc")
SITE = "usr/share/doc/python3.11/html"
ADDRESS = "127.0.0.1"
_PLAYED = re.compile(r"/(?:\w\w_/)?(https?://[^/]*)(/[^?#]*)")


@dataclass
class Playback:
    """The requests of an archive's pages, and the ``missing`` ones, by page.

    ``absent`` are URLs that the site itself does not have.
    """

    pages: list[str] = field(default_factory=list)
    requests: int = 0
    rows: int = 0
    missing: dict[str, list[Exchange]] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)

    @property
    def count(self) -> int:
        """Return how many requests had no answer."""
        return sum(map(len, self.missing.values()))


def play_back(folder: Path, pages: int, requisites: bool) -> Playback:
    """Crawl the site, stop it, and show ``pages`` of it from the archive.

    Raises Missing and Failed.
    """
    python, (command, variables) = environment(), browser()
    site = unpacked(*PACKAGES) / SITE
    found, archive = Playback(), folder / "archive"
    (folder / "site").mkdir(parents=True)
    (folder / "site" / ADDRESS).symlink_to(site)
    server = Nginx(folder, [ADDRESS], None).start()
    try:
        start = server.urls("/index.html", 1)[0]
        options = ["--requisites", "on"] if requisites else []
        variables_of_it = {"GREENCRAWL_BODIES": f"warc:{archive}"}
        run([start, *options], folder / "crawl", Manner(requests=0, slots=8), variables_of_it)
    finally:
        server.stop()
    stored = list(_pages(folder / "crawl" / "data" / "content.sqlite"))
    found.rows = len(stored)
    html = [url for url, is_page in stored if is_page]
    found.pages = [start, *html[1 :: max(len(html) // pages, 1)]][:pages]
    with Player(python, folder / "pywb", sorted(archive.rglob("*.warc.gz"))) as player:
        shown = Browser(command, variables, folder / "chromium")
        for number, page in enumerate(found.pages):
            asked = [
                one
                for one in shown.show(player.url(page), number)
                if not one.url.startswith(f"{player.origin}/static/")  # a file of the player itself
            ]
            found.requests += len(asked)
            _judge(found, page, asked, player, start.removesuffix("/index.html"), site)
    return found


def _judge(
    found: Playback, page: str, asked: Iterable[Exchange], player: Player, origin: str, site: Path
) -> None:
    """Distinguish missing URLs from those that the site does not have either."""
    for one in asked:
        if 200 <= one.status < 400 and one.url.startswith(player.origin):
            continue
        original = _PLAYED.search(one.url.removeprefix(f"{player.origin}/{COLLECTION}"))
        if original and original[1] == origin and not (site / unquote(original[2][1:])).is_file():
            found.absent.add(original[2])
        else:
            found.missing.setdefault(page, []).append(one)


def _pages(file: Path) -> Iterator[tuple[str, bool]]:
    """Yield the stored URLs, and whether each is a page that was read."""
    store = open_store(f"sqlite:///{file}")
    try:
        for _, page in store.pages(store.crawl("traps").id):
            yield page.url, "html" in page.headers.get("content-type", "") and page.status == 200
    finally:
        store.close()
