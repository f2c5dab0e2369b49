"""Turns errors into problem details (RFC 9457) that name the bad field.

Handlers raise the project's own errors; only :func:`of` decides which HTTP status each becomes. An
unexpected error is logged and answered with a bare 500: nothing of it reaches the client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus

import falcon
import msgspec

from greencrawl.broker.api.messages import FieldError, Problem
from greencrawl.schema.errors import (
    GreencrawlError,
    InvalidConfig,
    InvalidUrl,
    Unavailable,
    UnknownCrawl,
    UnknownPage,
)
from greencrawl.schema.records import CRAWL_NAME, KIND, SESSION_ID, TOKEN, WORKER_ID
from greencrawl.store.errors import BodyAway

MEDIA_TYPE = "application/problem+json"

RETRY_AFTER = {"Retry-After": "1"}
"""Seconds until the client should ask again: soon, since a retry is harmless."""

_PATH = re.compile(r"^(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<path>.*)`)?$", re.DOTALL)
_PATTERN = re.compile(r"^Expected `str` matching regex (?P<quote>['\"])(?P<pattern>.*)(?P=quote)$")
_WORDS = {
    CRAWL_NAME: "must be 1 to 64 lower-case letters, digits, dots, hyphens or underscores, "
    "beginning with a letter or digit",
    TOKEN: "must be 16 hexadecimal digits (0-9, a-f)",
    SESSION_ID: "must be a partition's number, a slash and a host",
    WORKER_ID: "must be 1 to 100 letters, digits, dots, hyphens or underscores, "
    "beginning with a letter or digit",
    KIND: "must be at most 40 lower-case letters or underscores",
}
"""Descriptions for people, in place of a regular expression."""
_NAMED = re.compile(r"(?:unknown|missing required) field `(?P<name>[^`]*)`")


class HttpProblem(GreencrawlError):
    """Raised inside the HTTP API to end a request with ``status`` and a problem body.

    ``errors`` holds (field, what is wrong) pairs; ``headers`` are sent with the answer.
    """

    def __init__(
        self,
        status: int,
        detail: str = "",
        errors: list[tuple[str, str]] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{status} {detail}")
        self.status = status
        self.headers = dict(headers or {})
        self.record = Problem(
            title=HTTPStatus(status).phrase,
            status=status,
            detail=detail,
            errors=tuple(FieldError(field, what) for field, what in errors or ()),
        )


def invalid(error: msgspec.DecodeError, prefix: str = "") -> HttpProblem:
    """Return a 400 that names the field which ``error`` complains about.

    ``prefix`` goes before the path, such as ``line 7`` for NDJSON.
    """
    found = _PATH.match(str(error))
    what, path = (found["what"], found["path"] or "") if found else (str(error), "")
    if pattern := _PATTERN.match(what):
        what = _WORDS.get(pattern["pattern"], what)
    named = _NAMED.search(what)
    parts = [part for part in (prefix, path, named["name"] if named else "") if part]
    field = ".".join(parts)
    detail = f"{field}: {what}" if field else what
    return HttpProblem(400, detail, [(field, what)] if field else [("body", what)])


def of(error: Exception) -> HttpProblem | None:
    """Return the problem that answers ``error``, or None for an unexpected error."""
    match error:
        case HttpProblem():
            return error
        case Unavailable():
            return HttpProblem(503, f"try again: {error}", headers=RETRY_AFTER)
        case UnknownCrawl():
            return HttpProblem(404, str(error) or "no such crawl")
        case UnknownPage():
            return HttpProblem(404, str(error))
        case BodyAway():
            return HttpProblem(503, str(error), headers=RETRY_AFTER)
        case InvalidConfig():
            return HttpProblem(400, str(error), list(error.problems))
        case InvalidUrl():
            return HttpProblem(400, str(error), [("url", error.reason)])
        case falcon.HTTPError():
            headers = dict(error.headers or {})
            return HttpProblem(
                error.status_code, error.description or "", headers=_without_body(headers)
            )
        case _:
            return None


def _without_body(headers: Mapping[str, str]) -> dict[str, str]:
    """Return Falcon's headers except those that describe the body, which is ours."""
    return {k: v for k, v in headers.items() if k.lower() not in ("content-type", "vary")}
