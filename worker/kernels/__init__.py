"""Kernels: how a URL is fetched, and how its answer is read.

``greencrawl.worker.pipeline`` knows the order of the stages, but not what an answer is.
``choosing`` decides which kernel fetches and which reads: by the crawl's ``kernels``, or else by
the kind of task and by the answer. docs/kernels.md explains how to write a kernel.

=============  ====================================================================
``reading``    what a kernel makes of an answer
``http``       ordinary pages: HTML, plain text; ``style``: style sheets
``json_list``  lists of JSON APIs, the crawl's ``sources``
``sitemap``    sitemaps and feeds
``own``        a user's kernel: loads it, calls it, and checks what it returns
``visit``      what a kernel's ``fetch`` may send; ``judged``: for a user's kernel
``choosing``   which kernel fetches a URL, and which reads an answer
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
    """A way to fetch and to read. A process has one instance for each crawl; the journal has its
    ``name``."""

    name: str

    def fetch(self, visit: TaskVisit, task: Task, headers: Mapping[str, str]) -> Fetched | Failure:
        """Ask for ``task.url``. Every request goes by ``visit``: paced, fenced, counted and judged.

        Nothing else may use the network. ``headers`` are the crawl's, with what its hook added.
        """
        return visit.get(task.url, headers)

    def read(self, context: CrawlContext, task: Task, fetched: Fetched) -> Reading:
        """Read the answer to ``task``. This does no I/O; meanwhile the crash record names the
        page."""
        ...
