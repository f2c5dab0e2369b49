"""A kernel for a list in CSV that a site serves in parts: a header of the answer has their number.

In the file of a crawl:

[[kernels]]
match = "https://data.example/export.csv*"
kernel = "examples.csv_list:CsvList"
"""

import csv
from collections.abc import Mapping

from greencrawl.schema.records import Failure, Fetched, Task
from greencrawl.worker.crawls import CrawlContext
from greencrawl.worker.kernels import Kernel
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.kernels.visit import TaskVisit


class CsvList(Kernel):
    """Each row is a record, and its column ``url`` is a link. X-Parts is the number of parts."""

    name = "csv-list"

    def fetch(self, visit: TaskVisit, task: Task, headers: Mapping[str, str]) -> Fetched | Failure:
        first = visit.get(task.url, {**headers, "accept": "text/csv"})
        if isinstance(first, Fetched):
            for part in range(2, int(first.headers.get("x-parts", 1)) + 1):
                more = visit.get(f"{task.url}?part={part}", {**headers, "accept": "text/csv"})
                if isinstance(more, Failure):
                    return more
                first.body += more.body.partition(b"\n")[2]  # each part has column names
        return first

    def read(self, context: CrawlContext, task: Task, fetched: Fetched) -> Reading:
        rows = list(csv.DictReader(fetched.body.decode("utf-8-sig").splitlines()))
        return Reading(found=[row["url"] for row in rows if row.get("url")], records=rows)
