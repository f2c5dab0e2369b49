"""One Redis server as the frontier uses it: pooled connections, scripts, and a logical clock.

Every script call carries the ``run_id`` that was read on its own connection. Drivers reconnect
silently. So the run_id shows the next caller that the server was restarted, perhaps with older
data. The driver never retries; LOADING, BUSY, READONLY, MISCONF and OOM mean "away", never "empty".
A server that gives no answer at all is not called until it does
(:mod:`greencrawl.broker.frontier.nodes.breaker`).
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import redis
from gevent.queue import Empty, LifoQueue
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, parse_url
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as NoAnswer
from redis.retry import Retry

from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.breaker import Breaker
from greencrawl.broker.frontier.nodes.clock import LATE_MS, TOLERANCE_MS, Exchange, NodeClock
from greencrawl.broker.frontier.nodes.failures import (
    FULL_DISK,
    Fenced,
    Moved,
    Restarted,
    full_disk_text,
    translated,
)
from greencrawl.broker.frontier.nodes.lua_scripts import NO_SIGN, SCRIPTS, UNTIMED
from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import DutyLost, Unavailable
from greencrawl.schema.log import logger
from greencrawl.schema.records import Duty
from greencrawl.schema.settings import mask_url

log = logger("frontier")

REPEATS = 2
"""How often a call that found an unexpected time is repeated. The first repetition allows for how
late calls are, the second for how late they may be."""
TIMEOUT_SECONDS = 2.0
"""Seconds for an answer, and for a connection: a node that hangs costs this once."""


class Node:
    """Connections to one server. Safe for many greenlets. All methods raise Unavailable."""

    def __init__(
        self, address: str, *, timeout_seconds: float = TIMEOUT_SECONDS, pool: int = 32
    ) -> None:
        self.address = address
        self.shown = mask_url(address)
        self.id = ""
        self.epoch = ""
        self.gap_seconds = 15.0
        """The longest pause between two calls of brokers that is no outage."""
        self.tick = 0
        """The node's tick as it was last seen."""
        self.owed = False
        """True if a replay was not complete when the node last answered."""
        self.full = False
        """True if the node is near its memory limit, as ``greencrawl.broker.frontier.nodes.memory``
        has found."""
        self._timeout = timeout_seconds
        self.breaker = Breaker(self.shown, self.ask)
        self._idle: LifoQueue[tuple[AbstractConnection, str]] = LifoQueue(pool)
        self._busy: set[AbstractConnection] = set()
        """Connections on which a greenlet waits."""
        self._generation = 0
        """Rises with :meth:`close`: older connections are not used again."""
        self.clock = NodeClock(self.timed_command, self.shown)

    # -- connections

    def _connect(self) -> tuple[AbstractConnection, str]:
        options = dict(parse_url(self.address))
        kind = options.pop("connection_class", redis.Connection)
        connection: AbstractConnection = kind(
            **options,
            socket_timeout=self._timeout,
            socket_connect_timeout=self._timeout,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        self._busy.add(connection)
        try:
            connection.connect()
            info = self._ask(connection, "INFO", "server").decode()
        except BaseException:
            self._busy.discard(connection)
            connection.disconnect()
            raise
        run = next(line[7:] for line in info.splitlines() if line.startswith("run_id:"))
        self.breaker.connected()
        return connection, run

    def ask(self) -> None:
        """Ask whether the server answers now, on a connection of its own. Raises Unavailable if it
        does not."""
        try:
            connection, _ = self._connect()
            try:
                self._ask(connection, "PING")
            finally:
                self._busy.discard(connection)
                connection.disconnect()
        except (NoConnection, NoAnswer, OSError, StopIteration) as error:
            raise self._unavailable(error) from error
        except RedisError:
            return  # it refuses, for some reason, but it answers

    def _unavailable(self, error: Exception) -> Unavailable:
        if FULL_DISK in str(error):
            return Unavailable(full_disk_text(self.shown))
        return Unavailable(f"Redis at {self.shown} is away: {error}")

    def _failed(self, error: Exception) -> Unavailable:
        """Return the error to raise for a call that got no answer, or an error.

        Without an answer, all other calls that wait for one stop waiting.
        """
        unavailable = self._unavailable(error)
        if isinstance(error, NO_ANSWER) and self.breaker.trip(str(unavailable)):
            for connection in self._busy:
                held: socket.socket | None = getattr(connection, "_sock", None)
                if held is not None:
                    with suppress(OSError):  # it was closed at the other end
                        held.shutdown(socket.SHUT_RDWR)
        return unavailable

    @staticmethod
    def _ask(connection: AbstractConnection, *command: Any) -> Any:
        connection.send_packed_command(connection.pack_command(*command))
        return connection.read_response()

    @contextmanager
    def connection(self) -> Iterator[tuple[AbstractConnection, str]]:
        """Give a pooled connection and the run_id read on it; drop it if anything fails on it.

        Raises Away while the node is known to give no answer.
        """
        self.breaker.check()
        generation = self._generation
        try:
            try:
                held = self._idle.get_nowait()
                self._busy.add(held[0])
            except Empty:
                held = self._connect()
        except (RedisError, OSError, StopIteration) as error:
            raise self._failed(error) from error
        whole = False
        try:
            yield held
            whole = True
        except (RedisError, OSError) as error:
            self.close()  # the server has gone, and idle connections with it
            raise self._failed(error) from error
        finally:
            self._busy.discard(held[0])
            if whole and generation == self._generation and not self._idle.full():
                self._idle.put_nowait(held)
            else:
                held[0].disconnect()

    def command(self, *command: Any) -> Any:
        """Run one plain command; the reply is bytes, int, list or None."""
        with self.connection() as (connection, _):
            return self._ask(connection, *command)

    def run_id(self) -> str:
        """Return the server's run_id now, on a fresh connection."""
        self.close()
        with self.connection() as (_, run):
            return run

    def subscribe(self, channel: str) -> Iterator[bytes]:
        """Yield messages of a channel, for ever; the first is b"" once subscribed."""
        self.breaker.check()
        try:
            connection, _ = self._connect()
        except (RedisError, OSError, StopIteration) as error:
            raise self._failed(error) from error
        try:
            self._ask(connection, "SUBSCRIBE", channel)
            yield b""
            waiting: socket.socket | None = getattr(connection, "_sock", None)
            if waiting is not None:
                waiting.settimeout(None)  # the next message may come late
            while True:
                yield connection.read_response()[2]
        except (RedisError, OSError) as error:
            raise self._failed(error) from error
        finally:
            self._busy.discard(connection)
            connection.disconnect()

    def close(self) -> None:
        """Close idle connections; those in use close when they come back."""
        self._generation += 1
        while True:
            try:
                self._idle.get_nowait()[0].disconnect()
            except Empty:
                return

    # -- scripts

    def run(
        self,
        script: str,
        calls: Sequence[tuple[int, bytes]],
        duty: Duty | None = None,
        *,
        heartbeat: bool = True,
    ) -> list[list[Any]]:
        """Run ``script`` once for each (partition, msgpack arguments), in one round trip.

        Under a ``duty`` nothing is done, and DutyLost raised, if another broker has taken it.

        Replies come without their leading 'OK': ``[now, …]``; GONE, OLD and DONE come as
        ``[b'GONE']``, ``[b'OLD', now]`` and ``[b'DONE', now, version]``. Calls of scripts other
        than :data:`UNTIMED` carry the expected logical time. If a script finds another time, the
        clocks are compared and the call is repeated. Raises Restarted, Moved, Unavailable. A call
        that raises may have been carried out: scripts are idempotent under their tokens and
        fingerprints. A call without ``heartbeat`` is no sign that a broker lives; a broker's
        scripts then carry no time.
        """
        timed = script not in UNTIMED and (heartbeat or script in NO_SIGN)
        if timed:
            self.clock.prepare()
        replies, shown = self._pipeline(script, calls, LATE_MS if timed else None, duty)
        last = len(calls) - 1  # ``shown`` is the exchange of this call
        for repeat in range(REPEATS):
            late = [i for i, reply in enumerate(replies) if reply[0] == b"CLOCK"]
            if not late:
                break
            _, now_ms, jumps = replies[late[-1]]
            late_ms = self.clock.settle(shown.at(now_ms, int(jumps)))
            late_ms = TOLERANCE_MS if repeat else late_ms
            again, shown = self._pipeline(script, [calls[i] for i in late], late_ms, duty)
            for i, reply in zip(late, again, strict=True):
                replies[i] = reply
            last = late[-1]
        for i, reply in enumerate(replies):
            status = reply[0]
            if status == b"OK":
                replies[i] = reply[1:]
            elif status == b"WAIT":
                self.close()
                raise Restarted(f"Redis at {self.shown} is closed or was restarted")
            elif status == b"MOVED":
                raise Moved(f"Redis at {self.shown} has another epoch")
            elif status == b"OLD_DUTY":
                raise DutyLost(f"another broker has taken the duty {duty.name if duty else ''}")
            elif status == b"CLOCK":
                raise Unavailable(f"the clock of Redis at {self.shown} does not stand still")
        if timed and replies and isinstance(replies[last][0], int):
            self.clock.follow(shown.at(replies[last][0]))
        return replies

    def _pipeline(
        self,
        script: str,
        calls: Sequence[tuple[int, bytes]],
        late_ms: float | None,
        duty: Duty | None,
    ) -> tuple[list[list[Any]], Exchange]:
        """Send the calls; ``late_ms`` is how late they may find the node; None: they expect no
        time."""
        called = SCRIPTS[script]
        under = () if duty is None else (duty.name, str(duty.epoch))
        with self.connection() as (connection, run):
            replies, when = self._send(connection, called.sha, run, calls, late_ms, under)
            missing = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
            if missing:
                self._ask(connection, "SCRIPT", "LOAD", called.text)
                some = [calls[i] for i in missing]
                again, then = self._send(connection, called.sha, run, some, late_ms, under)
                when = then._replace(sent=when.sent)  # other calls ran before
                for i, reply in zip(missing, again, strict=True):
                    replies[i] = reply
        for reply in replies:
            if isinstance(reply, Exception):
                raise translated(reply, script, self.shown)
        return replies, when

    def _send(
        self,
        connection: AbstractConnection,
        sha: str,
        run: str,
        calls: Sequence[tuple[int, bytes]],
        late_ms: float | None,
        under: tuple[str, ...],
    ) -> tuple[list[Any], Exchange]:
        jumps, sent = self.clock.jumps, monotonic()
        window = ("", "")
        if late_ms is not None:
            least_ms, most_ms = self.clock.window_ms(late_ms)
            window = f"{least_ms:.0f}", f"{most_ms:.0f}"
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
                    window[0],
                    args,
                    str(jumps),
                    window[1],
                    *under,
                )
                for p, args in calls
            ]
        )
        replies: list[Any] = []
        for _ in calls:
            try:
                replies.append(connection.read_response())
            # this call's own error; the calls after it still get their answers
            except ResponseError as error:
                replies.append(error)
        return replies, Exchange(sent, monotonic(), jumps)

    def timed_command(self, *command: Any) -> tuple[Any, Exchange]:
        """Run :meth:`command`; return its reply, and when it was sent and the reply read."""
        with self.connection() as (connection, _):
            sent = monotonic()
            return self._ask(connection, *command), Exchange(sent, monotonic())

    def now_ms(self) -> float:
        """Return the logical time of this node as this process expects it, in ms."""
        return self.clock.now_ms()

    # -- identity

    def owner(self) -> dict[str, str]:
        """Return the node's owner record; empty for a server that holds no frontier.

        A record without an id does not count: the server had come back empty when a broker wrote a
        budget or a time into the record that it knew.
        """
        flat = self.command("HGETALL", keys.OWNER)
        text = [part.decode() for part in flat]
        owner = dict(zip(text[::2], text[1::2], strict=True))
        return owner if "id" in owner else {}

    def adopt(self, owner: dict[str, str]) -> None:
        """Take over id and epoch from an owner record. Raises Unavailable if there is none
        (yet)."""
        if not owner:
            raise Unavailable(f"Redis at {self.shown} is empty: waiting for a broker to open it")
        if self.id not in ("", owner["id"]):
            raise Unavailable(
                f"Redis at {self.shown} is not the node that stood there before: start this again"
            )
        if (self.id, self.epoch) != (owner["id"], owner["epoch"]):
            # otherwise we know its time already, even if its clock was set since
            self.clock.forget()
        self.id, self.epoch = owner["id"], owner["epoch"]
        self.gap_seconds = int(owner.get("gap", 15_000)) / 1000
        self.tick = int(owner["tick"])

    def follow(self, epoch: int) -> None:
        """Check that this is the server to which the store's ``epoch`` of the node belongs.

        Raises Fenced while it is an earlier one: its data may be outdated.
        """
        if int(self.epoch or 0) < epoch:
            self.close()
            self.adopt(self.owner())
            if int(self.epoch) < epoch:
                raise Fenced(f"Redis at {self.shown} is not the one of epoch {epoch} (yet)")


NO_ANSWER = (NoConnection, NoAnswer, OSError, StopIteration)
"""Errors that mean no answer; LOADING is among them, since the driver takes it for a lost
connection."""


def _packed(*parts: str | bytes) -> bytes:
    """Return one command in the Redis protocol."""
    out = [b"*%d\r\n" % len(parts)]
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        out.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(out)
