"""Good hosts do not notice slow hosts beside them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.effort import cases
from tests.support.raw_server import Behaviour, RawServer, drip, send_then_stall
from tests.support.redis_server import RedisServer
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.sites import html
from tests.support.stored import read_stored
from tests.support.system import System, wait_until

GREENLETS = 8
PAGES = [f"/{i}" for i in range(12)]
GOOD = tuple(f"127.0.1.{number}" for number in range(1, 5))

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 90000\r\n\r\n"


def good_site(request: Request) -> Answer:
    if request.target == "/robots.txt":
        return Answer(404)
    return Answer(body=html(request.target, PAGES))


SLOW = drip(HEAD + b"x" * 600, 1.0)
SILENT = send_then_stall(b"", 600)


def tarpits(stack: ExitStack, behaviour: Behaviour, count: int) -> Sequence[RawServer]:
    """Start servers that answer everything like this, also robots.txt."""
    return [
        stack.enter_context(RawServer(behaviour, host=f"127.0.2.{number}"))
        for number in range(1, count + 1)
    ]


@pytest.mark.parametrize(
    ("behaviour", "count"),
    cases([(SLOW, 10 * GREENLETS)], [(SLOW, 2 * GREENLETS - 4), (SILENT, 10 * GREENLETS)]),
)
def test_good_hosts_are_fetched_while_others_hardly_answer(
    tmp_path: Path, redis_server: RedisServer, behaviour: Behaviour, count: int
) -> None:
    """With a dozen slow hosts for eight greenlets, good hosts are admitted although nobody knows
    them.

    With eighty they must be known before, because the engine cannot tell unknown hosts apart.
    """
    with (
        ExitStack() as stack,
        SiteServer(good_site, GOOD) as server,
        System(tmp_path, [redis_server.url], greenlets=str(GREENLETS)) as system,
    ):
        system.start()
        slow = tarpits(stack, behaviour, count)
        crowd = count > 2 * GREENLETS
        seeds = [server.url("/", host) for host in GOOD]
        if crowd:
            system.crawl(seeds, delay=0, depth=0)
            wait_until(lambda: system.stats()["stored"] == len(GOOD), 30, "good hosts are known")
        system.crawl([tarpit.url() for tarpit in slow], name="slow", delay=0)
        wait_until(
            lambda: sum(tarpit.connections for tarpit in slow) >= GREENLETS, 30, "all are at it"
        )
        system.crawl(seeds, delay=0)
        if crowd:
            pages = [server.url(page, host) for host in GOOD for page in PAGES]
            system.call("POST", "/v1/crawls/test/urls", {"urls": pages})
        want = {server.url(page, host) for host in GOOD for page in ["/", *PAGES]}
        wait_until(lambda: system.stats()["stored"] == len(want), 40, "good pages are stored")
        assert system.stats("slow")["failures"] == {}, "no slow host has been given up meanwhile"
        assert read_stored(tmp_path / "data").pages == want
        assert sum(tarpit.connections for tarpit in slow) <= 2 * GREENLETS + GREENLETS
        system.kill("worker")
