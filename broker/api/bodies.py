"""Reads request bodies: bounds their size, guesses their type so that plain curl works, decodes
them."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import falcon
import gevent
import msgspec

from greencrawl.broker.api.connections import LEAST_RATE
from greencrawl.broker.api.problems import HttpProblem, invalid
from greencrawl.schema.clock import monotonic
from greencrawl.schema.records import Seed, SeedRequest
from greencrawl.schema.records.fields import Url
from greencrawl.schema.wire import from_json

T = TypeVar("T")

MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_SEEDS = 50_000
READ_SECONDS = 60.0
GRACE_SECONDS = 10.0
"""A body is given up (408) if it takes longer than :data:`READ_SECONDS`, or is too slow.

A body is too slow if, after this grace, its average rate is below :data:`LEAST_RATE`. Without these
limits slow senders would pile up.
"""
PIECE = 64 * 1024

JSON_TYPES = frozenset({"application/json", "text/json"})
LINE_TYPES = frozenset(
    {"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"}
)
SNIFFED_TYPES = frozenset(
    {"", "application/x-www-form-urlencoded", "text/plain", "application/octet-stream"}
)
"""Media types of clients that do not say what they send; curl's ``-d`` sends the first one."""

_SEED_REQUEST = re.compile(rb'\s*\{\s*"(?:urls|force|if_changed)"\s*:')
_SEED = msgspec.json.Decoder(Url | Seed)


def media_type(request: falcon.Request) -> str:
    """Return the request's media type in lower case, without parameters; "" if it has none."""
    return (request.content_type or "").partition(";")[0].strip().lower()


def read(request: falcon.Request, *, encoded: bool = False) -> bytes:
    """Return the whole body.

    Raises a problem: 413 beyond the limit, 408 if too slow, 415 if it has a content encoding and
    may not be ``encoded``.
    """
    encoding = (request.get_header("Content-Encoding") or "identity").strip().lower()
    if encoding != "identity" and not encoded:
        raise HttpProblem(
            415, f"Content-Encoding {encoding[:40]!r} is not supported; send it plain"
        )
    if (request.content_length or 0) > MAX_BODY_BYTES:
        raise _too_large()
    stream = request.env["wsgi.input"]
    late = HttpProblem(408, "the body did not arrive in time", headers={"Connection": "close"})
    pieces: list[bytes] = []
    length, began = 0, monotonic()
    while True:
        most = min(GRACE_SECONDS + length / LEAST_RATE, READ_SECONDS)
        with gevent.Timeout(max(most - (monotonic() - began), 0.001), late):
            try:
                piece: bytes = stream.read(PIECE)
            except OSError as error:  # cut short, or with wrong chunks
                raise HttpProblem(400, f"the body broke off: {error}") from error
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        length += len(piece)
        if length > MAX_BODY_BYTES:
            raise _too_large()


def _too_large() -> HttpProblem:
    return HttpProblem(
        413, f"bodies end at {MAX_BODY_BYTES} bytes; send several", headers={"Connection": "close"}
    )


def record(request: falcon.Request, type_: type[T]) -> T:
    """Decode a JSON body. Raises a problem: 400 naming the field, 415 for another media type."""
    kind = media_type(request)
    if kind not in JSON_TYPES | SNIFFED_TYPES:
        raise HttpProblem(415, f"send application/json, not {kind[:100]!r}")
    body = read(request)
    try:
        return from_json(body, type_)
    except UnicodeDecodeError as error:
        raise HttpProblem(400, "not UTF-8", [("body", str(error))]) from error
    except msgspec.DecodeError as error:
        raise invalid(error) from error


def seeds(request: falcon.Request) -> SeedRequest:
    """Decode a batch of seeds: one JSON object, NDJSON, or a URL a line.

    If the media type says nothing, the start of the body decides. One unreadable line refuses the
    whole batch: a 400 names its number.
    """
    kind = media_type(request)
    if kind in JSON_TYPES:
        return record(request, SeedRequest)
    if kind not in LINE_TYPES | SNIFFED_TYPES:
        raise HttpProblem(415, f"send application/json or application/x-ndjson, not {kind[:100]!r}")
    body = read(request)
    if kind in SNIFFED_TYPES and _SEED_REQUEST.match(body):
        try:
            return from_json(body, SeedRequest)
        except UnicodeDecodeError as error:
            raise HttpProblem(400, "not UTF-8", [("body", str(error))]) from error
        except msgspec.DecodeError as error:
            raise invalid(error) from error
    return SeedRequest(urls=_lines(body))


def _lines(body: bytes) -> tuple[str | Seed, ...]:
    found: list[str | Seed] = []
    for number, line in enumerate(body.split(b"\n"), start=1):
        text = line.strip()
        if not text:
            continue
        if len(found) == MAX_SEEDS:
            raise HttpProblem(
                400,
                f"at most {MAX_SEEDS} URLs a batch",
                [(f"line {number}", "beyond the batch's limit")],
            )
        found.append(_line(text, number))
        if number % 2000 == 0:
            gevent.sleep(0)  # a large batch must not delay other callers' leases
    return tuple(found)


def _line(text: bytes, number: int) -> str | Seed:
    prefix = f"line {number}"
    try:
        if text[:1] in b'{"[':
            seed: str | Seed = _SEED.decode(text)
            return seed
        return msgspec.convert(text.decode("utf-8"), Url)
    except UnicodeDecodeError as error:
        raise HttpProblem(400, f"{prefix}: not UTF-8", [(prefix, "not UTF-8")]) from error
    except msgspec.DecodeError as error:
        raise invalid(error, prefix) from error


def query(request: falcon.Request, type_: type[T]) -> T:
    """Decode the parameters after the question mark. Raises HttpProblem (400) for a wrong
    parameter."""
    given: dict[str, Any] = {}
    for name, value in request.params.items():
        if isinstance(value, list):
            raise HttpProblem(400, f"{name}: given twice", [(name, "given twice")])
        given[name] = value
    try:
        return msgspec.convert(given, type_, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(error) from error
