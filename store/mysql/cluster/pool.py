"""Connections of this process to one server of a store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pymysql
from gevent.lock import BoundedSemaphore
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from greencrawl.schema.clock import monotonic
from greencrawl.store.errors import Closed
from greencrawl.store.mysql.cluster.topology import Server, Topology
from greencrawl.store.mysql.connection import ANSWER_SECONDS, connect

CONNECTIONS = 8
"""A process has at most this many connections to one server."""
IDLE_SECONDS = 30.0
"""A connection that was idle for longer is tested before it is used."""


class Pool:
    """Connections to one server, the latest used first; a broken one is closed, not kept."""

    def __init__(
        self, topology: Topology, server: Server, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        self._topology = topology
        self._answer_seconds = answer_seconds
        self.server = server
        self._places = BoundedSemaphore(CONNECTIONS)
        self._idle: list[tuple[float, Connection[Cursor]]] = []
        self._generation = 0
        self._process = os.getpid()
        self._closed = False

    @contextmanager
    def connection(self, seconds: float = ANSWER_SECONDS) -> Iterator[Connection[Cursor]]:
        """Give a connection, waiting for one if all are in use. Raises Unavailable, Closed.

        A statement on it may take ``seconds``. The connection is closed, and not used again, if the
        block raises.
        """
        if self._closed or self._process != os.getpid():
            raise Closed("the store is closed, or was opened by another process")
        with self._places:
            generation = self._generation
            connection = self._take()
            connection._read_timeout = seconds  # type: ignore[attr-defined]
            try:
                yield connection
            except BaseException:
                drop(connection)
                raise
            if self._closed or generation != self._generation:
                drop(connection)
            else:
                self._idle.append((monotonic(), connection))

    def _take(self) -> Connection[Cursor]:
        while self._idle:
            since, connection = self._idle.pop()
            if monotonic() - since < IDLE_SECONDS:
                return connection
            try:
                connection.ping(reconnect=False)
            except (pymysql.MySQLError, OSError):
                drop(connection)
            else:
                return connection
        return connect(self._topology, self.server, answer_seconds=self._answer_seconds)

    def forget(self) -> None:
        """Use none of the present connections again: the server was restarted or changed."""
        self._generation += 1
        while self._idle:
            drop(self._idle.pop()[1])

    def close(self) -> None:
        """Close idle connections; connections in use close when they are given back."""
        self._closed = True
        self.forget()


def drop(connection: Connection[Cursor]) -> None:
    """Close a connection without telling its server, which may not answer."""
    connection._force_close()  # type: ignore[attr-defined]  # close() would wait for the server
