"""Many hosts on one machine get no more requests together than the crawl allows, even after
deaths."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

from tests.support.redis_server import RedisServer
from tests.support.site_server import Answer, Request, SiteServer
from tests.support.sites import html
from tests.support.system import System, wait_until
from tests.worker.session.test_shares import busiest

HOSTS, PAGES, RATE = 16, 3, 8


def site(request: Request) -> Answer:
    if request.target == "/robots.txt":
        return Answer(404)
    return Answer(body=html("page", [f"/{n}" for n in range(PAGES)]))


def test_hosts_of_one_address_share_its_rate_even_if_a_worker_process_dies(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(SiteServer(site)) for _ in range(HOSTS)]
        system = stack.enter_context(
            System(
                tmp_path, [redis_server.url], processes=3, lease_seconds="4", request_seconds="2"
            ).start()
        )
        system.crawl([one.url("/") for one in servers], delay=0, address_rate=RATE)
        wait_until(lambda: sum(len(one.hits) for one in servers) > 20, 20, "the crawl began")
        wait_until(lambda: any_explained(system, servers), 20, "explain says why")
        system.children()[0].send_signal(signal.SIGKILL)
        took = system.wait_done(60)
        hits = [hit for one in servers for hit in one.hits]
        assert len(hits) >= HOSTS * (PAGES + 2)
        assert busiest([hit.arrived for hit in hits], 0.98) <= RATE
        assert len(hits) / took > RATE / 4, "and they are asked"
        host = system.call("GET", f"/v1/hosts/127.0.0.1:{servers[0].port}")
        assert host["failures"] == 0, "no fault of the host's"


def any_explained(system: System, servers: list[SiteServer]) -> bool:
    """Return whether the explanation of some URL says that it waits for the address's other
    hosts."""
    said = [str(system.call("GET", f"/v1/urls?url={one.url('/0')}")) for one in servers]
    return any(f"{RATE} requests in 1 s" in text for text in said)
