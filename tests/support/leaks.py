"""A search for secrets in everything that a crawler leaves behind or prints.

A secret is searched as it is, and in its forms in a URL, in JSON, in base64 (also as part of a
longer text: HTTP Basic, bodies in an export) and in hexadecimal; compressed data are unpacked.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import sqlite3
import urllib.error
import urllib.request
import zlib
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from unittest.mock import patch
from urllib.parse import quote, quote_plus

import psutil
import redis
import zstandard

from greencrawl.cli.main import main
from greencrawl.store.export.formats import FORMATS
from tests.support.system import System

KEPT = ("logins", "credentials.toml")
"""Files below a data folder that have secrets on purpose, with mode 0600."""

Place = tuple[str, bytes]
"""A place and its content."""

_MOST_BYTES = 64 * 1024 * 1024


def needles(secret: str) -> set[bytes]:
    """Return byte strings that reveal a secret; it must have 8 bytes or more, so that it does not
    occur by chance."""
    plain, inside = secret.encode(), json.dumps(secret)[1:-1]
    assert len(plain) >= 8, "too short to be looked for"
    texts = [quote(secret, safe=""), quote(secret), quote_plus(secret)]
    texts += [inside, inside.replace("/", "\\/"), json.dumps(inside)[1:-1]]
    found = {plain, plain.hex().encode(), secret.encode("latin-1", "ignore")}
    found |= {text.encode() for text in texts}
    for encode in (b64encode, urlsafe_b64encode):
        for ahead in range(3):
            # Only the characters at both ends depend on the text around the secret.
            text = encode(b"\0" * ahead + plain)
            first = -(-ahead * 8 // 6)
            last = (ahead + len(plain)) * 8 // 6
            found.add(text[first:last])
    return {one for one in found if len(one) >= 8}


def leaks(secrets: Iterable[str], places: Iterable[Place]) -> list[str]:
    """Return "WHERE: SECRET's beginning" for each place with a secret, in any of its forms."""
    wanted = [(secret, needles(secret)) for secret in sorted(secrets)]
    found = []
    for where, content in places:
        for secret, forms in wanted:
            if any(form in content for form in forms):
                found.append(f"{where}: {secret[:12]}…")
    return found


def told(system: System, crawl: str, urls: Sequence[str]) -> Iterator[Place]:
    """Yield the running broker's answers to every GET, the output of commands, and the command
    lines of the processes; ``urls`` are some URLs of the crawl."""
    hosts = {url.split("/")[2] for url in urls}
    paths = ["/metrics", "/openapi.json", "/healthz", "/readyz", "/v1/stats", "/v1/crawls"]
    paths += [f"/v1/crawls/{crawl}", f"/v1/stats?crawl={crawl}", f"/v1/dead?crawl={crawl}"]
    paths += ["/v1/purges", "/v1/repair", *(f"/v1/hosts/{quote(host)}" for host in hosts)]
    paths += [f"/v1/urls?url={quote(url, safe='')}" for url in urls]
    for path in [*paths, *_page_paths(system, crawl)]:
        yield f"api {path}", _get(system, path)
    for url in urls:
        yield f"explain {url}", command(system, "explain", url)
    yield "status", command(system, "status")
    yield "pages", command(system, "pages", crawl)
    for process in system.processes():
        with suppress(psutil.NoSuchProcess):
            yield f"arguments of {process.pid}", "\0".join(process.cmdline()).encode()


def exported(system: System, crawl: str, folder: Path) -> Iterator[Place]:
    """Yield the crawl in each format of export."""
    for format_ in FORMATS:
        path = folder / f"leaks.{format_}"
        wanted = ["--bodies"] if format_ == "jsonl" else []
        command(system, "export", crawl, "--format", format_, *wanted, "-o", str(path))
        yield f"export {format_}", unpacked(path.read_bytes())
        path.unlink()


def in_redis(url: str) -> Iterator[Place]:
    """Yield every key with its value."""
    with closing(redis.Redis.from_url(url)) as client:
        for key in client.scan_iter(count=1000):
            name = key.decode(errors="replace")
            yield f"redis {name}", key + b"\n" + _value(client, key)


def in_files(folder: Path) -> Iterator[Place]:
    """Yield every file below ``folder``, with its name, except those in :data:`KEPT`; and every row
    of SQLite, unpacked.

    Nothing may be writing to them.
    """
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if not path.is_file() or set(inside.parts) & set(KEPT):
            continue
        content = path.read_bytes()
        yield f"file {inside}", f"{inside}\n".encode() + content
        if content[:2] == b"\x1f\x8b":
            yield f"unpacked {inside}", unpacked(content)
        if content.startswith(b"SQLite format 3\0"):
            for table, row in _rows(path):
                yield f"table {table} of {inside}", row


def unpacked(content: bytes) -> bytes:
    """Return content unpacked: gzip with several members, zlib or zstd; anything else unchanged."""
    if content[:2] == b"\x1f\x8b":
        return gzip.decompress(content)
    if content[:4] == b"\x28\xb5\x2f\xfd":
        return zstandard.ZstdDecompressor().decompress(content, max_output_size=_MOST_BYTES)
    if content[:1] == b"\x78":
        with suppress(zlib.error):
            return zlib.decompress(content)
    return content


def command(system: System, *arguments: str) -> bytes:
    """Return the output of ``greencrawl`` on both streams. Raises AssertionError if it fails."""
    said, environ = io.StringIO(), environment(system)
    with patch.dict(os.environ, environ, clear=True), redirect_stdout(said), redirect_stderr(said):
        code = main(list(arguments))
    assert code == 0, (arguments, said.getvalue())
    return said.getvalue().encode()


def environment(system: System) -> dict[str, str]:
    """Return the environment of a command on the worker."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GREENCRAWL_")}
    given = {**system.variables, **system.secrets}
    return kept | {f"GREENCRAWL_{k}": v for k, v in given.items() if v}


def _page_paths(system: System, crawl: str) -> list[str]:
    listed = system.call("GET", f"/v1/pages?crawl={crawl}&limit=5")
    paths = [f"/v1/pages?crawl={crawl}&limit=100"]
    for page in listed["items"][:3]:
        paths += [f"/v1/pages/{page['id']}{part}" for part in ("", "/text", "/body")]
    return paths


def _get(system: System, path: str) -> bytes:
    """Return head and body of the answer, also of a refusal."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{system.port}{path}", timeout=30) as answer:
            return str(answer.headers).encode() + bytes(answer.read())
    except urllib.error.HTTPError as error:
        return str(error.headers).encode() + error.read()


def _value(client: redis.Redis, key: bytes) -> bytes:
    kind = client.type(key)
    parts: list[bytes] = []
    if kind == b"string":
        parts = [client.get(key) or b""]
    elif kind == b"hash":
        parts = [part for pair in client.hgetall(key).items() for part in pair]
    elif kind == b"list":
        parts = client.lrange(key, 0, -1)
    elif kind == b"set":
        parts = list(client.smembers(key))
    elif kind == b"zset":
        parts = client.zrange(key, 0, -1)
    elif kind != b"none":  # expired meanwhile
        raise AssertionError(f"no search in a {kind.decode()}")
    return b"\n".join(one for part in parts for one in {part, unpacked(part)})


def _rows(path: Path) -> Iterator[Place]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        db.text_factory = bytes
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (name,) in tables:
            for row in db.execute(f'SELECT * FROM "{name.decode()}"'):
                parts = [
                    unpacked(one) if isinstance(one, bytes) else str(one).encode() for one in row
                ]
                yield name.decode(), b"\n".join(parts)
