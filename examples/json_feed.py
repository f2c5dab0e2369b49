"""A kernel for JSON Feed (https://www.jsonfeed.org/version/1.1/): its items, and where they lead.

In the file of a crawl:

[[kernels]]
match = "https://*/feed.json*"
kernel = "examples.json_feed:JsonFeed"
"""

import json

from greencrawl.schema.records import Fetched, Task
from greencrawl.worker.crawls import CrawlContext
from greencrawl.worker.kernels import Kernel
from greencrawl.worker.kernels.reading import Reading

KEPT = ("id", "url", "title", "date_published")


class JsonFeed(Kernel):
    """The items of a feed are links and records; older items are at its ``next_url``."""

    name = "json-feed"

    def read(self, context: CrawlContext, task: Task, fetched: Fetched) -> Reading:
        feed = json.loads(fetched.body)
        if not str(feed.get("version", "")).startswith("https://jsonfeed.org/version/"):
            return Reading(failure="not a JSON Feed")
        items = feed.get("items", [])
        return Reading(
            title=feed.get("title", ""),
            text="\n".join(item.get("content_text", "") for item in items),
            language=feed.get("language", ""),
            found=[item["url"] for item in items if "url" in item],
            further=[feed["next_url"]] if "next_url" in feed else [],
            records=[{name: item[name] for name in KEPT if name in item} for item in items],
        )
