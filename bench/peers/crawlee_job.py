"""Crawlee's ParselCrawler under ``bench.peers.compare``: ``-m bench.peers.crawlee_job JOB``.

It obeys robots.txt, follows all links of its hosts and fetches no URL twice; with ``store`` in the
job it also extracts title and text and stores the pages. Its queue is in memory (the default would
be files, which are slower). Its HTTP client is the default one, without imitating a browser.
Sessions and retries of blocked requests are off, since this site needs neither. All its concurrency
is available from the start, since it could not learn much in some seconds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from crawlee import ConcurrencySettings
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.http_clients import ImpitHttpClient
from crawlee.storage_clients import MemoryStorageClient

from bench.peers.page_store import PageStore, text_of


def crawler(job: dict[str, Any]) -> ParselCrawler:
    """Return the crawler with its settings."""
    connections = job["connections"]
    return ParselCrawler(
        storage_client=MemoryStorageClient(),
        http_client=ImpitHttpClient(
            browser=None,
            persist_cookies_per_session=False,
            headers={"User-Agent": "peer-bench/1.0"},
        ),
        respect_robots_txt_file=True,
        use_session_pool=False,
        retry_on_blocked=False,
        concurrency_settings=ConcurrencySettings(
            min_concurrency=connections,
            desired_concurrency=connections,
            max_concurrency=connections,
        ),
        configure_logging=False,
    )


async def crawl(job: dict[str, Any]) -> dict[str, float]:
    """Crawl; return the time of the last page (Unix seconds), CPU seconds and bytes of memory."""
    store = PageStore(job["store"]) if job["store"] else None
    peer = crawler(job)

    ended = 0.0

    @peer.router.default_handler
    async def handle(context: ParselCrawlingContext) -> None:
        nonlocal ended
        links = await context.extract_links()
        await context.add_requests(links)
        if store is not None:
            store.add(
                url=context.request.url,
                status=context.http_response.status_code,
                headers=dict(context.http_response.headers),
                title=context.selector.css("title::text").get(default=""),
                text=text_of(context.selector.root),
                links=[link.url for link in links],
                body=await context.http_response.read(),
            )
        ended = time.time()

    cpu = time.process_time()
    await peer.run(job["seeds"])
    if store is not None:
        store.close()
    return {
        "ended": ended,
        "cpu": time.process_time() - cpu,
        "memory": psutil.Process().memory_full_info().pss,
    }


def main(job: dict[str, Any]) -> None:
    """Crawl, and write the figures to the job's file."""
    logging.basicConfig(level=logging.ERROR)
    logging.getLogger("crawlee").setLevel(logging.ERROR)
    figures = asyncio.run(crawl(job))
    Path(job["result"]).write_text(json.dumps(figures))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
