"""Kernels: how a URL is fetched, and how its answer is read.

``greencrawl.worker.pipeline`` knows the order of the stages, and nothing of what an answer is.
``choosing`` decides who fetches and who reads: by the crawl's ``kernels``, or else by what the URL
is asked for and by what came. docs/kernels.md tells how to write one.

=============  ====================================================================
``reading``    what a kernel makes of an answer
``http``       ordinary pages: HTML, plain text; ``style``: style sheets
``json_list``  lists of JSON APIs, the crawl's ``sources``
``sitemap``    sitemaps and feeds
``own``        a user's kernel: loaded, called, and what it returns looked through
``visit``      what a kernel's ``fetch`` may send; ``judged``: for a user's own
``choosing``   which of them is for a URL, and for an answer
=============  ====================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from greencrawl.schema.records import Failure, Fetched, Task
    from greencrawl.worker.crawls import CrawlContext
    from greencrawl.worker.kernels.reading import Reading
    from greencrawl.worker.kernels.visit import TaskVisit


class Kernel(Protocol):
    """A way to fetch and to read. One instance a process and crawl; ``name`` is for the journal."""

    name: str

    def fetch(self, visit: TaskVisit, task: Task, headers: Mapping[str, str]) -> Fetched | Failure:
        """Ask for ``task.url``. Every request by ``visit``: paced, fenced, counted and judged.

        Nothing else may touch the network. ``headers`` are the crawl's, with what its hook added.
        """
        return visit.get(task.url, headers)

    def read(self, context: CrawlContext, task: Task, fetched: Fetched) -> Reading:
        """What the answer to ``task`` says. No I/O; the crash record names the page meanwhile."""
        ...
