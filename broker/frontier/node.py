"""One Redis server as the frontier uses it: pooled connections, scripts, and a logical clock.

Every script call carries the ``run_id`` that was read on its own connection, so that a server which
came back older is noticed by whoever speaks to it next, though drivers reconnect in silence. The
driver never retries; LOADING, BUSY, READONLY, MISCONF and OOM mean "away", never "empty".
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from gevent.queue import Empty, LifoQueue
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, parse_url
from redis.exceptions import (
    BusyLoadingError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from broker.frontier import keys
from schema.clock import monotonic
from schema.errors import Unavailable
from schema.log import logger
from schema.settings import mask_url

log = logger("frontier")

LUA = Path(__file__).parent / "lua"
WRITES_AT_LIMIT = frozenset({"admit", "mark"})
"""Scripts that do not begin with DEL: at the memory limit Redis refuses them, and only them."""
_INCLUDE = re.compile(r"^-- include ([\w ]+)\n")


class Restarted(Unavailable):
    """Raised when the server runs under another run_id than the owner's: it must be reopened."""


class Full(Unavailable):
    """Raised when the server is at its memory limit: it takes nothing more, but lets go of all."""


class Moved(Unavailable):
    """Raised when a partition's epoch is not the caller's: read the placement again."""


def _scripts() -> dict[str, tuple[str, str]]:
    common = (LUA / "common.lua").read_text()
    found = {}
    for path in sorted(LUA.glob("*.lua")):
        if path.stem == "common":
            continue
        first = "false" if path.stem in WRITES_AT_LIMIT else "true"
        body = path.read_text()
        if included := _INCLUDE.match(body):
            parts = [(LUA / "lib" / f"{name}.lua").read_text() for name in included[1].split()]
            body = "".join(parts) + body
        text = f"local DEL_FIRST = {first}\n{common}{body}"
        found[path.stem] = (text, hashlib.sha1(text.encode()).hexdigest())
    return found


SCRIPTS = _scripts()
"""Script name → (text, SHA1)."""


class Node:
    """Connections to one server. Safe for many greenlets. All methods raise Unavailable."""

    def __init__(self, address: str, *, timeout_seconds: float = 10.0, pool: int = 32) -> None:
        self.address = address
        self.shown = mask_url(address)
        self.id = ""
        self.epoch = ""
        self.full = False
        """Near its memory limit, as :mod:`broker.frontier.memory` has found last."""
        self._timeout = timeout_seconds
        self._idle: LifoQueue[tuple[AbstractConnection, str]] = LifoQueue(pool)
        self._base_ms: float | None = None
        """Logical ms minus this machine's monotonic ms."""

    # -- connections

    def _connect(self, timeout: float | None) -> tuple[AbstractConnection, str]:
        options = dict(parse_url(self.address))
        kind = options.pop("connection_class", redis.Connection)
        connection: AbstractConnection = kind(
            **options,
            socket_timeout=timeout,
            socket_connect_timeout=5.0,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        connection.connect()
        info = self._ask(connection, "INFO", "server").decode()
        run = next(line[7:] for line in info.splitlines() if line.startswith("run_id:"))
        return connection, run

    @staticmethod
    def _ask(connection: AbstractConnection, *command: Any) -> Any:
        connection.send_packed_command(connection.pack_command(*command))
        return connection.read_response()

    @contextmanager
    def connection(self) -> Iterator[tuple[AbstractConnection, str]]:
        """A pooled connection and the run_id read on it; dropped if anything goes wrong on it."""
        try:
            try:
                held = self._idle.get_nowait()
            except Empty:
                held = self._connect(self._timeout)
        except (RedisError, OSError, StopIteration) as error:
            raise Unavailable(f"Redis at {self.shown} is away: {error}") from error
        whole = False
        try:
            yield held
            whole = True
        except (RedisError, OSError) as error:
            raise Unavailable(f"Redis at {self.shown} is away: {error}") from error
        finally:
            if whole and not self._idle.full():
                self._idle.put_nowait(held)
            else:
                held[0].disconnect()

    def command(self, *command: Any) -> Any:
        """One plain command; a reply as bytes, int, list or None."""
        with self.connection() as (connection, _):
            return self._ask(connection, *command)

    def run_id(self) -> str:
        """The server's run_id now, on a fresh connection."""
        self.close()
        with self.connection() as (_, run):
            return run

    def subscribe(self, channel: str) -> Iterator[bytes]:
        """Messages of a channel, for ever; the first is b"" once subscribed."""
        try:
            connection, _ = self._connect(None)
        except (RedisError, OSError, StopIteration) as error:
            raise Unavailable(f"Redis at {self.shown} is away: {error}") from error
        try:
            self._ask(connection, "SUBSCRIBE", channel)
            yield b""
            while True:
                yield connection.read_response()[2]
        except (RedisError, OSError) as error:
            raise Unavailable(f"Redis at {self.shown} is away: {error}") from error
        finally:
            connection.disconnect()

    def close(self) -> None:
        """Close idle connections; those in use close when they come back to a full pool."""
        while True:
            try:
                self._idle.get_nowait()[0].disconnect()
            except Empty:
                return

    # -- scripts

    def run(
        self, script: str, calls: Sequence[tuple[int, bytes]], *, timed: bool = True
    ) -> list[list[Any]]:
        """Run ``script`` once for each (partition, msgpack arguments), in one round trip.

        Replies come without their leading 'OK': ``[now, …]``; GONE and OLD come as
        ``[b'GONE']`` and ``[b'OLD', now]``. ``timed`` calls carry the logical time expected and
        are repeated once after the node's clock was set right. Raises Restarted, Moved,
        Unavailable; a call that raises may have been carried out: scripts are idempotent under
        their tokens and fingerprints.
        """
        replies = self._pipeline(script, calls, timed)
        late = [i for i, reply in enumerate(replies) if reply[0] == b"CLOCK"]
        if late:
            self._set_clock(replies[late[0]][1])
            again = self._pipeline(script, [calls[i] for i in late], timed)
            for i, reply in zip(late, again, strict=True):
                replies[i] = reply
        for i, reply in enumerate(replies):
            status = reply[0]
            if status == b"OK":
                replies[i] = reply[1:]
            elif status == b"WAIT":
                self.close()
                raise Restarted(f"Redis at {self.shown} is closed or was restarted")
            elif status == b"MOVED":
                raise Moved(f"Redis at {self.shown} has another epoch")
            elif status == b"CLOCK":
                raise Unavailable(f"the clock of Redis at {self.shown} does not stand still")
        if timed and replies and isinstance(replies[-1][0], int):
            self._base_ms = replies[-1][0] - monotonic() * 1000
        return replies

    def _pipeline(
        self, script: str, calls: Sequence[tuple[int, bytes]], timed: bool
    ) -> list[list[Any]]:
        text, sha = SCRIPTS[script]
        with self.connection() as (connection, run):
            replies = self._send(connection, sha, run, calls, timed)
            missing = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
            if missing:
                self._ask(connection, "SCRIPT", "LOAD", text)
                again = self._send(connection, sha, run, [calls[i] for i in missing], timed)
                for i, reply in zip(missing, again, strict=True):
                    replies[i] = reply
        for reply in replies:
            if isinstance(reply, Exception):
                raise _translated(reply, script, self.shown)
        return replies

    def _send(
        self,
        connection: AbstractConnection,
        sha: str,
        run: str,
        calls: Sequence[tuple[int, bytes]],
        timed: bool,
    ) -> list[Any]:
        expected = f"{self.now_ms():.0f}" if timed else ""
        connection.send_packed_command(
            [
                _packed(
                    "EVALSHA",
                    sha,
                    "2",
                    keys.partition(p),
                    keys.absent(p),
                    self.epoch,
                    run,
                    expected,
                    args,
                )
                for p, args in calls
            ]
        )
        replies: list[Any] = []
        for _ in calls:
            try:
                replies.append(connection.read_response())
            except ResponseError as error:  # this call's own; those behind it still answer
                replies.append(error)
        return replies

    # -- logical time

    def now_ms(self) -> float:
        """Logical time of this node as this process expects it, in ms."""
        if self._base_ms is None:
            seconds, micros = self.command("TIME")
            offset = int(self.command("HGET", keys.OWNER, "offset") or 0)
            self._base_ms = int(seconds) * 1000 + int(micros) / 1000 + offset - monotonic() * 1000
        return self._base_ms + monotonic() * 1000

    def _set_clock(self, shown_ms: int) -> None:
        """Make logical time what this process expects, by compare-and-set on the offset."""
        offset = self.command("HGET", keys.OWNER, "offset") or b"0"
        wanted = int(offset) + round(self.now_ms() - shown_ms)
        changed = self.command(
            "EVAL",
            "if redis.call('HGET', KEYS[1], 'offset') == ARGV[1] then "
            "redis.call('HSET', KEYS[1], 'offset', ARGV[2]) return 1 end return 0",
            1, keys.OWNER, offset, wanted,
        )  # fmt: skip
        log.warning("clock_set", node=self.shown, jump_ms=wanted - int(offset), mine=bool(changed))
        if not changed:  # another broker was first: take the time it set
            self._base_ms = None

    def owner(self) -> dict[str, str]:
        """The node's owner record; empty for a server that holds no frontier."""
        flat = self.command("HGETALL", keys.OWNER)
        text = [part.decode() for part in flat]
        return dict(zip(text[::2], text[1::2], strict=True))

    def adopt(self, owner: dict[str, str]) -> None:
        """Take id and epoch from an owner record. Raises Unavailable if there is none (yet)."""
        if not owner:
            raise Unavailable(f"Redis at {self.shown} is empty: waiting for a broker to open it")
        self.id, self.epoch = owner["id"], owner["epoch"]
        self._base_ms = None


AWAY = ("LOADING", "BUSY", "READONLY", "MISCONF", "NOREPLICAS", "TRYAGAIN", "CLUSTERDOWN")
AWAY_TYPES = (BusyLoadingError, ReadOnlyError)
"""The driver cuts the code off the text of those errors for which it has a class."""


def _translated(error: Exception, script: str, shown: str) -> Exception:
    """What a script's error means: the server is away, or the script is wrong."""
    text = str(error)
    if "MISCONF" in text:  # it refuses writes that it cannot put on disk
        return Unavailable(f"Redis at {shown} cannot write to its disk: is it full? ({text})")
    if isinstance(error, OutOfMemoryError) or "OOM" in text:
        return Full(f"Redis at {shown} is at its memory limit: {text}")
    if isinstance(error, AWAY_TYPES) or any(word in text for word in AWAY):
        return Unavailable(f"Redis at {shown} is away: {text}")
    return RuntimeError(f"script {script} failed: {text}")


def _packed(*parts: str | bytes) -> bytes:
    """One command in the Redis protocol."""
    out = [b"*%d\r\n" % len(parts)]
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        out.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(out)
