"""Sends one request to one broker or logger over HTTP, once, and returns what came of it."""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec
from geventhttpclient.connectionpool import ConnectionPool, SSLConnectionPool
from geventhttpclient.response import HTTPParseError, HTTPSocketPoolResponse

from greencrawl.schema.errors import InvalidConfig

CONNECT_SECONDS = 5.0
POOL = 16


class Lost(msgspec.Struct, frozen=True):
    """An address that gave no answer; ``sent``: it may have processed the request."""

    why: str
    sent: bool


class Reply(msgspec.Struct, frozen=True):
    """An HTTP answer, read to its end."""

    status: int
    body: bytes


class Transport(Protocol):
    """The transport to one broker; ``url`` is its address."""

    url: str

    def send(self, method: str, path: str, body: bytes, token: str, seconds: float) -> Reply | Lost:
        """Send one request, once; ``seconds`` bounds each read and write."""

    def close(self) -> None:
        """Close idle connections."""


class KeepAlive:
    """One broker, with connections that greenlets reuse. Raises InvalidConfig."""

    def __init__(self, url: str, ca: str) -> None:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        host, port = parts.hostname or "", parts.port or (443 if secure else 80)
        self.url = url
        self._host = parts.netloc.rpartition("@")[2]
        self._prefix = parts.path.rstrip("/")
        common: dict[str, Any] = {"size": POOL, "connection_timeout": CONNECT_SECONDS}
        if secure:
            options: dict[str, Any] = {"ca_certs": ca} if ca else {}
            try:
                self.pool: ConnectionPool = SSLConnectionPool(
                    host, port, host, port, ssl_options=options, **common
                )
            except OSError as error:
                raise InvalidConfig([("GREENCRAWL_TLS_CA", f"{ca}: {error}")]) from error
        else:
            self.pool = ConnectionPool(host, port, host, port, **common)

    def send(
        self,
        method: str,
        path: str,
        body: bytes,
        token: str,
        seconds: float,
        kind: tuple[str, ...] = ("Content-Type: application/json",),
    ) -> Reply | Lost:
        """Send one request, once. Idle connections that the broker closed are skipped.

        ``kind`` are the header fields that describe the body.
        """
        head = self._head(method, path, len(body), token, kind)
        try:
            connection = self.pool.get_socket()
        except OSError as error:
            return Lost(f"cannot connect: {error}", sent=False)
        try:
            connection.settimeout(seconds)
            connection.sendall(head + body)
        except OSError as error:
            self.pool.release_socket(connection)
            return Lost(f"broke off while sending: {error}", sent=True)
        except BaseException:  # the greenlet is being killed: give the pool's slot back
            self.pool.release_socket(connection)
            raise
        try:  # from here on the response gives the connection back, or closes it
            response = HTTPSocketPoolResponse(connection, self.pool, method=method)
            return Reply(response.get_code(), response.read())
        except (OSError, HTTPParseError) as error:
            return Lost(f"no answer: {error or type(error).__name__}", sent=True)

    def close(self) -> None:
        """Close idle connections."""
        self.pool.close()

    def _head(
        self, method: str, path: str, length: int, token: str, kind: tuple[str, ...]
    ) -> bytes:
        lines = [f"{method} {self._prefix}{path} HTTP/1.1", f"Host: {self._host}"]
        if token:
            lines.append(f"Authorization: Bearer {token}")
        if length or method in ("POST", "PATCH"):
            lines += [*kind, f"Content-Length: {length}"]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
