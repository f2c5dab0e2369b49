"""The HTTP API of a logger: lines come by POST, and are read by GET."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import falcon
import zstandard
from msgspec import Struct

from greencrawl.broker.api import bodies, problems
from greencrawl.broker.api.problems import HttpProblem
from greencrawl.broker.api.security import Guard, Role
from greencrawl.logger.archive import Archive
from greencrawl.logger.finding import find
from greencrawl.logger.intake import Full, Intake
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.log import logger
from greencrawl.schema.logs.records import LogsQuery, PostQuery, PostReply
from greencrawl.schema.wire import to_json

log = logger("http")

MOST_BYTES = 2 * 1024 * 1024
"""A post may have this many bytes, packed and unpacked: senders send a quarter of it."""
MOST_LINES = 20_000
"""A post may have this many lines: our lines have about 90 bytes."""
RETRY_SECONDS = 1


class LoggerHealth(Struct, frozen=True, kw_only=True):
    """The state of a logger. ``full`` says why nothing can be written just now, "" if it can.

    ``taken`` and ``repeated`` count lines since the process began: new lines of posts, and lines
    that came again.
    """

    full: str = ""
    taken: int = 0
    repeated: int = 0
    waiting_bytes: int = 0


class LoggerApp:
    """The WSGI application of a logger."""

    def __init__(self, archive: Archive, intake: Intake, guard: Guard) -> None:
        self._archive = archive
        self._intake = intake
        self._guard = guard
        self.wsgi = falcon.App(media_type="application/json")
        for kind in (Exception, falcon.HTTPError):
            self.wsgi.add_error_handler(kind, self._on_error)
        self.wsgi.add_route("/v1/logs", _Resource(self._get, self._post))
        self.wsgi.add_route("/healthz", _Resource(self._health))

    def _post(self, request: falcon.Request) -> PostReply:
        self._guard.check(request, Role.WORKER)
        query = bodies.query(request, PostQuery)
        texts = _lines(request)
        try:
            return self._intake.take(
                query.member, query.incarnation, query.first, texts, query.after, query.flush
            )
        except Full as error:
            headers = {"Retry-After": str(RETRY_SECONDS)}
            raise HttpProblem(507, str(error), headers=headers) from error

    def _get(self, request: falcon.Request) -> Any:
        self._guard.check(request, Role.WORKER)
        query = bodies.query(request, LogsQuery)
        try:
            return find(self._archive, self._intake, query, epoch_ms())
        except ValueError as error:
            raise HttpProblem(400, str(error)) from error

    def _health(self, request: falcon.Request) -> LoggerHealth:
        self._guard.check(request, Role.OPEN)
        intake = self._intake
        return LoggerHealth(
            full=intake.full,
            taken=intake.taken_lines,
            repeated=intake.repeated_lines,
            waiting_bytes=intake.bytes,
        )

    @staticmethod
    def _on_error(
        request: falcon.Request, response: falcon.Response, error: Exception, _: dict[str, Any]
    ) -> None:
        problem = problems.of(error)
        if problem is None:
            log.error("request_failed", method=request.method, path=request.path, exc_info=error)
            problem = HttpProblem(500, "the logger failed; its log says why")
        response.status = problem.status
        response.content_type = problems.MEDIA_TYPE
        response.data = to_json(problem.record)
        for name, value in problem.headers.items():
            response.set_header(name, value)


class _Resource:
    """A function for each method, which Falcon calls; its result is sent as JSON."""

    def __init__(
        self,
        get: Callable[[falcon.Request], Any],
        post: Callable[[falcon.Request], Any] | None = None,
    ) -> None:
        self._get = get
        self._post = post

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """Answer a GET."""
        self._answer(response, self._get(request))

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        """Answer a POST."""
        if self._post is None:
            raise HttpProblem(405, "it is asked by GET")
        self._answer(response, self._post(request))

    @staticmethod
    def _answer(response: falcon.Response, result: Any) -> None:
        response.data = to_json(result)
        response.set_header("Cache-Control", "no-store")


def _lines(request: falcon.Request) -> list[bytes]:
    """Return the lines of a post, unpacked. Raises a problem."""
    if (request.content_length or 0) > MOST_BYTES:
        raise _too_long()
    encoding = (request.get_header("Content-Encoding") or "identity").strip().lower()
    body = bodies.read(request, encoded=True)
    if encoding == "zstd":
        try:
            body = zstandard.ZstdDecompressor().stream_reader(body).read(MOST_BYTES + 1)
        except zstandard.ZstdError as error:
            raise HttpProblem(400, f"the body is not zstd: {error}") from error
    elif encoding != "identity":
        raise HttpProblem(415, "send lines plain, or with Content-Encoding zstd")
    if len(body) > MOST_BYTES:
        raise _too_long()
    lines = body.removesuffix(b"\n").split(b"\n") if body else []
    if len(lines) > MOST_LINES:
        raise _too_long()
    return lines


def _too_long() -> HttpProblem:
    return HttpProblem(
        413,
        f"posts end at {MOST_BYTES} bytes and {MOST_LINES} lines; send several",
        headers={"Connection": "close"},
    )
