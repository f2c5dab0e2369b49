"""Where a statement goes: to the server that takes writes, or to a replica that is near enough.

With one master there is nothing to choose. With two, the one whose ``fence`` row is open under the
highest epoch takes writes, and every transaction reads that row under a shared lock: after a
takeover has closed it, whoever still believed in it is refused and looks again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pymysql
from gevent.lock import BoundedSemaphore
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from schema.errors import Unavailable
from store.errors import Closed
from store.mysql.connection import AGAIN, Db, code_of, connect, translate
from store.mysql.topology import Server, Topology

T = TypeVar("T")

CONNECTIONS = 8
"""To one server from one process, at most."""
IDLE_SECONDS = 60.0
"""A connection that rested for longer is asked whether it lives before it is used."""
TRIES = 8
"""Runs of a transaction that meets others' locks."""


class Pool:
    """Connections to one server, the latest used first; a broken one is closed, not kept."""

    def __init__(self, topology: Topology, server: Server) -> None:
        self._topology = topology
        self.server = server
        self._places = BoundedSemaphore(CONNECTIONS)
        self._idle: list[tuple[float, Connection[Cursor]]] = []
        self._process = os.getpid()
        self._closed = False

    @contextmanager
    def connection(self) -> Iterator[Connection[Cursor]]:
        """A connection, waiting for one if all are in use. Raises Unavailable, Closed.

        It is closed, and not used again, if anything but a value comes out of the block.
        """
        if self._closed or self._process != os.getpid():
            raise Closed("the store is closed, or was opened by another process")
        with self._places:
            connection = self._take()
            try:
                yield connection
            except BaseException:
                _drop(connection)
                raise
            if self._closed:
                _drop(connection)
            else:
                self._idle.append((time.monotonic(), connection))

    def _take(self) -> Connection[Cursor]:
        while self._idle:
            since, connection = self._idle.pop()
            if time.monotonic() - since < IDLE_SECONDS:
                return connection
            try:
                connection.ping(reconnect=False)
            except (pymysql.MySQLError, OSError):
                _drop(connection)
            else:
                return connection
        return connect(self._topology, self.server)

    def forget(self) -> None:
        """Close all that rest: the server may have been started anew."""
        while self._idle:
            _drop(self._idle.pop()[1])

    def close(self) -> None:
        self._closed = True
        self.forget()


def _drop(connection: Connection[Cursor]) -> None:
    connection._force_close()  # type: ignore[attr-defined]  # close() would wait for the server


class Cluster:
    """The servers of a store. Work is a function of a cursor; it is run again after a deadlock."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._pools = {server: Pool(topology, server) for server in topology.servers}

    def write(self, work: Callable[[Db], T]) -> T:
        """Run ``work`` in a transaction of the server that takes writes; durable on return.

        Raises what ``work`` raises, after a roll-back, pymysql's errors for what is in a record,
        and Unavailable – when the commit may have happened all the same.
        """
        for left in reversed(range(TRIES)):
            try:
                return self._write(self.topology.masters[0], work)
            except pymysql.MySQLError as error:
                if code_of(error) not in AGAIN or not left:
                    raise
        raise AssertionError("unreachable")

    def _write(self, server: Server, work: Callable[[Db], T]) -> T:
        with self._translated(server), self._pools[server].connection() as connection:
            connection.begin()
            try:
                with connection.cursor() as db:
                    result = work(db)
                connection.commit()
            except Exception:
                connection.rollback()
                raise
        return result

    def read(self, work: Callable[[Db], T]) -> T:
        """Run ``work``, which changes nothing, on the server that takes writes."""
        return self._read(self.topology.masters[0], work)

    def scan(self, work: Callable[[Db], T]) -> T:
        """Run ``work`` on a replica within the lag bound, or else where :meth:`read` does."""
        return self.read(work)

    def _read(self, server: Server, work: Callable[[Db], T]) -> T:
        with (
            self._translated(server),
            self._pools[server].connection() as connection,
            connection.cursor() as db,
        ):
            return work(db)

    @contextmanager
    def _translated(self, server: Server) -> Iterator[None]:
        try:
            yield
        except (pymysql.MySQLError, OSError) as error:
            ours = None if code_of(error) in AGAIN else translate(error, server)
            if ours is None:
                raise
            if isinstance(ours, Unavailable):
                self._pools[server].forget()
            raise ours from error

    def close(self) -> None:
        """Close all connections. Idempotent."""
        for pool in self._pools.values():
            pool.close()
