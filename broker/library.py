"""The client for programs: ``from greencrawl import Client``, described in docs/library.md.

It needs no greenlets and patches nothing. Each request has a plain connection of its own, so
threads may share a client, and it works on after a fork.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import msgspec

from greencrawl.broker.api.messages import Change, ListedPage, PageReply
from greencrawl.broker.client import BrokerClient
from greencrawl.schema.errors import InvalidConfig, Refused
from greencrawl.schema.records import (
    Admission,
    Alert,
    Crawl,
    CreateCrawl,
    Round,
    Sample,
    Seed,
    SeedItem,
    SeedReply,
    SeedRequest,
    Stats,
    StoredPage,
)
from greencrawl.schema.transport import CONNECT_SECONDS, Lost, Reply

SEEDS = 1000
"""URLs of a request."""
PAGES = 500
"""A request returns at most this many pages."""
LIST_SECONDS = 60.0
"""The longest time for the answer to a list, in seconds: a search reads many pages."""
NOT_FOUND = 404


class Client:
    """A client of the broker at ``address`` (``http://host:port``), or of the first of several that
    answers.

    ``token`` is the broker's GREENCRAWL_ADMIN_TOKEN, if it has one; ``ca`` a PEM file that verifies
    ``https`` brokers, "" the system's; ``timeout`` in seconds bounds each read and write. Every
    method raises Unavailable when no broker answers, and Refused, with the HTTP status, when one
    answers 4xx: 401 and 403 for the token, 404 for what does not exist, 429 for seeds that Redis
    has no room for now.
    """

    def __init__(
        self,
        address: str | Sequence[str],
        token: str | None = None,
        *,
        ca: str = "",
        timeout: float = 30.0,
    ) -> None:
        """Make the client; it sends nothing yet. Raises InvalidConfig for an invalid address."""
        addresses = (address,) if isinstance(address, str) else tuple(address)
        self._broker = BrokerClient(
            addresses, token or "", ca=ca, timeout=timeout, transport=_Plain
        )

    # -- crawls

    def crawls(self) -> list[Crawl]:
        """Return all crawls."""
        return self._broker.crawls()

    def crawl(self, name: str) -> Crawl:
        """Return one crawl."""
        return self._broker.crawl(name)

    def create(self, name: str, seeds: Iterable[str] = (), **options: Any) -> Crawl:
        """Create a crawl, or set these options of an existing one; ``seeds`` are queued at once.

        docs/configuration.md lists the options. Raises InvalidConfig for an unknown option, or one
        of the wrong type.
        """
        try:
            wanted = msgspec.convert({**options, "name": name, "seeds": list(seeds)}, CreateCrawl)
        except msgspec.ValidationError as error:
            raise InvalidConfig([("crawl", str(error))]) from error
        return self._broker.put_crawl(wanted)

    def change(self, name: str, *, revision: int | None = None, **options: Any) -> Crawl:
        """Change these options of a crawl, and no others; None sets the default.

        Workers follow within a second. With a ``revision`` it raises Refused (409) if the crawl has
        another one by now.
        """
        return self._broker.change(name, options, revision=revision, by="Client")

    def pause(self, name: str) -> Crawl:
        """Pause a crawl."""
        return self._broker.pause(name)

    def stop(self, name: str, *, now: bool = False) -> Crawl:
        """End a crawl: leased tasks are finished, or with ``now`` given back.

        It is ``done`` when nothing is leased any more. Only :meth:`resume`, :meth:`begin_round` and
        new URLs of :meth:`seed` start it again.
        """
        return self._broker.stop(name, now=now)

    def resume(self, name: str) -> Crawl:
        """Resume a crawl."""
        return self._broker.resume(name)

    def begin_round(self, name: str) -> Round:
        """Ask again for all of a crawl; each page stays until its new version is there."""
        return self._broker.begin_round(name)

    def rounds(self, name: str) -> list[Round]:
        """Return the last rounds of a crawl over its stored pages, with their progress."""
        return self._broker.rounds(name)

    def delete(self, name: str) -> Crawl:
        """Delete a crawl with its pages, in the background."""
        return self._broker.delete(name)

    def seed(
        self,
        name: str,
        urls: Iterable[str | Seed],
        *,
        force: bool = False,
        if_changed: bool = False,
    ) -> SeedReply:
        """Add URLs to a crawl, a thousand a request; ``force`` queues seen URLs again.

        With ``if_changed`` seen URLs are queued again, too, and read again only if they have
        changed.

        The answer has the counts and an item for each URL. Everything in the answer is durable.
        When it raises, some of the URLs may be queued: calling it again is harmless.
        """
        added = again = duplicate = rejected = pending = 0
        items: list[SeedItem] = []
        rest = iter(urls)
        while batch := tuple(islice(rest, SEEDS)):
            reply = self._broker.seed(name, SeedRequest(batch, force=force, if_changed=if_changed))
            added += reply.added
            again += reply.again
            duplicate += reply.duplicate
            rejected += reply.rejected
            pending += reply.pending
            items += reply.items
        return SeedReply(added, duplicate, rejected, tuple(items), pending, again)

    def status(self, name: str | None = None) -> Stats:
        """Return the state of a crawl, or of each: ``status("example").crawls[0].state``."""
        return self._broker.stats(name)

    def samples(self, name: str, since: str = "", *, points: int = 1000) -> list[Sample]:
        """Return points of a crawl's plots ``since`` a date or a time ago (``1d``), "": all of 90
        days.

        A point is for a minute, or for several if there are more minutes than ``points``.
        """
        return self._broker.samples(name, since, points=points)

    def alerts(self) -> list[Alert]:
        """Return what needs attention: nodes lost, crawls that do not progress and the like."""
        return self._broker.alerts()

    # -- pages

    def pages(
        self, name: str, *, host: str = "", status: str = "", since: str = "", grep: str = ""
    ) -> Iterator[ListedPage]:
        """Yield the stored pages in the order of storing, redirects included, as they are read.

        The arguments select pages: by ``host``; by ``status``, such as ``200``, ``4xx`` or
        ``200-299``; those fetched ``since`` a date or a time ago (``2h``); those whose URL, title
        or text the pattern ``grep`` (RE2) matches.
        """
        after = ""
        while True:
            some = self._broker.pages(
                name,
                host=host,
                status=status,
                since=since,
                grep=grep,
                limit=PAGES,
                after=after,
                seconds=LIST_SECONDS,
            )
            yield from some.items
            after = some.next
            if not after:
                return

    def page(self, page_id: str) -> PageReply:
        """Return what is stored of a page, without its text and its body; and its history."""
        return self._broker.page(page_id)

    def text(self, page_id: str) -> str:
        """Return a page's text."""
        return self._broker.page_text(page_id)

    def body(self, page_id: str, at_ms: int = 0) -> bytes:
        """Return a page's body as it was fetched; empty if it was not kept.

        ``at_ms`` is the ``fetched_ms`` of an earlier version; it raises Refused (404) if that body
        was not kept.
        """
        return self._broker.page_body(page_id, at_ms)

    def changes(self, name: str, since: str) -> Iterator[Change]:
        """Yield pages that are new, changed or gone ``since`` a date or a time ago (``1d``)."""
        after = ""
        while True:
            some = self._broker.changes(name, since, limit=PAGES, after=after)
            yield from some.items
            after = some.next
            if not after:
                return

    def export(
        self, name: str, *, host: str = "", status: str = "", since: str = "", bodies: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Yield the stored pages as ``greencrawl export --pages-only`` writes them, an object a
        page.

        ``bodies`` adds ``body`` in base64, None if it was not kept. Each page takes two requests,
        three with its body: the command exports many pages faster, on the store's machine. A page
        that is deleted meanwhile is left out.
        """
        for listed in self.pages(name, host=host, status=status, since=since):
            try:
                yield self._exported(listed.id, bodies)
            except Refused as error:
                if error.status != NOT_FOUND:
                    raise

    def _exported(self, page_id: str, bodies: bool) -> dict[str, Any]:
        # Needed only by a program that exports.
        from greencrawl.store.export.objects import page_object

        page = self.page(page_id)
        stored = StoredPage(
            crawl=0,
            fingerprint=0,
            url=page.url,
            final_url=page.target or page.url,
            status=page.status,
            headers=page.headers,
            canonical=page.canonical,
            directives=page.directives,
            fetched_ms=page.fetched_ms,
            elapsed_ms=page.elapsed_ms,
            depth=page.depth,
            body=self.body(page_id) if bodies else b"",
            truncated=page.truncated,
            title=page.title,
            text=self.text(page_id) if page.text_chars else "",
            language=page.language,
            encoding=page.encoding,
            fields=page.fields,
            digest=bytes.fromhex(page.digest),
            links=[Admission(url) for url in page.links],
        )
        return page_object(stored, bodies=bodies)


class _Plain:
    """One broker, asked over a new connection each time."""

    def __init__(self, url: str, ca: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidConfig([("address", f"must be http://HOST:PORT, not {url[:200]!r}")])
        self.url = url
        self._host, self._port = parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/")
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            try:
                self._tls = ssl.create_default_context(cafile=ca or None)
            except OSError as error:
                raise InvalidConfig([("ca", f"{ca}: {error}")]) from error

    def send(self, method: str, path: str, body: bytes, token: str, seconds: float) -> Reply | Lost:
        """Send one request, once."""
        connection = self._connection()
        try:
            try:
                connection.connect()
            except OSError as error:
                return Lost(f"cannot connect: {error}", sent=False)
            connection.sock.settimeout(seconds)
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            if body:
                headers["Content-Type"] = "application/json"
            try:
                connection.request(method, self._prefix + path, body or None, headers)
                answer = connection.getresponse()
                return Reply(answer.status, answer.read())
            except (OSError, HTTPException) as error:
                return Lost(f"no answer: {error or type(error).__name__}", sent=True)
        finally:
            connection.close()

    def close(self) -> None:
        """Do nothing: no connection stays open."""

    def _connection(self) -> HTTPConnection:
        if self._tls is None:
            return HTTPConnection(self._host, self._port, timeout=CONNECT_SECONDS)
        return HTTPSConnection(self._host, self._port, timeout=CONNECT_SECONDS, context=self._tls)
