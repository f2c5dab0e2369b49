"""The data in SQL and Redis, read by plain queries and commands, without code of the product.

The layouts are those of ``schema/sql`` and ``broker/frontier/nodes/keys.py``.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pymysql
import redis
import zstandard

READ_SECONDS = 20
PARTITIONS = 16
"""The keys of the frontier that is harmed."""
MOMENT_SECONDS = 0.25
_WRITE_LOCK = 120
"""The byte of ``-shm`` that a writer locks."""


def sqlite_writer(path: Path) -> int:
    """Return the process id of the process that writes to SQLite's file at ``path``, 0 if none
    does.

    The kernel has this information. Opening and closing the file of locks here would release the
    locks of this process. Source: "WAL-mode file format", 2.3.
    """
    shared = path.with_name(f"{path.name}-shm")
    inode = str(shared.stat().st_ino) if shared.exists() else ""
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1:4] != ["POSIX", "ADVISORY", "WRITE"] or words[5].rpartition(":")[2] != inode:
            continue
        end = math.inf if words[7] == "EOF" else int(words[7])
        if int(words[6]) <= _WRITE_LOCK <= end:
            return int(words[4])
    return 0


@dataclass
class CrawlRow:
    id: int
    name: str
    state: str
    reason: str
    deleted: bool


@dataclass(frozen=True)
class Parked:
    """A URL that is settled without a request: the time, in Unix seconds, and the reason."""

    at: float
    shape: str
    why: str


@dataclass
class Snapshot:
    """One crawl at one moment. ``pages``: status by URL; ``finals``: (state, kind) by URL;
    ``parked`` has more about the parked ones."""

    crawl: CrawlRow
    pages: dict[str, int] = field(default_factory=dict)
    links: set[str] = field(default_factory=set)
    finals: dict[str, tuple[str, str]] = field(default_factory=dict)
    parked: dict[str, Parked] = field(default_factory=dict)
    overflow: int = 0
    pending: int = 0

    @property
    def stored(self) -> int:
        """Return the number of pages with a status of 200 … 299, which ``max_pages`` counts."""
        return sum(200 <= status < 300 for status in self.pages.values())


class Sql:
    """Reads a store; every method in a transaction of its own. Raises OSError if it cannot."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self.is_mysql = self._parts.scheme == "mysql"

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Yield a cursor that sees one moment. Raises OSError."""
        try:
            if self.is_mysql:
                with closing(self._connect()) as connection, connection.cursor() as db:
                    db.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    db.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
                    yield db
            else:
                path = f"file:/{self._parts.path.strip(chr(47))}?mode=ro"
                with closing(
                    sqlite3.connect(path, uri=True, timeout=READ_SECONDS, isolation_level=None)
                ) as connection:
                    connection.execute("BEGIN")
                    yield connection.cursor()
        except (sqlite3.Error, pymysql.Error) as error:
            raise OSError(f"SQL: {error}") from error

    def _connect(self) -> Any:
        parts = self._parts
        return pymysql.connect(
            host=parts.hostname,
            port=parts.port or 3306,
            user=parts.username,
            password=parts.password or "",
            database=parts.path.strip("/"),
            connect_timeout=5,
            read_timeout=READ_SECONDS,
            ssl_disabled=True,
        )

    def crawls(self) -> list[CrawlRow]:
        """Return the rows of all crawls, deleted ones too."""
        with self.transaction() as db:
            db.execute("SELECT id, name, state, reason, deleted FROM crawls")
            return [_crawl(row) for row in db.fetchall()]

    def snapshot(self, crawl: int) -> Snapshot | None:
        """Return all of a crawl at one moment; None if there is no such row."""
        with self.transaction() as db:
            mark = int(crawl)
            db.execute(f"SELECT id, name, state, reason, deleted FROM crawls WHERE id = {mark}")
            row = db.fetchone()
            if row is None:
                return None
            found = Snapshot(_crawl(row))
            if self.is_mysql:
                db.execute(
                    "SELECT c.url, p.status, c.links FROM pages p JOIN contents c ON "
                    "c.crawl = p.crawl AND c.place = p.place AND c.fingerprint = p.fingerprint "
                    f"WHERE p.crawl = {mark}"
                )
            else:
                db.execute(f"SELECT url, status, links FROM pages WHERE crawl = {mark}")
            for url, status, links in db.fetchall():
                found.pages[_text(url)] = int(status)
                found.links.update(_links(links))
            db.execute(f"SELECT url, state, kind FROM finals WHERE crawl = {mark}")
            for url, state, kind in db.fetchall():
                found.finals[_text(url)] = (_text(state), _text(kind))
            found.parked = _parked(db, mark)
            db.execute(f"SELECT count(*) FROM overflow WHERE crawl = {mark}")
            found.overflow = int(db.fetchone()[0])
            db.execute(f"SELECT count(*) FROM seed_batches WHERE crawl = {mark} AND pending = 1")
            found.pending = int(db.fetchone()[0])
            return found

    def parked(self, crawl: int) -> dict[str, Parked]:
        """Return a crawl's parked URLs."""
        with self.transaction() as db:
            return _parked(db, int(crawl))

    def stored(self, crawl: int) -> int:
        """Return the number of pages with a status of 200 … 299."""
        with self.transaction() as db:
            db.execute(
                f"SELECT count(*) FROM pages WHERE crawl = {int(crawl)} "
                "AND status BETWEEN 200 AND 299"
            )
            return int(db.fetchone()[0])

    def blocked(self) -> dict[str, int]:
        """Return hosts and the Unix milliseconds until which they are blocked."""
        with self.transaction() as db:
            db.execute("SELECT host, until_ms FROM blocks")
            return {_text(host): int(until) for host, until in db.fetchall()}

    def retried(self) -> dict[str, int]:
        """Return URLs with failed tries in some crawl, and how many."""
        with self.transaction() as db:
            db.execute("SELECT url, count(*) FROM attempts WHERE errors > 0 GROUP BY url")
            return {_text(url): int(count) for url, count in db.fetchall()}

    def forced(self) -> dict[int, list[str]]:
        """Return the URLs that seeds forced, or that were released, by the number of their batch.
        Crawls that begin again are left out, since each period forces their URLs.

        A batch is dropped some time after each of its URLs was settled. If a node comes back as an
        older copy before that, and the copy does not know the batch, the node queues all its URLs
        once more, also those that were fetched since.
        """
        with self.transaction() as db:
            db.execute(
                "SELECT b.id, b.urls FROM seed_batches b JOIN crawls c ON c.id = b.crawl "
                "WHERE b.forced = 1 AND instr(c.options, '\"recrawl\":{') = 0"
            )
            return {int(batch): _links(blob) for batch, blob in db.fetchall()}

    def surplus(self) -> set[str]:
        """Return URLs that a limited crawl fetched when it already had all its pages: they are not
        settled."""
        with self.transaction() as db:
            db.execute(
                "SELECT DISTINCT a.url FROM attempts a JOIN crawls c ON c.id = a.crawl "
                "LEFT JOIN pages p ON p.crawl = a.crawl AND p.fingerprint = a.fingerprint "
                "LEFT JOIN finals f ON f.crawl = a.crawl AND f.fingerprint = a.fingerprint "
                "WHERE a.kind = 'ok' AND p.fingerprint IS NULL AND f.fingerprint IS NULL "
                "AND instr(c.options, '\"max_pages\":') > 0 "
                "AND instr(c.options, '\"max_pages\":0') = 0"
            )
            return {_text(url) for (url,) in db.fetchall()}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _crawl(row: Any) -> CrawlRow:
    return CrawlRow(int(row[0]), _text(row[1]), _text(row[2]), _text(row[3]), bool(row[4]))


def _parked(db: Any, crawl: int) -> dict[str, Parked]:
    db.execute(
        "SELECT url, at_ms, shape, detail FROM finals "
        f"WHERE crawl = {crawl} AND state = 'parked'"
    )  # fmt: skip
    return {
        _text(url): Parked(int(at_ms) / 1000, _text(shape), _text(detail))
        for url, at_ms, shape, detail in db.fetchall()
    }


def _links(blob: bytes) -> list[str]:
    if not blob:
        return []
    plain = zstandard.ZstdDecompressor().decompress(blob, max_output_size=1 << 26)
    return [link[0] for link in msgspec.msgpack.decode(plain)]


@dataclass
class Sample:
    """A Redis node; the reading began at ``at`` (``time.monotonic()``) and took ``seconds``.

    ``sessions`` has the id of the crawl of each session, by token. ``ages`` has the seconds for
    which each session has been open, by the clock of the node. ``overdue`` has the seconds for
    which each host of an active crawl could have been opened, by the same clock.
    """

    node: str
    at: float
    sessions: dict[str, int] = field(default_factory=dict)
    overdue: dict[str, float] = field(default_factory=dict)
    used_bytes: int = 0
    drift_seconds: float | None = None
    """Its logical time minus ours, if that could be read within a moment."""
    seconds: float = 0.0
    ages: dict[str, float] = field(default_factory=dict)


def queues_of(record: bytes | None) -> dict[str, Any]:
    """Return the queues by crawl in a host's record, if it has any. Lua writes an empty table as a
    list, so the record of a host without data is a list."""
    known = msgspec.msgpack.decode(record) if record else {}
    return (known and known.get("q")) or {}


def waiting(client: redis.Redis, crawls: set[int]) -> dict[int, set[str]]:
    """Return URLs that wait for these crawls, except those of long queues. Raises
    redis.RedisError."""
    at = client.connection_pool.connection_kwargs
    raw = redis.Redis(host=at["host"], port=at["port"], socket_timeout=READ_SECONDS)
    found: dict[int, set[str]] = {}
    for key in raw.scan_iter(b"gc:{*}:due:*", count=2000):
        prefix, _, number = key.partition(b":due:")
        hosts: Any = raw.zrange(key, 0, -1) if int(number) in crawls else []
        for host in hosts:
            record: Any = raw.get(prefix + b":h:" + host)
            queues: Any = queues_of(record)
            for value in queues.get(number.decode(), {}).get("e", ()):
                path = value[value.index("h/") + 1 :]
                found.setdefault(int(number), set()).add(f"http://{host.decode()}{path}")
    return found


@dataclass(frozen=True)
class Session:
    """A session with a host and its unfinished tasks, as places: address and path.

    ``worker`` is the id of the worker; any of its processes may have the session.
    """

    token: str
    worker: str
    address: str
    places: tuple[str, ...]


def sessions(client: redis.Redis) -> list[Session]:
    """Read all of a node. Raises redis.RedisError."""
    pipe = client.pipeline(transaction=False)
    for p in range(PARTITIONS):
        pipe.zrange(f"gc:{{{p}}}:sd", 0, -1)
    tokens = [(p, token) for p, some in enumerate(pipe.execute()) for token in some]
    for p, token in tokens:
        pipe.hgetall(f"gc:{{{p}}}:s:{token}")
    found = []
    for (_, token), record in zip(tokens, pipe.execute(), strict=True):
        if "host" in record:
            tasks = [v for name, v in record.items() if name[0] == "t" and name[1:].isdigit()]
            address = record["host"].partition(":")[0]
            places = tuple(address + _path(value) for value in tasks)
            worker = record["worker"].rpartition("-")[0]
            found.append(Session(token, worker, address, places))
    return found


def is_told(client: redis.Redis) -> bool:
    """Return whether a node has got what it missed when it came back last. False if it is away."""
    try:
        owner = client.hgetall("gc:owner")
        run = client.info("server")["run_id"]
    except (redis.RedisError, OSError):
        return False
    return owner.get("run") == run and owner.get("state") == "open" and "owed" not in owner


def unfinished(client: redis.Redis) -> set[str]:
    """Return the places of all tasks that wait, are leased or are to be tried later. Raises
    redis.RedisError."""
    at = client.connection_pool.connection_kwargs
    raw = redis.Redis(host=at["host"], port=at["port"], socket_timeout=READ_SECONDS)
    found = {place for one in sessions(client) for place in one.places}
    for key in raw.scan_iter(b"gc:{*}:h:*", count=2000):
        host = key.partition(b":h:")[2].decode()
        record: Any = raw.get(key)
        queues: Any = queues_of(record)
        for queue in queues.values() if isinstance(queues, dict) else ():
            found.update(_place(host, value) for value in queue.get("e", ()))
    for key in raw.scan_iter(b"gc:{*}:w:*", count=2000):
        host = key.partition(b":w:")[2].partition(b":")[2].rpartition(b":")[0].decode()
        values: Any = raw.lrange(key, 0, -1)
        found.update(_place(host, value.decode()) for value in values)
    for key in raw.scan_iter(b"gc:{*}:later", count=2000):
        members: Any = raw.zrange(key, 0, -1)
        for member in members:
            _, host, value = member.decode().split("\n", 2)
            found.add(_place(host, value))
    return found


def retries_wait(client: redis.Redis) -> bool:
    """Return whether a task is to be tried again later by the node's time. Raises
    redis.RedisError."""
    for key in client.scan_iter("gc:{*}:later", count=2000):
        last: Any = client.zrange(key, -1, -1, withscores=True)
        (seconds, micros), offset = client.time(), client.hget("gc:owner", "offset")
        now_ms = int(seconds) * 1000 + int(micros) // 1000 + float(offset or 0)
        if any(score > now_ms for _, score in last):
            return True
    return False


def _place(host: str, value: str) -> str:
    return host.partition(":")[0] + _path(value)


def _path(value: str) -> str:
    """Return the part of a task after its level, its counts and the letter of its origin."""
    return value[value.index("h/") + 1 :]


def sample(node: str, client: redis.Redis, active: set[int]) -> Sample:
    """Take one sample of a node. Raises redis.RedisError."""
    began = time.monotonic()
    found = Sample(node, began)
    pipe = client.pipeline(transaction=False)
    pipe.time()
    pipe.hget("gc:owner", "offset")
    (seconds, micros), offset = pipe.execute()
    ended = time.monotonic()
    now_ms = int(seconds) * 1000 + int(micros) // 1000 + int(float(offset or 0))
    if ended - began < MOMENT_SECONDS and offset is not None:
        found.drift_seconds = now_ms / 1000 - (began + ended) / 2
    memory: Any = client.info("memory")
    found.used_bytes = int(memory["used_memory"])
    tokens, due = [], []
    for key in client.scan_iter("gc:{*}:s:*", count=2000):
        tokens.append(key)
    for key in client.scan_iter("gc:{*}:due:*", count=2000):
        if int(key.rpartition(":")[2]) in active:
            due.append(key)
    pipe = client.pipeline(transaction=False)
    for key in tokens:
        pipe.hmget(key, "crawl", "opened")
    for key in due:
        pipe.zrange(key, 0, 200, withscores=True)
    answers = pipe.execute()
    for key, (crawl, opened) in zip(tokens, answers, strict=False):
        if crawl is not None:
            token = key.rpartition(":s:")[2]
            found.sessions[token] = int(crawl)
            found.ages[token] = (now_ms - float(opened)) / 1000
    for hosts in answers[len(tokens) :]:
        for host, score in hosts:
            late = (now_ms - float(score)) / 1000
            found.overdue[host] = max(found.overdue.get(host, -1e9), late)
    found.seconds = time.monotonic() - began
    return found
