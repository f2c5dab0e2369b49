"""The number of requests that a crawl allows to an address and to a domain."""

from __future__ import annotations

from typing import NamedTuple

from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.records import CrawlOptions, PutOff
from greencrawl.schema.records.crawl import ADDRESS_CONNECTIONS, ADDRESS_RATE, DOMAIN_RATE


class Caps(NamedTuple):
    """The limits of a crawl: requests a second, and connections; 0: no limit, None: not set."""

    address_rate: float | None = None
    address_connections: int | None = None
    domain_rate: float | None = None

    @classmethod
    def of(cls, options: CrawlOptions) -> Caps:
        """Return the caps of a crawl."""
        return cls(options.address_rate, options.address_connections, options.domain_rate)

    def outside(self) -> Caps:
        """Return the limits with the defaults for other people's addresses where none is set."""
        return Caps(
            ADDRESS_RATE if self.address_rate is None else self.address_rate,
            ADDRESS_CONNECTIONS if self.address_connections is None else self.address_connections,
            DOMAIN_RATE if self.domain_rate is None else self.domain_rate,
        )


class NoShare(GreencrawlError):
    """Raised when an address or domain may get no request for ``seconds``; ``by`` says why."""

    def __init__(self, name: str, seconds: float, why: str, by: PutOff = PutOff.SHARE) -> None:
        super().__init__(f"{name}: {why}")
        self.seconds = seconds
        self.by = by
