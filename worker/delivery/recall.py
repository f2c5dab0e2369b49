"""Links that an earlier delivery of a task may have stored, but not admitted."""

from __future__ import annotations

from greencrawl.store.errors import BodyAway
from greencrawl.worker.crawls import RootStore
from greencrawl.worker.delivery.writer import Writer
from greencrawl.worker.session.backoff import until_available


def recall(store: RootStore, writer: Writer, crawl: int, fingerprint: int) -> None:
    """Admit the links of the stored page of a task.

    The task's earlier process may have died between storing and admitting, and this fetch may bring
    other links, or none. The page is stored again as it was, so it is read with its body. If the
    body is away, the page is read without its body, because the links must not be lost. This waits
    while the store is away.
    """
    try:
        page = until_available(lambda: store.page(crawl, fingerprint), "store")
    except BodyAway:
        page = until_available(lambda: store.page(crawl, fingerprint, detail="text"), "store")
    if page is not None and page.links:
        writer.recall(page)
