"""Scrapy on the wide web: its settings for broad crawls, robots.txt obeyed, one request a host at a
time.

``bench.scale.wide`` runs it as ``scrapy runspider``. It stores nothing and extracts no text, and
unlike ours it does not verify certificates, which is its default.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import scrapy
from scrapy.http import Response, TextResponse


class WideSpider(scrapy.Spider):
    """Argument: ``seeds``, a file with a URL a line. It runs until it is killed."""

    name = "wide"
    custom_settings = {  # noqa: RUF012 - Scrapy's own declaration of this attribute
        "ROBOTSTXT_OBEY": True,
        "USER_AGENT": "scrapy-bench/1.0",
        "DOWNLOAD_DELAY": float(os.environ.get("BENCH_DELAY", "1")),
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
        "CONCURRENT_REQUESTS": int(os.environ.get("BENCH_HOSTS", "100")),
        "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
        "REACTOR_THREADPOOL_MAXSIZE": 20,
        "DOWNLOAD_TIMEOUT": 10,
        "RETRY_ENABLED": False,
        "COOKIES_ENABLED": False,
        "AJAXCRAWL_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "ERROR",
        "LOGSTATS_INTERVAL": 0,
    }

    def __init__(self, seeds: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.start_urls = Path(seeds).read_text().split()

    def parse(self, response: Response, **_: Any) -> Iterator[scrapy.Request]:
        """Follow all links."""
        assert isinstance(response, TextResponse)
        yield from response.follow_all(css="a")
