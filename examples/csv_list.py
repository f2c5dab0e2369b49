"""A kernel for a list in CSV that is given out in parts, each told by a header of the answer.

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
    """Each row is a record, and its column ``url`` a link; X-Parts says of how many the list is."""

    name = "csv-list"

    def fetch(self, visit: TaskVisit, task: Task, headers: Mapping[str, str]) -> Fetched | Failure:
        first = visit.get(task.url, {**headers, "accept": "text/csv"})
        if isinstance(first, Fetched):
            for part in range(2, int(first.headers.get("x-parts", 1)) + 1):
                more = visit.get(f"{task.url}?part={part}", {**headers, "accept": "text/csv"})
                if isinstance(more, Failure):
                    return more
                first.body += more.body.partition(b"\n")[2]  # each part has the names again
        return first

    def read(self, context: CrawlContext, task: Task, fetched: Fetched) -> Reading:
        rows = list(csv.DictReader(fetched.body.decode("utf-8-sig").splitlines()))
        return Reading(found=[row["url"] for row in rows if row.get("url")], records=rows)
