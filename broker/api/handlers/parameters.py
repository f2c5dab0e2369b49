"""Parameters that more than one handler reads: the name of a host, the cursor of a list."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from greencrawl.schema.errors import InvalidConfig, InvalidUrl
from greencrawl.schema.net.urls import canonicalise, host_of


def host_name(given: str) -> str:
    """A host as people write it, to the frontier's name of it. Raises InvalidUrl."""
    if any(character in given for character in "/?#@\\"):
        raise InvalidUrl(given, "a host is a name or address, with its port unless 80 or 443")
    return host_of(canonicalise(f"http://{given}/"))


@contextmanager
def cursor() -> Iterator[None]:
    """Raises InvalidConfig for what the store says is no cursor."""
    try:
        yield
    except ValueError as error:
        raise InvalidConfig([("after", str(error))]) from error
