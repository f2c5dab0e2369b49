"""Scrapy and scrapy-redis under ``bench.peers.compare``: ``-m bench.peers.scrapy_job JOB``.

The spider obeys robots.txt, follows all links of its hosts and fetches no URL twice. With ``store``
in the job it also extracts title and text, and an item pipeline stores the pages. It has the
settings that Scrapy's documentation recommends for broad crawls: no cookies, no telnet console,
quiet logs. With ``redis`` in the job, the queue and the duplicate filter are those of scrapy-redis;
of its queues it uses the FIFO, the cheapest one.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import scrapy
from scrapy.crawler import Crawler, CrawlerProcess
from scrapy.http import HtmlResponse, Response

from bench.peers.page_store import PageStore, text_of

LINKS = '//a[@href and not(starts-with(@href, "mailto:"))]'
"""``follow_all`` raises for a link that is no http(s) URL, and the rest of the page would be
lost."""


def settings(job: dict[str, Any]) -> dict[str, Any]:
    """Return Scrapy's settings for a job."""
    found: dict[str, Any] = {
        "ROBOTSTXT_OBEY": True,
        "USER_AGENT": "peer-bench/1.0",
        "CONCURRENT_REQUESTS": job["connections"],
        "CONCURRENT_REQUESTS_PER_DOMAIN": job["connections"] // len(job["seeds"]),
        "DOWNLOAD_DELAY": 0,
        "COOKIES_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "ERROR",
        "LOGSTATS_INTERVAL": 0,
    }
    if job["store"]:
        found |= {"ITEM_PIPELINES": {Storing: 300}}
    if job["redis"]:
        found |= {
            "REDIS_URL": job["redis"],
            "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
            "SCHEDULER_QUEUE_CLASS": "scrapy_redis.queue.FifoQueue",
            "SCHEDULER_PERSIST": True,
            "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        }
    return found


class PeerSpider(scrapy.Spider):
    """A spider that follows all links; it writes its figures to the job's ``result`` when it is
    closed."""

    name = "peer"

    def __init__(self, job: dict[str, Any], **arguments: Any) -> None:
        super().__init__(**arguments)
        self.job = job
        self.allowed_domains = [str(urlsplit(seed).hostname) for seed in job["seeds"]]
        self.ended = 0.0
        self.cpu = time.process_time()

    async def start(self) -> AsyncIterator[scrapy.Request]:
        """Yield the seeds, which are filtered like all others: each is fetched once."""
        for seed in self.job["seeds"]:
            yield scrapy.Request(seed)

    def parse(self, response: Response, **_: Any) -> Iterator[scrapy.Request | dict[str, Any]]:
        """Follow the links, and yield the page if it has to be stored."""
        if not isinstance(response, HtmlResponse):
            return
        found = list(response.follow_all(xpath=LINKS))
        yield from found
        if self.job["store"]:
            yield {
                "url": response.url,
                "status": response.status,
                "headers": response.headers.to_unicode_dict(),
                "title": response.css("title::text").get(default=""),
                "text": text_of(response.selector.root),
                "links": [request.url for request in found],
                "body": response.body,
            }
        self.ended = time.time()

    def closed(self, reason: str) -> None:
        """Write the figures; Scrapy calls this when queue, pipeline and downloader are closed."""
        figures = {
            "ended": self.ended,
            "cpu": time.process_time() - self.cpu,
            "memory": psutil.Process().memory_full_info().pss,
        }
        Path(self.job["result"]).write_text(json.dumps(figures))


class Storing:
    """The item pipeline."""

    def __init__(self, path: str) -> None:
        self._store = PageStore(path)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Storing:
        """Return a pipeline with the job's file; Scrapy calls this."""
        return cls(crawler.settings["PEER_STORE"])

    def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        """Store a page."""
        self._store.add(**item)
        return item

    def close_spider(self) -> None:
        """Commit the rest."""
        self._store.close()


def main(job: dict[str, Any]) -> None:
    """Crawl; the spider writes the figures to the job's file."""
    process = CrawlerProcess({**settings(job), "PEER_STORE": job["store"]})
    process.crawl(PeerSpider, job=job)
    process.start()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
