"""``python -m bench.playback.revisits [--pages N]``: is a revisit record replayed as the sent
bytes?

A site on loopback is crawled into WARC files in two periods with ``depth = "all"``. Most of its
pages are sent again unchanged and without validators, so each leaves a revisit record. One page has
changed since. One page has an entity tag and is answered with 304, which leaves no record. Then the
site is stopped, and pywb replays the files: each capture of a page must have the bytes that the
site sent at that time.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import argparse  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from collections import Counter  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from dataclasses import dataclass, field  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402
from urllib.parse import quote  # noqa: E402
from urllib.request import urlopen  # noqa: E402

from bench.playback.player import COLLECTION, Player  # noqa: E402
from bench.playback.tools import environment  # noqa: E402
from bench.rig.report import Report  # noqa: E402
from bench.traps.debian import Missing  # noqa: E402
from tests.support.redis_server import RedisServer  # noqa: E402
from tests.support.site_server import Answer, Request, SiteServer  # noqa: E402
from tests.support.sites import html  # noqa: E402
from tests.support.system import System, wait_until  # noqa: E402

PAGES = 40
EVERY_SECONDS = 4
CHANGING, TAGGED = "/changing", "/tagged"
REVISIT = "warc/revisit"
"""The kind that pywb's index gives to a revisit."""


@dataclass
class Site:
    """A site: ``/`` leads to all pages; ``sent`` has the bodies of each path in the order of
    sending."""

    pages: int
    sent: dict[str, list[bytes]] = field(default_factory=dict)
    unchanged: int = 0

    def __call__(self, request: Request) -> Answer:
        path = request.target
        if path == "/robots.txt":
            return Answer(404)
        said = {"ETag": '"1"'} if path == TAGGED else {}
        if said and request.headers.get("if-none-match") == said["ETag"]:
            self.unchanged += 1
            return Answer(304, headers=said)
        before = self.sent.setdefault(path, [])
        links = [CHANGING, TAGGED, *(f"/{n}" for n in range(self.pages))] if path == "/" else []
        title = f"{path} {len(before) if path == CHANGING else ''}"
        before.append(html(title, links))
        return Answer(body=before[-1], headers={"Content-Type": "text/html", **said})


@dataclass(frozen=True)
class Moment:
    """A capture in pywb's index, and the bytes that pywb replays for it."""

    kind: str
    body: bytes


def crawl_twice(folder: Path, site: Site) -> tuple[str, list[Path]]:
    """Crawl two periods; return the site's origin, and the files."""
    redis = RedisServer(folder / "redis").start()
    archive = folder / "archive"
    try:
        with (
            SiteServer(site) as server,
            System(folder / "system", [redis.url], bodies=f"warc:{archive}").start() as system,
        ):
            recrawl = {"every": f"{EVERY_SECONDS}s", "depth": "all"}
            system.crawl([server.url("/")], delay=0, recrawl=recrawl)

            def over() -> bool:
                found = system.call("GET", "/v1/crawls/test/periods")[::-1]
                return len(found) >= 2 and found[1]["ended_ms"] > 0

            wait_until(over, 120, "the second period ends", 0.2)
            system.call("POST", "/v1/crawls/test/stop", {})
            system.wait_done(60)
            origin = server.url("").rstrip("/")
    finally:
        redis.stop()
    return origin, sorted(archive.rglob("*.warc.gz"))


def played(player: Player, url: str) -> Iterator[Moment]:
    """Yield each capture of a URL, the earliest first, with the archived bytes."""
    index = f"{player.origin}/{COLLECTION}/cdx?output=json&url={quote(url, safe='')}"
    with urlopen(index, timeout=30) as reply:
        rows: list[dict[str, Any]] = [json.loads(line) for line in reply.read().splitlines()]
    for row in sorted(rows, key=lambda one: str(one["timestamp"])):
        at = f"{player.origin}/{COLLECTION}/{row['timestamp']}id_/{url}"
        with urlopen(at, timeout=30) as reply:
            yield Moment(row["mime"], reply.read())


def judge(report: Report, site: Site, moments: dict[str, list[Moment]]) -> None:
    """Compare the replayed bytes with the sent ones."""
    kinds = Counter(one.kind for some in moments.values() for one in some)
    report.row("captures", pages=len(moments), revisits=kinds[REVISIT], of_all=kinds.total())
    wrong = [
        f"{path}: {len(some)} captures, {len(site.sent[path])} sent; "
        f"at {[n for n, one in enumerate(some) if one.body not in site.sent[path]]} another body"
        for path, some in moments.items()
        if [one.body for one in some] != site.sent[path]
    ]
    report.none("each capture is played as what the site sent at that moment", wrong)
    same = moments.keys() - {CHANGING, TAGGED}
    report.claim(
        "what was sent as before is a revisit",
        all([one.kind == REVISIT for one in moments[path]] == [False, True] for path in same),
    )
    report.claim(
        "what has changed is none",
        [one.kind for one in moments[CHANGING]] == ["text/html"] * 2,
    )
    report.claim(
        "a 304 leaves none, and the page is played as it was",
        len(moments[TAGGED]) == 1 and site.unchanged == 1,
    )


def play_back(report: Report, pages: int) -> None:
    """Crawl, replay and compare. Raises Missing."""
    python, site = environment(), Site(pages)
    with tempfile.TemporaryDirectory(prefix="revisits-") as name:
        folder = Path(name)
        origin, files = crawl_twice(folder, site)
        with Player(python, folder / "pywb", files) as player:
            moments = {path: list(played(player, origin + path)) for path in site.sent}
    judge(report, site, moments)


def main(arguments: list[str]) -> int:
    """Replay a second pass; return the exit code, 2 if this cannot be tried."""
    parser = argparse.ArgumentParser(prog="python -m bench.playback.revisits")
    parser.add_argument("--pages", type=int, default=PAGES, metavar="N")
    given = parser.parse_args(arguments)
    report = Report("revisits", "a second pass in WARC files, played back by pywb")
    try:
        play_back(report, given.pages)
    except Missing as error:
        print(f"cannot be tried here: {error}", file=sys.stderr)
        return 2
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
