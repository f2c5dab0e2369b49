"""Parses queries of people: a host, a moment, a range of statuses, a place in a list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from greencrawl.schema.errors import InvalidConfig, InvalidUrl
from greencrawl.schema.net.urls import canonicalise, host_of
from greencrawl.schema.records import PageFilter
from greencrawl.schema.text.moments import since_ms, status_range
from greencrawl.schema.text.patterns import Pattern


def host_name(given: str) -> str:
    """Return the frontier's name of a host that a person wrote. Raises InvalidUrl."""
    if any(character in given for character in "/?#@\\"):
        raise InvalidUrl(given, "a host is a name or address, with its port unless 80 or 443")
    return host_of(canonicalise(f"http://{given}/"))


@contextmanager
def cursor() -> Iterator[None]:
    """Turn the store's error about an invalid cursor into InvalidConfig."""
    try:
        yield
    except ValueError as error:
        raise InvalidConfig([("after", str(error))]) from error


def wanted_pages(
    host: str, status: str, since: str, grep: str
) -> tuple[PageFilter, Pattern | None]:
    """Return which pages are wanted; "" stands for any.

    Raises InvalidConfig that names all errors.
    """
    problems: list[tuple[str, str]] = []

    def read(name: str, given: str, parse: Callable[[str], Any], nothing: Any) -> Any:
        try:
            return parse(given) if given else nothing
        except ValueError as error:
            problems.append((name, str(error)))

    wanted = PageFilter(
        host=read("host", host, host_name, ""),
        status=read("status", status, status_range, PageFilter().status),
        since_ms=read("since", since, since_ms, 0),
    )
    pattern = read("grep", grep, Pattern, None)
    if problems:
        raise InvalidConfig(problems)
    return wanted, pattern
