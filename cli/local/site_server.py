"""The small site that the project ships, served on loopback: ``crawl --demo`` crawls it.

The pages are under ``site/``. Two things that a folder cannot hold are added: a permanent redirect,
and a search page whose query arrives in the encoding of the page that linked to it.
"""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from gevent.pywsgi import WSGIHandler, WSGIServer

import greencrawl

SITE = Path(str(greencrawl.__file__)).parent / "site"

REDIRECTS = {"/old-catalogue.html": "/plants/index.html"}

TYPES = {".html": "text/html; charset=utf-8", ".txt": "text/plain; charset=utf-8"}

ENCODINGS = {"/zh/search-form.html": "text/html; charset=gbk"}
"""Paths that are not served as UTF-8."""

StartResponse = Callable[[str, list[tuple[str, str]]], Any]


class Site:
    """A WSGI application. ``requests`` logs each request target as it arrived, percent-encoded."""

    def __init__(self, root: Path = SITE) -> None:
        self.root = root.resolve()
        self.requests: list[str] = []

    def __call__(self, environ: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        target = str(environ["REQUEST_URI"])
        self.requests.append(target)
        path, _, query = target.partition("?")
        status, headers, body = self.answer(path, query)
        start(status, [*headers, ("Content-Length", str(len(body)))])
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]

    def answer(self, path: str, query: str) -> tuple[str, list[tuple[str, str]], bytes]:
        """Return (status line, headers, body) for a percent-encoded path and query."""
        if path in REDIRECTS:
            return "301 Moved Permanently", [("Location", REDIRECTS[path])], b""
        if path == "/zh/search":
            return "200 OK", [("Content-Type", TYPES[".html"])], _results(query)
        file = self._file(path)
        if file is None:
            return "404 Not Found", [("Content-Type", TYPES[".txt"])], b"no such page\n"
        kind = ENCODINGS.get(path) or TYPES.get(file.suffix, "application/octet-stream")
        return "200 OK", [("Content-Type", kind)], file.read_bytes()

    def _file(self, path: str) -> Path | None:
        relative = os.fsdecode(unquote_to_bytes(path)).lstrip("/")  # works in every locale
        if "\0" in relative:
            return None
        file = (self.root / relative).resolve()
        if file.is_dir() and path.endswith("/"):
            file /= "index.html"
        inside = file.is_relative_to(self.root)
        return file if inside and file.is_file() else None


def _results(query: str) -> bytes:
    """Return a page that shows the search term, read as UTF-8 or, if invalid, as GBK."""
    try:
        fields = dict(parse_qsl(query, encoding="utf-8", errors="strict"))
    except UnicodeDecodeError:
        fields = dict(parse_qsl(query, encoding="gbk", errors="replace"))
    term = html.escape(fields.get("q", ""))
    return (
        f'<!DOCTYPE html>\n<html lang="zh-Hans">\n<title>搜索：{term}</title>\n'
        f'<p>没有找到“{term}”。<a href="/zh/index.html">首页</a></p>\n</html>\n'
    ).encode()


class _Handler(WSGIHandler):
    """Passes the request target on as it arrived: WSGI decodes the path, which loses its
    spelling."""

    def get_environ(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environ()
        return {**environ, "REQUEST_URI": self.path}


@contextmanager
def serve(site: Site, host: str = "127.0.0.1") -> Iterator[str]:
    """Serve ``site`` on a free port of ``host`` while the block runs; yields its root URL."""
    server = WSGIServer((host, 0), site, log=None, handler_class=_Handler)
    server.start()
    try:
        yield f"http://{host}:{server.server_port}/"
    finally:
        server.stop(timeout=1)
