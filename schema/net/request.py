"""The parts of an HTTP request, for the download that sends it and the archive that shows it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from greencrawl.schema.records import CrawlOptions

ACCEPT = "text/html,application/xhtml+xml;q=0.9,*/*;q=0.5"
ACCEPT_JSON = "application/json,*/*;q=0.5"

ACCEPT_ENCODING = "gzip, deflate, br, zstd"
"""The codings that ``greencrawl.worker.http.codings`` undoes."""

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_OURS = frozenset({"host", "connection", "content-length", "transfer-encoding", "te", "upgrade"})
_SHOWN = frozenset({"user-agent", "accept", "accept-encoding", "accept-language"})
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
"""Methods whose requests state the length of their body, even of an empty one (RFC 9110, 8.6)."""
_DEFAULTS = {
    "accept": "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n",
    "accept-encoding": f"Accept-Encoding: {ACCEPT_ENCODING}\r\n",
}


def crawl_headers(options: CrawlOptions) -> dict[str, str]:
    """Return the header fields of every request of a crawl, without those of logins and hooks."""
    agent, contact = options.user_agent, options.contact
    return {"user-agent": f"{agent} (+{contact})" if contact else agent, "accept": ACCEPT}


def shown(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the fields that may be stored: those that cannot hold credentials."""
    return {name: value for name, value in headers.items() if name.lower() in _SHOWN}


def header_lines(headers: Mapping[str, str]) -> bytes:
    """Write header lines: ``headers``, and the defaults that they do not replace.

    Raises ValueError for what HTTP does not allow, and for fields that the download sets itself.
    """
    made = dict(_DEFAULTS)
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value) or name.lower() in _OURS:
            raise ValueError(f"header {name!r} cannot be sent like this")
        made[name.lower()] = f"{name}: {value}\r\n"
    return "".join(made.values()).encode("latin-1")


def request_head(
    target: bytes, authority: bytes, fields: bytes, method: str = "GET", length: int = 0
) -> bytes:
    """Write a request as it is sent, without its body of ``length`` bytes.

    ``fields`` are :func:`header_lines`, ``method`` is one that HTTP knows.
    """
    if length or method in _WITH_BODY:
        fields += b"Content-Length: %d\r\n" % length
    return b"%b %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (method.encode(), target, authority, fields)
