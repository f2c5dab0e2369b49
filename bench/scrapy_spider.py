"""The other side of the speed bench: a plain Scrapy spider that follows every link.

Run by ``bench.peers`` as ``scrapy runspider``; its settings stand here. It keeps nothing and
extracts no text: the least that a Scrapy crawl of these pages can cost.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import scrapy
from scrapy.http import Response, TextResponse

CONNECTIONS = int(os.environ.get("BENCH_CONNECTIONS", "64"))
HOSTS = int(os.environ.get("BENCH_HOSTS", "8"))


class PlainSpider(scrapy.Spider):
    """Arguments: ``seeds`` (comma-separated), ``result`` (file for the figures, JSON)."""

    name = "plain"
    custom_settings = {  # noqa: RUF012 - Scrapy's own declaration of this attribute
        "ROBOTSTXT_OBEY": True,
        "USER_AGENT": "scrapy-bench/1.0",
        "CONCURRENT_REQUESTS": CONNECTIONS,
        "CONCURRENT_REQUESTS_PER_DOMAIN": max(1, CONNECTIONS // HOSTS),
        "DOWNLOAD_DELAY": 0,
        "CLOSESPIDER_PAGECOUNT": int(os.environ.get("BENCH_PAGES", "1000")),
        "COOKIES_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "ERROR",
        "LOGSTATS_INTERVAL": 0,
    }

    def __init__(self, seeds: str, result: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.start_urls = seeds.split(",")
        self.result = Path(result)
        self.pages = 0
        self.cpu = time.process_time()

    def parse(self, response: Response, **_: Any) -> Iterator[scrapy.Request]:
        assert isinstance(response, TextResponse)
        self.pages += 1
        yield from response.follow_all(css="a")

    def closed(self, reason: str) -> None:
        """Write the pages parsed and the CPU seconds of this process since the spider was made."""
        cpu = time.process_time() - self.cpu
        self.result.write_text(json.dumps({"pages": self.pages, "cpu": cpu, "reason": reason}))
