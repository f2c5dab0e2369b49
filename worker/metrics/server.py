"""A small HTTP server for one page, ``/metrics``.

Each connection has a thread. Only a few are served at once, and each ends after some seconds,
however slowly its peer sends or reads.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from threading import BoundedSemaphore, Timer
from typing import Any

from prometheus_client.registry import Collector

from greencrawl.schema import bearer
from greencrawl.schema.log import logger
from greencrawl.worker.metrics.families import exposition

log = logger("metrics")

MOST_CONNECTIONS = 8
"""There are at most this many connections at once; further ones are closed."""
SECONDS = 5.0
"""Seconds after which a connection is cut."""


class MetricsServer(ThreadingMixIn, HTTPServer):
    """Serves ``collector`` on a listening socket, to clients that send one of ``tokens``.

    Without tokens it serves any client that uses a name of this machine, but no web page.
    """

    daemon_threads = True

    def __init__(
        self,
        listening: socket.socket,
        collector: Collector,
        tokens: tuple[str, ...] = (),
        tls: ssl.SSLContext | None = None,
        *,
        seconds: float = SECONDS,
    ) -> None:
        super().__init__(listening.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.collector = collector
        self.tokens = tokens
        self._tls = tls
        self._seconds = seconds
        self._connections = BoundedSemaphore(MOST_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread, if one is left."""
        if self._connections.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one connection, in its thread."""
        same = request.dup()  # TLS takes over the other one
        cut = Timer(self._seconds, _cut, [same])
        cut.daemon = True
        cut.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            cut.cancel()
            same.close()
            self._connections.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Agree on TLS, if there is a certificate, and answer."""
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        with self._tls.wrap_socket(request, server_side=True) as secure:
            super().finish_request(secure, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a peer's error in one line; it never ends the server."""
        log.info("scrape_failed", peer=str(client_address), exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    server_version, sys_version = "greencrawl", ""

    def do_GET(self) -> None:
        status, why = self._judge()
        if why:
            self._answer(status, "text/plain; charset=utf-8", f"{why}\n".encode())
            return
        body, media_type = exposition(self.server.collector, self.headers.get("Accept", ""))
        self._answer(status, media_type, body)

    do_HEAD = do_GET

    def _judge(self) -> tuple[HTTPStatus, str]:
        """Return the status, and why the page is not served; "" if it is."""
        if any(self.server.tokens):
            if not any(bearer.matches(self.headers.get("Authorization", ""), *self.server.tokens)):
                return HTTPStatus.UNAUTHORIZED, "send Authorization: Bearer TOKEN"
        elif why := bearer.foreign(self.headers.get("Host"), self.headers.get("Origin")):
            return HTTPStatus.FORBIDDEN, why
        if self.path != "/metrics":
            return HTTPStatus.NOT_FOUND, "there is /metrics only"
        return HTTPStatus.OK, ""

    def _answer(self, status: HTTPStatus, media_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", bearer.CHALLENGE)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("metrics_scraped", request=format % args)


def _cut(request: socket.socket) -> None:
    with suppress(OSError):  # it has ended
        request.shutdown(socket.SHUT_RDWR)
