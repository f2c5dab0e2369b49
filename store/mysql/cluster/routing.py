"""Routes each statement to the server that takes writes, or to a replica that lags little.

With one master there is nothing to choose. With two, the master whose ``fence`` row is open under
the highest epoch takes writes. Every transaction reads that row under a shared lock. So a planned
takeover waits for running transactions. A process that still uses the old writer is refused, and
looks for the new one. If a takeover could not reach the old writer, its commits get no
acknowledgement.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import NamedTuple, TypeVar

import gevent
import pymysql
from gevent.lock import BoundedSemaphore

from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import GreencrawlError, InvalidConfig, Unavailable
from greencrawl.store.mysql.cluster import gtid
from greencrawl.store.mysql.cluster.gtid import Position
from greencrawl.store.mysql.cluster.lag import LagHistory
from greencrawl.store.mysql.cluster.observe import together
from greencrawl.store.mysql.cluster.pool import Pool, drop
from greencrawl.store.mysql.cluster.topology import Server, Topology
from greencrawl.store.mysql.connection import (
    AGAIN,
    ANSWER_SECONDS,
    LONG_SECONDS,
    Db,
    code_of,
    connect,
    is_gone,
    translate,
)

T = TypeVar("T")

LOOK_SECONDS = 2.0
"""A server that is silent for longer is no candidate when the writer is looked for."""
CAUGHT_UP_SECONDS = 1.0
"""A replica that did not lag is trusted for this long."""
TRIES = 8
"""How often a transaction is run if it meets others' locks."""
APART_SECONDS = 0.002
"""About the longest pause before the second run; the pause doubles with each further run."""

_UNKNOWN_VARIABLE = 1193
_UNFORMED = frozenset({1049, 1146})
"""There is no database, or no fence."""

_PARTING = frozenset({1053, 1927})
"""The server shuts down, or the connection was killed."""

_FENCE = "SELECT epoch, open, @@global.read_only, @@session.gtid_domain_id FROM fence"


class Route(NamedTuple):
    """The server that takes writes, and its epoch; 0 if there is one master and no fence."""

    server: Server
    epoch: int


class _Fenced(Unavailable):
    """Raised when the route is outdated."""


class Cluster:
    """The servers of a store. Work is a function of a cursor; it is run again after a deadlock."""

    def __init__(self, topology: Topology, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        """Open no connection yet; a server that does not answer for ``answer_seconds`` is away."""
        self.topology = topology
        self._pools = {
            server: Pool(topology, server, answer_seconds) for server in topology.servers
        }
        self._found: Route | None = None
        self._looking = BoundedSemaphore(1)
        self._turn = count()
        self._history = LagHistory()
        self._caught_up: dict[Server, tuple[float, Position]] = {}
        self._first: Callable[[Db], None] | None = None

    def checking(self, check: Callable[[Db], None]) -> Cluster:
        """Return this cluster with a ``check`` that its writing transactions call first.

        Do not close it.
        """
        checked = copy.copy(self)
        checked._first = check
        return checked

    # -- work

    def write(self, work: Callable[[Db], T], *, seconds: float = ANSWER_SECONDS) -> T:
        """Run ``work`` in a transaction of the server that takes writes; durable on return.

        ``seconds`` is how long one statement of ``work`` may take. After a roll-back it raises what
        ``work`` raises, errors of pymysql if a record is at fault, and Unavailable. After
        Unavailable the commit may have happened or not.
        """
        return self._run(lambda db, _: work(db), seconds)

    def alter(self, work: Callable[[Db, Callable[[], None]], T], *, seconds: float) -> T:
        """Run statements that commit by themselves, and so release the fence.

        ``work`` gets a function and calls it before each statement. The function begins a
        transaction that holds the fence again. If another server takes writes by now, the function
        raises Unavailable, and ``work`` is run again. The statement itself is not protected: it
        begins with a commit, and from then on no takeover waits for it. But a server cannot be
        closed (``read_only``) before the statement has ended.
        """
        return self._run(work, seconds)

    def _run(self, work: Callable[[Db, Callable[[], None]], T], seconds: float) -> T:
        for left in reversed(range(TRIES)):
            try:
                return self._write(self._route(), work, seconds)
            except _Fenced:
                if not left:
                    raise
            except pymysql.MySQLError as error:
                if code_of(error) not in AGAIN:
                    raise
                if not left:  # no record is to blame: the same work succeeds later
                    raise Unavailable(f"met others' locks {TRIES} times: {error}") from error
            # Transactions that met must not meet again.
            gevent.sleep(random.uniform(0, APART_SECONDS * 2 ** (TRIES - left)))
        raise AssertionError("unreachable")

    def _write(
        self, route: Route, work: Callable[[Db, Callable[[], None]], T], seconds: float
    ) -> T:
        with self._checked(route), self._pools[route.server].connection(seconds) as connection:
            try:
                with connection.cursor() as db:

                    def begin() -> None:
                        connection.begin()
                        self._check(db, route, " LOCK IN SHARE MODE")
                        if self._first is not None:
                            self._first(db)

                    begin()
                    result = work(db, begin)
                connection.commit()
            except (pymysql.MySQLError, GreencrawlError, ValueError, LookupError):
                if connection.open:
                    connection.rollback()
                raise
        return result

    def read(self, work: Callable[[Db], T], *, seconds: float = ANSWER_SECONDS) -> T:
        """Run ``work``, which changes nothing, on the server that takes writes."""
        try:
            return self._read(self._route(), work, seconds)
        except _Fenced:
            return self._read(self._route(), work, seconds)

    def scan(self, work: Callable[[Db], T]) -> T:
        """Run ``work`` on a replica within the lag bound, otherwise like :meth:`read`."""
        return self.stream()(work)

    def stream(self) -> Callable[[Callable[[Db], T]], T]:
        """Return a :meth:`scan` for the parts of a stream that begins now.

        All parts come from one replica, which has all that was stored before. If this replica
        fails, the rest comes from the server that takes writes. Another replica could be older, and
        miss a row that has moved to the end of the stream.
        """
        server = next(self._replicas_caught_up(self._position() or {}), None)

        def scan(work: Callable[[Db], T]) -> T:
            nonlocal server
            if server is not None:
                try:
                    return self._read(Route(server, 0), work, LONG_SECONDS)
                except Unavailable:
                    self._caught_up.pop(server, None)
                    server = None
            return self.read(work, seconds=LONG_SECONDS)

        return scan

    def _position(self) -> Position | None:
        """Return the writer's position; None if there are no replicas to compare."""
        if not self.topology.replicas:
            return None
        try:
            return self.read(_position_of("gtid_binlog_pos"))
        except Unavailable as error:
            if code_of(error.__cause__ or error) == _UNKNOWN_VARIABLE:
                return None  # MySQL has other positions: its replicas are not read
            raise

    def _read(self, route: Route, work: Callable[[Db], T], seconds: float = ANSWER_SECONDS) -> T:
        with (
            self._checked(route),
            self._pools[route.server].connection(seconds) as connection,
            connection.cursor() as db,
        ):
            self._check(db, route, "")
            return work(db)

    @contextmanager
    def _checked(self, route: Route) -> Iterator[None]:
        """Translate errors; if an error means that the server is away, the writer is looked for
        again.

        A server that answers with an error stays the writer, for example if a lock was held too
        long.
        """
        try:
            yield
        except Unavailable as error:
            if isinstance(error, _Fenced) or _parted(error.__cause__ or error):
                self._lost(route)
            raise
        except (pymysql.MySQLError, OSError) as error:
            ours = None if code_of(error) in AGAIN else translate(error, route.server)
            if ours is None:
                raise
            if _parted(error):
                self._lost(route)
            raise ours from error

    def _lost(self, route: Route) -> None:
        self._pools[route.server].forget()
        if self._found == route:
            self._found = None

    # -- who takes writes

    def _check(self, db: Db, route: Route, lock: str) -> None:
        """Raise _Fenced if the server does not take writes of the route's epoch any more."""
        if not route.epoch:
            return
        db.execute(_FENCE + lock)
        row = db.fetchone()
        if row is None or not row[1] or row[2] or row[0] != route.epoch:
            raise _Fenced(f"{route.server} takes no writes of epoch {route.epoch} any more")
        if row[3] != route.epoch:  # a session keeps the domain that was set at its start
            raise _Fenced(f"a connection to {route.server} is older than epoch {route.epoch}")

    def _route(self) -> Route:
        """Return the route to the writer. Raises Unavailable if no master takes writes."""
        if not self.topology.ring:
            return Route(self.topology.masters[0], 0)
        with self._looking:
            if self._found is None:
                self._found = self._look()
            return self._found

    def _look(self) -> Route:
        def ask(server: Server) -> Route:
            try:
                connection = connect(self.topology, server, answer_seconds=LOOK_SECONDS)
                try:
                    with connection.cursor() as db:
                        db.execute(_FENCE)
                        row = db.fetchone()
                finally:
                    drop(connection)
            except (pymysql.MySQLError, OSError, InvalidConfig) as error:
                if code_of(error.__cause__ or error) in _UNFORMED:
                    what = f"{server} is in no store yet: greencrawl store form"
                    raise InvalidConfig([("GREENCRAWL_STORE", what)]) from error
                if isinstance(error, InvalidConfig):
                    raise
                raise (translate(error, server) or error) from error
            if row is None or not row[1] or row[2]:
                raise Unavailable(f"{server} takes no writes")
            return Route(server, row[0])

        masters = self.topology.masters
        found = together([partial(ask, one) for one in masters])
        routes = [one for one in found if isinstance(one, Route)]
        if routes:
            route = max(routes, key=lambda one: one.epoch)
            self._pools[route.server].forget()
            return route
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, GreencrawlError):
                raise one
        mistakes = [one for one in found if isinstance(one, InvalidConfig)]
        # While the other master is only away, a master that is being set up is not a wrong
        # configuration.
        if len(mistakes) == len(found):
            raise mistakes[0]
        raise Unavailable(
            "; ".join(str(one) for one in found) + " (greencrawl store status says why)"
        )

    # -- replicas

    def _replicas_caught_up(self, covering: Position) -> Iterator[Server]:
        """Return replicas within the lag bound that have all transactions up to ``covering``, in
        turn."""
        replicas = self.topology.replicas
        start = next(self._turn)
        for index in range(len(replicas)):
            server = replicas[(start + index) % len(replicas)]
            since, here = self._caught_up.get(server, (-CAUGHT_UP_SECONDS, {}))
            if monotonic() - since >= CAUGHT_UP_SECONDS or not gtid.covers(here, covering):
                try:
                    found = self._position_if_caught_up(server)
                except Unavailable:
                    continue
                if found is None or not gtid.covers(found, covering):
                    continue
                self._caught_up[server] = (monotonic(), found)
            yield server

    def lags(self) -> dict[str, float | None]:
        """Return replica → seconds that it lags at most; None where that is not known.

        Raises Unavailable without a writer.
        """
        noted = self._position()
        if noted is None:
            return {}
        self._history.add(noted)

        def lag(server: Server) -> float | None:
            try:
                here = self._read(Route(server, 0), _position_of("gtid_slave_pos"))
            except Unavailable:
                return None
            return self._history.lag_seconds(here)

        return {str(server): lag(server) for server in self.topology.replicas}

    def _position_if_caught_up(self, server: Server) -> Position | None:
        """Return where a replica is; None if it lags more than the bound."""
        if self._history.age_seconds() > CAUGHT_UP_SECONDS / 2:
            noted = self._position()
            if noted is None:
                return None
            self._history.add(noted)
        here = self._read(Route(server, 0), _position_of("gtid_slave_pos"))
        lag = self._history.lag_seconds(here)
        return here if lag is not None and lag <= self.topology.lag_seconds else None

    def close(self) -> None:
        """Close all connections. Idempotent."""
        for pool in self._pools.values():
            pool.close()


def _parted(error: BaseException) -> bool:
    """Return whether the connection is lost: the server is away, shuts down or has closed it."""
    return is_gone(error) or code_of(error) in _PARTING


def _position_of(variable: str) -> Callable[[Db], Position]:
    def ask(db: Db) -> Position:
        db.execute(f"SELECT @@global.{variable}")
        row = db.fetchone()
        return gtid.parse(str(row[0])) if row else {}

    return ask
