"""The HTTP API: Falcon's routes from the table of operations, and the server that runs them.

Every request takes the same way. It is counted, checked by the guard, decoded, handled, encoded;
any error on the way becomes a problem (RFC 9457).
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import falcon
import gevent
from gevent.event import Event

from greencrawl.broker.api import bodies, openapi, problems
from greencrawl.broker.api.connections import BoundedServer, most_connections
from greencrawl.broker.api.messages import Answer, Text
from greencrawl.broker.api.metrics import Metrics
from greencrawl.broker.api.operations import OPERATIONS, Operation
from greencrawl.broker.api.problems import HttpProblem
from greencrawl.broker.api.security import Guard, Role
from greencrawl.broker.service.service import Service
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.log import logger
from greencrawl.schema.records import SeedRequest
from greencrawl.schema.settings import Settings
from greencrawl.schema.wire import to_json

log = logger("http")

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
"""A WSGI application."""

BACKLOG = 1024
DRAIN_SECONDS = 15.0
"""How long a stopping broker waits for requests that it is answering."""


class Requests:
    """Counts the requests in work; a stopping broker waits until these are answered, and refuses
    new requests."""

    def __init__(self) -> None:
        self.closing = False
        self._count = 0
        self._none = Event()
        self._none.set()

    def __enter__(self) -> Requests:
        self._count += 1
        self._none.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._none.set()

    def drained(self, seconds: float) -> bool:
        """Wait until no request is being answered; False if some still are."""
        return bool(self._none.wait(seconds))


class HttpApp:
    """The WSGI application of one broker process and what it counts."""

    def __init__(self, service: Service, guard: Guard, data: Path | None = None) -> None:
        """Build the application; ``data`` is the folder whose disk the metrics report."""
        self.service = service
        self.guard = guard
        self.metrics = Metrics(service, data)
        self.requests = Requests()
        self.operations = (*OPERATIONS, *self._about_itself())
        self._document = openapi.document(self.operations)
        self.wsgi = falcon.App(media_type="application/json")
        self.wsgi.req_options.auto_parse_form_urlencoded = False
        for kind in (Exception, falcon.HTTPError):  # Falcon has a handler of its own for HTTPError
            self.wsgi.add_error_handler(kind, self._on_error)
        for path in dict.fromkeys(operation.path for operation in self.operations):
            self.wsgi.add_route(path, self._resource(path))
        self._mounted: dict[str, Application] = {}

    def mount(self, path: str, application: Application) -> None:
        """Let another WSGI application answer ``path``, and all below it if it ends in a slash.

        That application decides by itself who may call it.
        """
        self._mounted[path] = application

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a WSGI request by the API, or by the application that is mounted at its path."""
        asked = environ["PATH_INFO"]
        for path, application in self._mounted.items():
            if asked == path or (path != "/" and path[-1] == "/" and asked.startswith(path)):
                return self._beside(application, environ, start)
        return self.wsgi(environ, start)

    def _beside(
        self, application: Application, environ: dict[str, Any], start: Callable[..., Any]
    ) -> Iterable[bytes]:
        if self.requests.closing:
            start("503 Service Unavailable", [("Connection", "close"), ("Retry-After", "1")])
            return [b"this broker is stopping; try another\n"]

        def started(status: str, *rest: Any) -> Any:
            self._count("mounted", int(status[:3]))
            return start(status, *rest)

        with self.requests, self.metrics.in_flight.track_inprogress():
            return application(environ, started)

    def _about_itself(self) -> tuple[Operation, ...]:
        def get_metrics(service: Service, accept: str) -> Text:
            """Return metrics in Prometheus' text format, or in OpenMetrics if that is accepted."""
            return self.metrics.text(accept)

        def get_openapi(service: Service) -> Text:
            """Return this document."""
            return Text("application/json", self._document)

        return (
            Operation(method="GET", path="/metrics", role=Role.ANY, run=get_metrics),
            Operation(method="GET", path="/openapi.json", role=Role.OPEN, run=get_openapi),
        )

    def _resource(self, path: str) -> SimpleNamespace:
        """Return the object in which Falcon looks up a path's methods.

        HEAD is a GET whose body Falcon leaves out.
        """
        here = {o.method.lower(): self._responder(o) for o in self.operations if o.path == path}
        if "get" in here:
            here["head"] = here["get"]
        return SimpleNamespace(**{f"on_{method}": run for method, run in here.items()})

    def _responder(self, operation: Operation) -> Callable[..., None]:
        found = openapi.hints(operation)
        body_type, query_type = found.get("body"), found.get("query")
        usual, negotiated = int(operation.statuses[0]), "accept" in found
        seconds = self.metrics.seconds.labels(operation.name)

        def respond(request: falcon.Request, response: falcon.Response, **path: str) -> None:
            request.context.operation = operation.name
            with self.requests, self.metrics.in_flight.track_inprogress(), seconds.time():
                if self.requests.closing:
                    raise _closing()
                self.guard.check(request, operation.role)
                given: dict[str, Any] = dict(path)
                if negotiated:
                    given["accept"] = request.get_header("Accept") or ""
                if query_type is not None:
                    given["query"] = bodies.query(request, query_type)
                elif request.params:
                    name = next(iter(request.params))
                    raise HttpProblem(400, f"{name}: unknown parameter", [(name, "unknown")])
                if body_type is SeedRequest:
                    given["body"] = bodies.seeds(request)
                elif body_type is not None:
                    given["body"] = bodies.record(request, body_type)
                result = operation.run(self.service, **given)
                self._answer(response, result, usual)
            self._count(operation.name, response.status_code)

        return respond

    @staticmethod
    def _answer(response: falcon.Response, result: Any, usual: int) -> None:
        response.status = usual
        if isinstance(result, Answer):
            response.status, result = result.status, result.value
        if isinstance(result, Text):
            response.content_type, response.data = result.media_type, result.body
            response.set_headers(result.headers)
        else:
            response.data = to_json(result)
        response.set_header("Cache-Control", "no-store")

    def _on_error(
        self,
        request: falcon.Request,
        response: falcon.Response,
        error: Exception,
        _params: dict[str, Any],
    ) -> None:
        problem = problems.of(error)
        if problem is None:
            log.error("request_failed", method=request.method, path=request.path, exc_info=error)
            problem = HttpProblem(500, "the broker failed; its log says why")
        response.status = problem.status
        response.content_type = problems.MEDIA_TYPE
        response.data = to_json(problem.record)
        for name, value in problem.headers.items():
            response.set_header(name, value)
        self._count(getattr(request.context, "operation", "none"), problem.status)

    def _count(self, operation: str, status: int) -> None:
        self.metrics.requests.labels(operation, str(status)).inc()


def _closing() -> HttpProblem:
    headers = {"Connection": "close", **problems.RETRY_AFTER}
    return HttpProblem(503, "this broker is stopping; try another", headers=headers)


def listener(bind: tuple[str, int], variable: str = "GREENCRAWL_BIND") -> socket.socket:
    """Open a listening socket with TCP_NODELAY, which accepted connections inherit.

    Without TCP_NODELAY, headers and body leave in two writes, and the second write waits for the
    peer's delayed acknowledgement: the broker answers 735 requests/s instead of about 10,000.
    Raises :class:`InvalidConfig`, which names the ``variable``, if the address is not available.
    """
    host, port = bind
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise InvalidConfig([(variable, f"{host}: {error}")]) from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise InvalidConfig([(variable, f"{host}:{port}: {error.strerror}")]) from error
    listening.setblocking(False)
    return listening


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Make the listener's TLS context, or None without a certificate. Raises InvalidConfig."""
    if not settings.tls_cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:  # ssl.SSLError is an OSError
        raise InvalidConfig([("GREENCRAWL_TLS_CERT", f"cannot be used: {error}")]) from error
    return context


class ConnectionLog:
    """pywsgi's log of errors below the application: broken requests, lost peers."""

    def write(self, text: str) -> None:
        """Log the text, unless it is blank."""
        if text.strip():
            log.warning("connection_failed", text=text.strip())

    def writelines(self, texts: Iterable[str]) -> None:
        """:meth:`write` all lines as one text."""
        self.write("".join(texts))

    def flush(self) -> None:
        """Do nothing: no text is buffered."""


class Server:
    """The listening server of one broker process. ``start`` returns at once; ``stop`` drains."""

    def __init__(
        self, http_app: HttpApp, listening: socket.socket, context: ssl.SSLContext | None = None
    ) -> None:
        self.http_app = http_app
        secure: dict[str, Any] = {"ssl_context": context} if context else {}
        self._server = BoundedServer(
            listening,
            http_app,
            log=None,
            error_log=ConnectionLog(),
            most=most_connections(),
            **secure,
        )

    @property
    def port(self) -> int:
        """Return the port that it listens on."""
        return int(self._server.server_port or 0)

    def start(self) -> None:
        """Begin to accept connections."""
        self._server.start()

    def stop(self) -> None:
        """Accept no more, end the long polls, and wait for requests in work."""
        self.http_app.requests.closing = True
        self._server.close()
        self.http_app.service.end_polls()
        if not self.http_app.requests.drained(DRAIN_SECONDS):
            log.warning("requests_cut_off", seconds=DRAIN_SECONDS)
        gevent.sleep(0)  # finished answers leave before their connections are cut
        self._server.stop(timeout=0.1)
