"""The rig of ``make cluster-faults``: that of ``make faults``, with content on five real servers.

A worker notes each URL whose commit was acknowledged. In addition to the rules of ``faultrig.py``,
these hold: every acknowledged URL is on the server that takes writes in the end; its binary log
holds no transaction of an older epoch behind one of a newer, and those of an epoch from one server
only; and once all servers have what the writer has, CHECKSUM TABLE says the same of each replicated
table everywhere.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from greencrawl.schema.errors import GreencrawlError
from greencrawl.store.mysql.cluster.local.cluster import DATABASE, MASTERS, NAMES, LocalCluster
from greencrawl.store.mysql.cluster.steward import by_hand
from greencrawl.store.mysql.cluster.steward.servers import Report
from greencrawl.store.mysql.cluster.steward.steward import Steward
from greencrawl.store.steward import steward_of
from tests.support.faultrig import Fault, Result, Rig, Say, run
from tests.support.mariadb import local_cluster
from tests.support.system import wait_until

ANSWER_SECONDS = 3.0
SETTLE_SECONDS = 60.0
OWN_TABLES = frozenset({"votes", "fence"})
"""Tables that are not replicated."""
POINT = "worker.committed"

_GTID = re.compile(rb"GTID (\d+)-(\d+)-(\d+)")


class ClusterRig(Rig):
    """``cluster`` is made in ``prepare`` by :meth:`make`; the methods ask it directly, without our
    code."""

    cluster: LocalCluster
    steward: Steward

    def __init__(self, fault: Fault, folder: Path, say: Say = print) -> None:
        super().__init__(fault, folder, say)
        self.acked_log = folder / "acknowledged"
        self._seen: set[str] = set()
        self._seen_at = 0.0

    def start(self) -> None:
        """Start all. Ports are chosen first, because ``prepare`` may put proxies before them, or
        mount folders."""
        self.cluster = local_cluster(self.folder / "c")
        self.use(self.cluster.url())
        super().start()

    def form(self) -> None:
        """Start the servers, and form one store of them."""
        self.stack.callback(self.cluster.stop)
        self.cluster.start()
        by_hand.form(self.steward)

    def use(self, url: str) -> None:
        """Set the URL for Greencrawl and for our own queries."""
        self.settings["store"] = url
        self.settings["store_steward"] = self.cluster.steward
        steward = steward_of(url, self.cluster.steward)
        assert steward is not None
        self.stack.callback(steward.close)
        self.steward = steward

    def start_system(self) -> None:
        """Start a system whose worker notes acknowledged URLs."""
        self.system.start_broker()
        self.system.start_worker(f"{POINT}>{self.acked_log.absolute()}")

    # -- the servers

    @contextmanager
    def asking(self, name: str, *, text: bool = True) -> Iterator[Cursor]:
        """Yield a cursor as root, with a short time-out."""
        connection: Connection[Cursor] = pymysql.connect(
            unix_socket=str(self.cluster.servers[name].socket), user="root",
            password=self.cluster.root_password, database=DATABASE, autocommit=True,
            use_unicode=text, connect_timeout=ANSWER_SECONDS, read_timeout=ANSWER_SECONDS,
            ssl_disabled=True,
        )  # fmt: skip
        try:
            with connection.cursor() as db:
                yield db
        finally:
            connection._force_close()  # type: ignore[attr-defined]

    def ask(self, name: str, sql: str) -> list[tuple[Any, ...]]:
        """Return all rows. Raises pymysql.MySQLError."""
        with self.asking(name) as db:
            db.execute(sql)
            return list(db.fetchall())

    def writer(self) -> str:
        """Return m1 or m2, whichever is open under the highest epoch; "" if none is."""
        found = []
        for name in MASTERS:
            with suppress(pymysql.MySQLError, OSError):
                rows = self.ask(name, "SELECT epoch, open, @@read_only FROM fence")
                found += [(epoch, name) for epoch, opened, closed in rows if opened and not closed]
        return max(found, default=(0, ""))[1]

    def other(self, name: str) -> str:
        """Return the other master."""
        return next(one for one in MASTERS if one != name)

    def report(self) -> Report:
        return self.steward.look()

    def until_ring(self, seconds: float = SETTLE_SECONDS) -> float:
        """Wait until one master takes writes and the other acknowledges; return the seconds that it
        took."""

        def whole() -> bool:
            try:
                term = self.report().term
            except GreencrawlError:
                return False
            return term is not None and bool(term.partner)

        try:
            return wait_until(whole, seconds, "both masters are in the ring", every=0.2)
        except AssertionError as error:
            error.add_note("\n".join(self.report().findings))
            raise

    def hanging(self, name: str) -> int:
        """Return the number of commits on a server that wait for an acknowledgement."""
        [(_, count)] = self.ask(
            name, "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_master_wait_sessions'"
        )
        return int(count)

    # -- what is in SQL

    def settled(self) -> set[str]:
        """Return URLs with a page or a final state on the writer; the last known ones if there is
        none."""
        if time.monotonic() - self._seen_at < 0.1:
            return self._seen
        writer = self.writer()
        if writer:
            with suppress(pymysql.MySQLError, OSError):
                self._seen = self.stored_on(writer)
                self._seen_at = time.monotonic()
        return self._seen

    def stored_on(self, name: str) -> set[str]:
        """Return URLs with a page or a final state on one server."""
        return {
            str(url)
            for (url,) in self.ask(name, "SELECT url FROM contents UNION SELECT url FROM finals")
        }

    def acked(self) -> list[tuple[float, str]]:
        """Return (time.monotonic(), URL) of all commits that workers counted as done."""
        return sorted(
            (float(at), url)
            for file in self.folder.glob(self.acked_log.name + "*")
            for at, _, url in (line.partition("\t") for line in file.read_text().splitlines())
        )

    def silence(self) -> float | None:
        """Return the longest time from a fault on without an acknowledged commit."""
        began = self.blows[0].at
        times = [began, *(at for at, _ in self.acked() if at > began)]
        return max((b - a for a, b in pairwise(times)), default=None)

    # -- the verdict

    def check_cluster(self) -> list[str]:
        """Check the rules for clusters, beyond those for every store."""
        self._seen_at = 0.0
        writer = self.writer()
        if not writer:
            return ["no server takes writes in the end"]
        acked = {url for _, url in self.acked()}
        missing = acked - self.stored_on(writer)
        self.notes["acknowledged"] = len(acked)
        self.notes["acknowledged and missing"] = len(missing)
        findings = [f"{url} was acknowledged, and is not on {writer}" for url in sorted(missing)]
        if not acked:
            findings.append("nothing was acknowledged: the log of it does not work")
        late = old_epochs(self.log_of(writer))
        self.notes["rows under an old epoch"] = len(late)
        findings += late
        self.system.stop()
        return findings + self.unequal(writer)

    def log_of(self, name: str) -> list[tuple[int, int, int]]:
        """Return (domain, server, sequence) of the transactions in a server's binary log, in
        order."""
        found = []
        with self.asking(name, text=False) as db:  # rows are shown as they are: bytes
            db.execute("SHOW BINARY LOGS")
            for file, *_ in list(db.fetchall()):
                db.execute(f"SHOW BINLOG EVENTS IN '{file.decode()}'")
                for _, _, kind, _, _, text in db.fetchall():
                    match = _GTID.search(text) if kind == b"Gtid" else None
                    if match:
                        found.append((int(match[1]), int(match[2]), int(match[3])))
        return found

    def unequal(self, writer: str) -> list[str]:
        """Return tables whose checksums differ from the writer's, once all have caught up."""
        tables = [
            table
            for (table,) in self.ask(writer, "SHOW TABLES")
            if table not in OWN_TABLES
        ]  # fmt: skip
        sums: dict[str, Mapping[str, int]] = {}

        def equal() -> bool:
            for name in NAMES:
                with suppress(pymysql.MySQLError, OSError):
                    rows = self.ask(name, "CHECKSUM TABLE " + ", ".join(tables))
                    sums[name] = dict(rows)
            return len(sums) == len(NAMES) and all(one == sums[writer] for one in sums.values())

        try:
            wait_until(equal, SETTLE_SECONDS, "all servers are equal", every=0.5)
        except AssertionError:
            return [
                f"{name}: {table} differs from {writer}'s"
                for name, has in sums.items()
                for table in has
                if has[table] != sums.get(writer, {}).get(table)
            ] + [f"{name} cannot be asked" for name in NAMES if name not in sums]
        self.notes["equal tables on five servers"] = len(tables)
        return []


def old_epochs(log: Sequence[tuple[int, int, int]]) -> list[str]:
    """Return transactions of an epoch after those of a newer one, or of an epoch from two
    servers."""
    findings, newest = [], 0
    servers: dict[int, int] = {}
    for domain, server, sequence in log:
        if domain > 100:
            continue  # before any epoch: none is expected, and none is ours
        name = f"{domain}-{server}-{sequence}"
        if domain < newest:
            findings.append(f"{name} was written after epoch {newest} had begun")
        if servers.setdefault(domain, server) != server:
            findings.append(f"{name}: epoch {domain} began on server {servers[domain]}")
        newest = max(newest, domain)
    return findings


def run_on_cluster(fault: Fault, folder: Path, say: Say = print) -> Result:
    """Run a fault, with the cluster's checks in addition to its own."""

    def check(rig: Rig) -> list[str]:
        assert isinstance(rig, ClusterRig)
        own = fault.check(rig) if fault.check is not None else []
        return own + rig.check_cluster()

    def recovered(rig: Rig) -> float | None:
        assert isinstance(rig, ClusterRig)
        return rig.silence()

    def prepare(rig: Rig) -> None:
        assert isinstance(rig, ClusterRig)
        if fault.prepare is not None:
            fault.prepare(rig)
        rig.form()

    judged = replace(fault, prepare=prepare, check=check, recovered=fault.recovered or recovered)
    try:
        result = run(judged, folder, say, ClusterRig)
        for name in ("store", "store_steward"):  # ports and passwords of this run
            result.settings.pop(name, None)
        return result
    except (pymysql.MySQLError, GreencrawlError) as error:
        result = Result(fault.name, fault.rows, fault.mechanism)
        result.why_not.append(f"{type(error).__name__}: {error}")
        return result
