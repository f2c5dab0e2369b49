"""The browser's way back to the terminal: one redirect to a port of this machine (RFC 8252,
7.3)."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from types import TracebackType
from urllib.parse import urlsplit

from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import GreencrawlError

READ_SECONDS = 5.0
"""Seconds for a whole request: a browser may open connections that it sends nothing over."""
MAX_HEAD_BYTES = 16 * 1024
_HOSTS = {"127.0.0.1": socket.AF_INET, "localhost": socket.AF_INET, "::1": socket.AF_INET6}
_PAGE = "<!doctype html><meta charset=utf-8><title>Greencrawl</title><p>{}</p>\n"
_DONE = "You may close this window and go back to the terminal."
_OTHER = "This is not the answer that the terminal waits for."


class Loopback:
    """Listens at a redirect URI on this machine; use it with ``with``.

    ``uri`` is ``http://127.0.0.1:PORT/PATH`` (or ``localhost``, ``[::1]``); without a port, or with
    0, a free port is taken. Raises GreencrawlError when ``uri`` is no such URI, or when listening
    there is not possible.
    """

    def __init__(self, uri: str = "http://127.0.0.1:0/callback") -> None:
        parts = urlsplit(uri)
        host = parts.hostname or ""
        if not is_loopback(uri):
            raise GreencrawlError(f"{uri} does not lead to this machine: use --paste with it")
        self._path = parts.path or "/"
        self._socket = socket.socket(_HOSTS[host])
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        at = "127.0.0.1" if host == "localhost" else host
        try:
            self._socket.bind((at, parts.port or 0))
            self._socket.listen(8)
        except OSError as error:
            self._socket.close()
            why = error.strerror or str(error)
            raise GreencrawlError(f"cannot listen at {uri}: {why}") from error
        port = self._socket.getsockname()[1]
        name = f"[{host}]" if ":" in host else host
        self.uri = f"http://{name}:{port}{parts.path}"
        """The redirect URI to give to the provider."""

    def wait(self, expected: Callable[[str], bool], seconds: float) -> str | None:
        """Return the first URL asked for at the URI's path that is ``expected``; None if none
        comes.

        Any other request – a favicon, another program – gets this answer, and the wait goes on.
        """
        limit = monotonic() + seconds
        while (left := limit - monotonic()) > 0:
            ready, _, _ = select.select([self._socket], [], [], left)
            if not ready:
                continue
            connection, _ = self._socket.accept()
            with connection:
                try:
                    url = self._asked(connection)
                    connection.settimeout(READ_SECONDS)
                    good = url is not None and expected(url)
                    connection.sendall(_answer(good))
                except OSError:  # the browser has gone, or sends nothing
                    continue
            if url is not None and good:
                return url
        return None

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def __enter__(self) -> Loopback:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _asked(self, connection: socket.socket) -> str | None:
        """Return the URL that a GET asks for, if it is at our path."""
        head, limit = b"", monotonic() + READ_SECONDS
        while b"\r\n\r\n" not in head:
            connection.settimeout(max(0.001, limit - monotonic()))
            data = connection.recv(4096)
            head += data
            if not data or len(head) > MAX_HEAD_BYTES:
                return None
        method, _, rest = head.partition(b" ")
        target = rest.partition(b" ")[0].decode("ascii", "replace")
        if method != b"GET" or target.partition("?")[0] != self._path:
            return None
        return f"{self.uri}?{target.partition('?')[2]}"


def is_loopback(uri: str) -> bool:
    """Return whether a redirect to ``uri`` comes back to this machine, so that it needs no TLS."""
    try:
        parts = urlsplit(uri)
        return parts.scheme == "http" and parts.hostname in _HOSTS and (parts.port or 0) >= 0
    except ValueError:
        return False


def _answer(good: bool) -> bytes:
    body = _PAGE.format(_DONE if good else _OTHER).encode()
    status = "200 OK" if good else "404 Not Found"
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\n"
        "Referrer-Policy: no-referrer\r\n"
    )
    return head.encode() + b"\r\n" + body
