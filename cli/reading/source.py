"""The source of stored pages for the commands: the running broker, or the store."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from greencrawl.broker.api.messages import PageReply
from greencrawl.broker.client import BrokerClient
from greencrawl.broker.service import pages as reading
from greencrawl.cli import choose, connecting
from greencrawl.cli.commands.explain import in_store
from greencrawl.cli.crawlfile import with_scheme
from greencrawl.schema.errors import GreencrawlError, Refused
from greencrawl.store.base import Store


@contextmanager
def source(data: str | None) -> Iterator[AtBroker | InStore]:
    """Return the source of pages: the running broker, or the store if none answers."""
    settings = connecting.load(data)
    broker = connecting.answering(settings)
    if broker is not None:
        yield AtBroker(broker)
        return
    with connecting.store(settings) as store:
        yield InStore(store)


def _unknown(error: Refused) -> GreencrawlError:
    """Return the error for a broker's answer that it does not have a page."""
    return (
        GreencrawlError(str(error.problem.get("detail", error))) if error.status == 404 else error
    )


class AtBroker:
    """Pages from a broker."""

    def __init__(self, broker: BrokerClient) -> None:
        self._broker = broker

    def found(self, url: str, crawl: str | None) -> list[tuple[str, str]]:
        """Return (crawl, id) wherever the URL is stored."""
        return [(s.crawl, s.page) for s in self._broker.url(url, crawl) if s.page]

    def get(self, page_id: str) -> PageReply:
        """Return what is known of a page."""
        try:
            return self._broker.page(page_id)
        except Refused as error:
            raise _unknown(error) from error

    def text(self, page_id: str) -> str:
        """Return the whole text of a page."""
        return self._broker.page_text(page_id)

    def body(self, page_id: str, at_ms: int = 0) -> bytes:
        """Return the body of a page as it was fetched at ``at_ms`` (Unix time), or last."""
        try:
            return self._broker.page_body(page_id, at_ms)
        except Refused as error:
            raise _unknown(error) from error


class InStore:
    """Pages from the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def found(self, url: str, crawl: str | None) -> list[tuple[str, str]]:
        """Return (crawl, id) wherever the URL is stored."""
        crawls, identity = self._store.crawls(), self._store.frontier()
        if identity is None:
            return []
        chosen = [choose.one(crawls, crawl)] if crawl else crawls
        states = [in_store(self._store, one, url, identity) for one in chosen]
        return [(state.crawl, state.page) for state in states if state.page]

    def get(self, page_id: str) -> PageReply:
        """Return what is known of a page."""
        return reading.reply(self._store, page_id)

    def text(self, page_id: str) -> str:
        """Return the whole text of a page."""
        return reading.stored(self._store, page_id, body=False).text

    def body(self, page_id: str, at_ms: int = 0) -> bytes:
        """Return the body of a page as it was fetched at ``at_ms`` (Unix time), or last."""
        return reading.body_at(self._store, page_id, at_ms)


def one(source: AtBroker | InStore, given: str, crawl: str | None) -> str:
    """Return the id of a page by its id or URL.

    Raises GreencrawlError if there is none, or several.
    """
    if reading.is_id(given):
        return given
    url = with_scheme(given)
    found = source.found(url, crawl)
    if not found:
        why = f"`greencrawl explain {shlex.quote(url)}` says why"
        raise GreencrawlError(f"{url} is not stored; {why}")
    if len(found) > 1:
        names = ", ".join(name for name, _ in found)
        raise GreencrawlError(f"several crawls have this URL; name one with --crawl: {names}")
    return found[0][1]
