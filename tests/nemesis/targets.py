"""All target hosts as one process: ``python -m tests.nemesis.targets LOG`` prints its port.

The log has a line for each request, with tabs between its fields: arrived, ended
(``time.monotonic()`` seconds), address, target, status (0: the peer had gone), the peer's port.
``arrived`` is the kernel's time of the first bytes; ``ended`` is taken just before the answer is
handed to the kernel: otherwise a gap could seem shorter than the one that the crawler kept.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import secrets
import socket as plain_socket
import sys
import time
from typing import IO
from urllib.parse import parse_qsl

import gevent
from gevent import socket
from gevent.server import StreamServer

from tests.nemesis import site
from tests.support.site_server import SO_TIMESTAMPNS, arrival

NAME, PASSWORD = "nemesis", "open sesame"
COOKIE = "member"
MOST_CHANGES = 4
"""A page changes at most this often: otherwise a crawl that begins again would grow for ever."""
_FORM = (
    "<!doctype html><title>Log in</title><form method=post action=/login>"
    "<input name=username><input type=password name=password><input type=submit></form>"
)
_HTML = "text/html; charset=utf-8"


class Targets:
    """The server; every loopback address is a host."""

    def __init__(self, log: IO[str]) -> None:
        self._log = log
        self._fetches: dict[str, int] = {}
        self._members: set[str] = set()
        listener = plain_socket.socket()
        listener.setsockopt(plain_socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        listener.bind(("0.0.0.0", 0))
        listener.listen(1024)
        listener.setblocking(False)
        self.port: int = listener.getsockname()[1]
        self._server = StreamServer(listener, self._serve)

    def run(self) -> None:
        """Serve for ever."""
        self._server.serve_forever()

    def _serve(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, buffer = sock.getsockname()[0], b""
        try:
            while True:
                arrived = time.monotonic() if buffer else 0.0
                while b"\r\n\r\n" not in buffer:
                    data, at = arrival(sock)
                    if not data:
                        return
                    arrived = arrived or at
                    buffer += data
                head, _, buffer = buffer.partition(b"\r\n\r\n")
                lines = head.decode("latin-1").split("\r\n")
                method, target, _ = lines[0].split(" ", 2)
                fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
                missing = int(fields.get("content-length", 0))
                while len(buffer) < missing:
                    buffer += sock.recv(65536)
                body, buffer = buffer[:missing], buffer[missing:]
                status, ended = 0, 0.0
                try:
                    code, wait, answer = self._answer(host, method, target, fields, body)
                    gevent.sleep(wait)
                    ended = time.monotonic()
                    sock.sendall(answer)
                    status = code
                finally:
                    self._log.write(
                        f"{arrived:.6f}\t{ended or time.monotonic():.6f}\t{host}\t{target}\t"
                        f"{status}\t{peer[1]}\n"
                    )
        except OSError:
            return  # the peer went away, as a killed worker does

    def _answer(
        self, host: str, method: str, target: str, fields: dict[str, str], body: bytes
    ) -> tuple[int, float, bytes]:
        number = site.number_of(host)
        if target == "/robots.txt":
            return 200, 0.02, _render(200, site.robots(number, self.port), kind="text/plain")
        if target.startswith("/login"):
            return self._login(method, body)
        if target == "/welcome":
            return 200, 0.02, _render(200, b"<!doctype html><title>Welcome</title><p>You are in")
        if site.has_login(number) and self._member(fields) not in self._members:
            return 302, 0.01, _render(302, b"", ("Location", "/login"))
        url = f"http://{host}:{self.port}{target}"
        there = site.resource_at(url)
        if there.kind != "html":
            body, kind = _file(there)
            return _tagged(there, fields, body, kind)
        links = list(there.links)
        if there.changing and (graph := site.graph_of(target)) is not None:
            fetches = self._fetches[url] = min(self._fetches.get(url, 0) + 1, MOST_CHANGES)
            number_of_page = target.rpartition("/")[2]
            links.append(f"http://{host}:{self.port}/{graph.tag}/w/{number_of_page}.{fetches}")
        said = f"<p>{there.text}</p>" if there.text else ""
        text = "".join(f'<p>See <a href="{link}">there</a>.</p>' for link in links)
        shown = "".join(map(_shown, there.needs))
        page = f"<!doctype html><title>{target}</title><body><h1>{url}</h1>{said}{text}{shown}"
        if there.location:
            more = ("Location", there.location)
            return there.status, there.wait, _render(there.status, page.encode(), more)
        return _tagged(there, fields, page.encode(), _HTML)

    @staticmethod
    def _member(fields: dict[str, str]) -> str:
        pairs = (pair.partition("=") for pair in fields.get("cookie", "").split("; "))
        return {name: value for name, _, value in pairs}.get(COOKIE, "")

    def _login(self, method: str, body: bytes) -> tuple[int, float, bytes]:
        given = dict(parse_qsl(body.decode()))
        if method != "POST" or (given.get("username"), given.get("password")) != (NAME, PASSWORD):
            return 200, 0.02, _render(200, _FORM.encode())
        member = secrets.token_hex(8)
        self._members.add(member)
        cookie = ("Set-Cookie", f"{COOKIE}={member}; Path=/; HttpOnly")
        return 302, 0.02, _render(302, b"", cookie, ("Location", "/welcome"))


def _tagged(
    there: site.Resource, fields: dict[str, str], body: bytes, kind: str
) -> tuple[int, float, bytes]:
    """Return an answer with an entity tag, or one that says that nothing has changed."""
    tag = ("ETag", f'"{hashlib.blake2b(body, digest_size=8).hexdigest()}"')
    if there.status == 200 and fields.get("if-none-match") == tag[1]:
        return 304, there.wait, _render(304, b"", tag)
    more = [tag] if there.status == 200 else []
    return there.status, there.wait, _render(there.status, body, *more, kind=kind)


def _shown(url: str) -> str:
    """Return how a page needs a requisite: every second style sheet is imported."""
    if not url.endswith(".css"):
        return f'<img src="{url}">'
    if url.endswith("0.css"):
        return f"<style>@import '{url}';</style>"
    return f'<link rel=stylesheet href="{url}">'


def _file(there: site.Resource) -> tuple[bytes, str]:
    """Return body and type of a file that is no page."""
    if there.kind == "image":
        return b"\x89PNG\r\n\x1a\n" + bytes(64), "image/png"
    if there.kind == "font":
        return b"wOF2" + bytes(64), "font/woff2"
    if there.kind == "css":
        rules = (
            f'@import "{url}";' if url.endswith(".css") else f"b {{background: url({url})}}"
            for url in sorted(there.needs, key=lambda url: not url.endswith(".css"))
        )  # fmt: skip
        return "\n".join(rules).encode(), "text/css"
    if there.kind == "text":
        return "\n".join(there.links).encode(), "text/plain"
    outer, inner = ("sitemapindex", "sitemap") if there.kind == "index" else ("urlset", "url")
    listed = "".join(f"<{inner}><loc>{url}</loc></{inner}>\n" for url in there.links)
    body = f"<{outer}>{listed}</{outer}>".encode()
    if there.kind == "gzip":
        return gzip.compress(body, mtime=0), "application/gzip"
    return body, "application/xml"


def _render(status: int, body: bytes, *more: tuple[str, str], kind: str = _HTML) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _end_with_parent() -> None:
    """Our standard input ends when our parent ends."""
    gevent.get_hub().threadpool.apply(sys.stdin.read)
    os._exit(0)


if __name__ == "__main__":
    with open(sys.argv[1], "a", buffering=1) as file:
        targets = Targets(file)
        print(targets.port, flush=True)
        gevent.spawn(_end_with_parent)
        targets.run()
