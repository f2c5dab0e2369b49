"""A module of hooks that changes nothing, for the crawl that is compared with ``with_warcio``."""

from __future__ import annotations

from collections.abc import Mapping


def request(task: object, headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return the headers."""
    return headers
