"""Two masters and three replicas of real MariaDB: who takes writes when servers die and return."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import gevent
import pytest
from gevent.event import Event
from pymysql.err import OperationalError

from greencrawl.schema.clock import monotonic
from greencrawl.schema.errors import InvalidConfig, Unavailable
from greencrawl.store.migrations import Migration
from greencrawl.store.mysql import migrations
from greencrawl.store.mysql.cluster import gtid, topology
from greencrawl.store.mysql.cluster.local.cluster import NAMES
from greencrawl.store.mysql.cluster.observe import Observation
from greencrawl.store.mysql.cluster.register import WriterTerm
from greencrawl.store.mysql.cluster.routing import Cluster
from greencrawl.store.mysql.cluster.steward import by_hand
from greencrawl.store.mysql.cluster.steward.servers import Report
from greencrawl.store.mysql.cluster.steward.steward import Steward
from greencrawl.store.mysql.cluster.steward.takeover import Takeovers
from greencrawl.store.mysql.connection import Db, connect
from greencrawl.store.steward import steward_of
from tests.support.effort import by_night
from tests.support.mariadb import local_cluster
from tests.support.system import wait_until

WRITERS = 2


class Ring:
    """A formed cluster with a working steward, and commits that go on."""

    def __init__(self, folder: Path) -> None:
        self.local = local_cluster(folder)
        self.local.start()
        self.steward = self.new_steward()
        by_hand.form(self.steward)
        self.cluster = Cluster(topology.parse(self.local.url()))
        self.cluster.write(
            lambda db: db.execute("CREATE TABLE IF NOT EXISTS t (a BIGINT PRIMARY KEY)")
        )
        self.acknowledged: list[int] = []
        self.second = self.new_steward()
        self.looking = self.look_after()
        self.writers = [gevent.spawn(self._write) for _ in range(WRITERS)]

    def look_after(self) -> list[gevent.Greenlet[..., None]]:
        """Two stewards side by side, as in two brokers."""
        return [gevent.spawn(one.run) for one in (self.steward, self.second)]

    def new_steward(self) -> Steward:
        made = steward_of(self.local.url(), self.local.steward)
        assert made is not None
        made.takeovers.down_seconds, made.takeovers.patience_seconds = 1.5, 4.0
        return made

    def _write(self) -> None:
        while True:
            number = random.getrandbits(62)
            while not self._insert(number):
                gevent.sleep(0.25)
            self.acknowledged.append(number)
            gevent.sleep(0.05)

    def _insert(self, number: int) -> bool:
        try:
            self.cluster.write(lambda db: db.execute("INSERT IGNORE INTO t VALUES (%s)", (number,)))
        except Unavailable:
            return False
        return True

    def name(self, address: str) -> str:
        return self.local.name_of(address) if address else ""

    def report(self) -> Report:
        return self.steward.look()

    def term(self) -> tuple[int, str, str]:
        term = self.report().term
        assert term is not None
        return term.epoch, self.name(term.writer), self.name(term.partner)

    def until(self, holds: Callable[[Report], bool], seconds: float = 40.0) -> Report:
        end = monotonic() + seconds
        while True:
            report = self.report()
            if holds(report):
                return report
            if monotonic() > end:
                raise AssertionError(f"not reached: {report.term} {report.findings}")
            gevent.sleep(0.2)

    def settled(self) -> tuple[int, str, str]:
        """Wait until two masters are in force and nothing is wrong."""
        self.until(lambda report: bool(report.term and report.term.partner and not report.findings))
        return self.term()

    def becomes(self, wanted: tuple[int, str, str]) -> None:
        """Wait until the term is (epoch, writer, partner) and nothing is wrong."""

        def there(report: Report) -> bool:
            term = report.term
            return bool(
                term
                and (term.epoch, self.name(term.writer), self.name(term.partner)) == wanted
                and not report.findings
            )

        self.until(there)

    def progress(self, more: int = 20, seconds: float = 30.0) -> None:
        target, end = len(self.acknowledged) + more, monotonic() + seconds
        while len(self.acknowledged) < target:
            assert monotonic() < end, f"no commits: {self.report().findings}"
            gevent.sleep(0.05)

    def ask(self, name: str, sql: str) -> list[tuple[object, ...]]:
        with self.local.root(name) as connection, connection.cursor() as db:
            db.execute(f"USE {self.local_database}")
            db.execute(sql)
            return list(db.fetchall())

    def position(self, name: str) -> dict[int, int]:
        return gtid.parse(str(self.ask(name, "SELECT @@global.gtid_binlog_pos")[0][0]))

    @property
    def local_database(self) -> str:
        return self.steward.topology.database

    def missing(self) -> set[int]:
        """Acknowledged, but not on the server that takes writes."""
        acknowledged = set(self.acknowledged)
        rows = self.ask(self.term()[1], "SELECT a FROM t")
        return acknowledged - {row[0] for row in rows}  # type: ignore[misc]

    def stop_writing(self) -> None:
        gevent.killall(self.writers)
        self.cluster.close()

    def close(self) -> None:
        gevent.killall([*self.writers, *self.looking])
        self.cluster.close()
        self.steward.close()
        self.second.close()
        self.local.stop()


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ring]:
    made = Ring(tmp_path_factory.mktemp("ring"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _nothing_lost(ring: Ring) -> Iterator[None]:
    """Check before and after each fault: two masters, and every acknowledged row on the writer."""
    ring.settled()
    ring.progress(5)
    yield
    ring.settled()
    ring.progress(10)
    assert ring.missing() == set()


def test_the_partner_takes_over_from_a_killed_writer_which_comes_back_as_partner(
    ring: Ring,
) -> None:
    epoch, writer, partner = ring.term()
    ring.local.servers[writer].kill()
    ring.progress()
    assert ring.term()[:2] == (epoch + 1, partner)
    assert any(f"{ring.local.ports[writer]} is away" in note for note in ring.report().findings)
    ring.local.servers[writer].start()
    ring.becomes((epoch + 1, partner, writer))


def test_writer_that_was_started_anew_hands_over_at_once(ring: Ring) -> None:
    epoch, writer, partner = ring.term()
    ring.local.servers[writer].kill()
    ring.local.servers[writer].start()
    ring.becomes((epoch + 1, partner, writer))


def test_the_writer_goes_on_alone_without_a_killed_partner_and_takes_it_back(ring: Ring) -> None:
    epoch, writer, partner = ring.term()
    ring.local.servers[partner].kill()
    report = ring.until(lambda report: bool(report.term and not report.term.partner))
    ring.progress()
    assert any("stands alone" in note for note in report.findings)
    assert ring.term() == (epoch, writer, "")
    seen = {ring.name(one.name): one for one in report.servers}
    known = WriterTerm(epoch, seen[writer].name, seen[partner].name)  # a steward that was slow
    with contextlib.suppress(Unavailable):
        ring.steward._masters._join(known, seen[partner])
    asks = "SELECT @@global.rpl_semi_sync_master_enabled"
    assert ring.ask(writer, asks) == [(0,)], "commits would wait for nobody's acknowledgement"
    ring.local.servers[partner].start()
    ring.becomes((epoch, writer, partner))


def test_frozen_writer_acknowledges_nothing_under_its_old_epoch(ring: Ring) -> None:
    epoch, writer, partner = ring.term()
    ring.local.servers[writer].freeze()
    ring.progress()
    assert ring.term()[:2] == (epoch + 1, partner)
    gevent.killall(ring.looking)  # nobody closes the old master before others write to it
    ring.local.servers[writer].thaw()
    lonely = Cluster(topology.parse(ring.local.url({partner: "127.0.0.1:1"})))
    with pytest.raises(Unavailable):  # it reaches only the old master, whose commits hang
        lonely.write(lambda db: db.execute("INSERT INTO t VALUES (-1)"), seconds=4)
    lonely.close()
    assert ring.ask(partner, "SELECT a FROM t WHERE a = -1") == []
    ring.looking = ring.look_after()
    report = ring.until(lambda report: any("hang" in note for note in report.findings))
    assert any("kill -9" in note for note in report.findings)
    ring.local.servers[writer].kill()
    ring.local.servers[writer].start()
    ring.becomes((epoch + 1, partner, writer))
    assert ring.ask(writer, "SELECT a FROM t WHERE a = -1") == []


def test_the_writer_goes_on_alone_if_both_masters_were_killed_and_it_alone_is_back(
    ring: Ring,
) -> None:
    epoch, writer, partner = ring.term()
    ring.local.servers[partner].kill()
    ring.local.servers[writer].kill()
    before = len(ring.acknowledged)
    gevent.sleep(1)
    assert len(ring.acknowledged) == before
    ring.local.servers[writer].start()
    ring.progress()
    assert ring.term() == (epoch + 1, writer, "")
    ring.local.servers[partner].start()
    ring.settled()


def test_lone_writer_has_no_successor(ring: Ring) -> None:
    epoch, writer, partner = ring.term()
    ring.local.servers[partner].kill()
    ring.until(lambda report: bool(report.term and not report.term.partner))
    ring.progress()
    ring.local.servers[writer].kill()
    ring.local.servers[partner].start()
    gevent.sleep(4)
    assert ring.term() == (epoch, writer, "")
    assert any("takeover --lose" in note for note in ring.report().findings)
    fresh = ring.new_steward()
    fresh.run_once()
    assert fresh._said == {}, "what is away is not opened"
    fresh.close()
    ring.local.servers[writer].start()
    ring.settled()
    assert ring.term()[:2] == (epoch + 1, writer)


def test_no_new_term_is_decided_without_a_majority(ring: Ring) -> None:
    epoch, writer, partner = ring.term()
    for name in (writer, "r1", "r2"):
        ring.local.servers[name].kill()
    gevent.sleep(4)
    report = ring.report()
    assert report.term is None
    assert any("nobody may decide" in note for note in report.findings)
    ring.local.servers["r1"].start()
    ring.progress()
    assert ring.term()[:2] == (epoch + 1, partner)
    for name in (writer, "r2"):
        ring.local.servers[name].start()


def test_a_hand_over_loses_no_commit_and_is_refused_to_a_server_that_may_lack_some(
    ring: Ring,
) -> None:
    epoch, writer, partner = ring.term()
    steward = ring.new_steward()
    assert ring.name(by_hand.hand_over(steward).writer) == partner
    ring.becomes((epoch + 1, partner, writer))
    ring.local.servers[writer].kill()
    ring.until(lambda report: bool(report.term and not report.term.partner))
    gevent.killall(ring.looking)  # nobody makes it a partner again meanwhile
    ring.local.servers[writer].start()
    with pytest.raises(Unavailable, match="may lack"):
        by_hand.hand_over(steward)
    ring.looking = ring.look_after()
    with pytest.raises(InvalidConfig, match="no master"):
        by_hand.hand_over(steward, "127.0.0.1:1")
    steward.close()


def test_a_migration_goes_on_at_the_present_writer_after_a_hand_over_amid_it(
    ring: Ring, tmp_path: Path
) -> None:
    epoch, writer, _ = ring.term()
    for number in (1, 2):
        text = f"CREATE TABLE IF NOT EXISTS m{number} (a INT PRIMARY KEY);\n"
        (tmp_path / f"000{number}_pre_table.sql").write_text(
            text + f"INSERT IGNORE INTO m{number} VALUES ({number});\n", encoding="utf-8"
        )
    ring.cluster.write(lambda db: db.execute(migrations._TABLE))
    steward, cluster = ring.new_steward(), Cluster(topology.parse(ring.local.url()))
    begun: list[int] = []
    ended: dict[int, int] = {}

    def told(migration: Migration) -> None:
        begun.append(migration.number)
        if begun == [1, 2]:
            gevent.killall(ring.looking)  # two hand-overs, and nothing else
            with gevent.Timeout(90):
                for _ in range(2):  # to the same server again, in a later epoch
                    by_hand.hand_over(steward)
                    while not ((term := steward.run_once().term) and term.partner):
                        gevent.sleep(0.1)
            ended.update(ring.position(writer))
            ring.looking = ring.look_after()

    assert migrations.migrate(cluster, tmp_path, told=told) == 1
    assert begun == [1, 2, 2]
    later, here, _ = ring.settled()
    assert (later >= epoch + 2, here) == (True, writer)
    now = ring.position(writer)
    over = {domain for domain in ended if domain < later}
    assert {epoch, epoch + 1} <= over
    assert {now[one] - ended[one] for one in over} == {0}, "nothing under epochs that are over"
    assert ring.ask(writer, "SELECT number FROM migrations") == [(1,), (2,)]
    assert ring.ask(writer, "SELECT a FROM m2") == [(2,)]
    ring.cluster.write(lambda db: db.execute("DROP TABLE m1, m2, migrations"))
    cluster.close()
    steward.close()


@by_night
def test_stray_transactions_of_a_returning_master_are_reported_and_not_copied(ring: Ring) -> None:
    epoch, writer, partner = ring.term()
    ring.local.servers[partner].kill()
    ring.until(lambda report: bool(report.term and not report.term.partner))
    gevent.sleep(3)  # replicas must stop, too
    gevent.killall(ring.looking)  # nobody should follow it before
    ring.local.servers[partner].start()
    with ring.local.root(partner) as connection, connection.cursor() as db:
        db.execute("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
        db.execute(f"INSERT INTO {ring.local_database}.t VALUES (-2)")
        ring.looking = ring.look_after()
        report = ring.until(lambda report: any("has not" in note for note in report.findings), 20)
        assert ring.term() == (epoch, writer, "")
        assert any("stays out" in note for note in report.findings), report.findings
        gevent.sleep(3)  # replicas look once a second whom to follow
        for name in (writer, "r1", "r2", "r3"):
            assert ring.ask(name, "SELECT a FROM t WHERE a = -2") == []
    make_anew(ring, partner)


class Stalled(Takeovers):
    """Its steward has looked, and waits until ``go`` is set before it acts."""

    def __init__(self, ring: Ring) -> None:
        super().__init__(ring.steward.topology, down_seconds=1.5, patience_seconds=4.0)
        self.looked, self.go = Event(), Event()

    def due(self, term: WriterTerm, seen: dict[str, Observation]) -> WriterTerm:
        self.looked.set()
        self.go.wait()
        return super().due(term, seen)


def test_a_stalled_steward_changes_nothing_at_a_master_that_took_over_meanwhile(ring: Ring) -> None:
    epoch, writer, partner = ring.term()
    ring.local.servers[partner].kill()
    ring.until(lambda report: bool(report.term and not report.term.partner))
    gevent.killall(ring.looking)
    ring.local.servers[partner].start()
    ring.ask(partner, "RESET SLAVE ALL")
    steward = ring.new_steward()
    steward.takeovers = stalled = Stalled(ring)
    acting = gevent.spawn(steward.run_once)
    stalled.looked.wait()  # the partner should follow the writer
    ring.looking = ring.look_after()
    ring.becomes((epoch, writer, partner))
    ring.local.servers[writer].kill()
    ring.progress()
    ring.local.servers[writer].start()
    ring.becomes((epoch + 1, partner, writer))
    gevent.killall(ring.looking)  # nobody corrects what it does
    gevent.killall(ring.writers)  # both masters have the same data
    gevent.sleep(1)
    stalled.go.set()
    acting.join(timeout=30)
    asks = "SELECT @@global.rpl_semi_sync_master_enabled, @@global.read_only"
    assert ring.ask(partner, asks) == [(1, 0)]
    assert ring.ask(partner, "SHOW SLAVE STATUS") == []
    steward.close()
    ring.looking = ring.look_after()
    ring.writers = [gevent.spawn(ring._write) for _ in range(WRITERS)]


def test_a_writer_without_a_free_connection_is_not_lost(ring: Ring) -> None:
    epoch, writer, partner = ring.term()
    server = ring.local.ports[writer]
    where = ring.steward.topology
    account = topology.parse(ring.local.url())
    name = next(one for one in where.masters if one.port == server)
    ring.ask(writer, "SET GLOBAL max_connections = 40")
    taken, stewards = [], list[Steward]()

    def take_all() -> None:
        """Take the free connections, also the one that is reserved for administrators."""
        for one in account, where:
            with contextlib.suppress(Unavailable):
                while True:
                    taken.append(connect(one, name))

    def shut_out() -> bool:
        """Return whether a new steward gets no connection."""
        take_all()
        stewards.append(ring.new_steward())
        return not is_up(stewards[-1])

    def is_up(steward: Steward) -> bool:
        [seen] = [one for one in steward.look().servers if one.server == name]
        return seen.up

    def there_is_room() -> bool:
        try:
            ring.ask(writer, "SET GLOBAL max_connections = 151")
        except OperationalError:  # the server still counts those that have just ended
            return False
        return True

    try:
        wait_until(shut_out, 20, "a steward gets no connection")
        fresh = stewards[-1]
        end = monotonic() + 5.0
        while monotonic() < end:
            take_all()
            fresh.run_once()
            gevent.sleep(0.5)
        assert not is_up(fresh)
        assert ring.term() == (epoch, writer, partner)
    finally:
        for one in (*stewards, *taken):
            one.close()
        wait_until(there_is_room, 10, "connections are closed")


@by_night
def test_a_partner_that_was_started_anew_never_takes_over_though_it_follows_by_itself(
    ring: Ring,
) -> None:
    epoch, writer, partner = ring.term()
    servers = ring.local.servers
    with ring.local.root(partner) as connection, connection.cursor() as db:
        db.execute(
            f"LOCK TABLES {ring.local_database}.t WRITE"
        )  # the partner acknowledges, and applies nothing
        ring.progress()
        gevent.killall(ring.looking)
        servers[partner].kill()
    servers[writer].kill()
    automatic = servers[partner].options.pop("skip-slave-start")
    servers[partner].start()
    ring.looking = ring.look_after()
    gevent.sleep(5)
    assert ring.term() == (epoch, writer, partner)
    servers[partner].kill()
    servers[partner].options["skip-slave-start"] = automatic
    servers[partner].start()
    servers[writer].start()


def make_anew(ring: Ring, name: str) -> None:
    """The procedure of docs/operations.md: an empty server, a dump of the writer's, and a vote."""
    server, database = ring.local.servers[name], ring.local_database
    server.kill()
    shutil.rmtree(server.folder / "data")
    (server.folder / "ready").unlink()
    ring.local.start([name])
    writer = ring.term()[1]
    where = [f"--socket={ring.local.servers[writer].folder / 'socket'}", "--user=root"]
    password = f"--password={ring.local._passwords['root']}"
    dump = subprocess.run(
        ["mariadb-dump", *where, password, "--single-transaction", "--gtid", "--master-data=1",
         f"--ignore-table={database}.fence", f"--ignore-table={database}.votes",
         "--databases", database],
        check=True, capture_output=True,
    ).stdout  # fmt: skip
    subprocess.run(
        ["mariadb", f"--socket={server.folder / 'socket'}", "--user=root", password,
         "--init-command=SET sql_log_bin = 0"],
        check=True, input=dump,
    )  # fmt: skip
    by_hand.enrol(ring.steward, f"127.0.0.1:{ring.local.ports[name]}")


def test_server_without_a_vote_does_not_count_until_it_is_enrolled(ring: Ring) -> None:
    with ring.local.root("r3") as connection, connection.cursor() as db:
        db.execute("SET sql_log_bin = 0")
        db.execute(f"DELETE FROM {ring.local_database}.votes")
    admins = ring.steward.servers.admins
    r3 = f"127.0.0.1:{ring.local.ports['r3']}"
    with pytest.raises(Unavailable, match="no vote"):
        admins[r3].vote()
    with pytest.raises(InvalidConfig, match="rejoin"):
        by_hand.form(ring.steward)
    by_hand.enrol(ring.steward, r3)
    vote = admins[r3].vote()
    assert isinstance(vote.term, WriterTerm)
    assert vote.term == ring.report().term


def test_a_replica_serves_reads_only_while_its_lag_is_within_the_bound(ring: Ring) -> None:
    def server(db: Db) -> int:
        db.execute("SELECT @@server_id")
        row = db.fetchone()
        assert row is not None
        return int(row[0])

    url = ring.local.url() + "&lag=2"
    cluster = Cluster(topology.parse(url))
    ids = {name: number for number, name in enumerate(NAMES, 1)}
    seen: set[int] = set()
    end = monotonic() + 20
    while not {ids["r1"], ids["r2"], ids["r3"]} <= seen:
        seen.add(cluster.scan(server))
        assert monotonic() < end, seen
        gevent.sleep(0.1)
    with ring.local.root("r1") as connection, connection.cursor() as db:
        db.execute("FLUSH TABLES WITH READ LOCK")  # it applies nothing
        gevent.sleep(4)
        seen = set()
        for _ in range(20):
            seen.add(cluster.scan(server))
            gevent.sleep(0.05)
        assert ids["r1"] not in seen
        lags = {
            name: cluster.lags()[f"127.0.0.1:{ring.local.ports[name]}"] for name in ("r1", "r2")
        }
        assert lags["r2"] is not None
        assert lags["r2"] < 2 < (lags["r1"] or 999), "r1 is behind all that is known, or by seconds"
        ring.local.servers["r2"].kill()
        ring.local.servers["r3"].kill()
        assert cluster.scan(server) == ids[ring.term()[1]]
        assert cluster.lags()[f"127.0.0.1:{ring.local.ports['r3']}"] is None
    for name in ("r2", "r3"):
        ring.local.servers[name].start()
    cluster.close()


def test_all_servers_of_the_cluster_hold_the_same_rows_in_the_end(ring: Ring) -> None:
    ring.settled()
    ring.stop_writing()
    sums: dict[str, object] = {}
    end = monotonic() + 60
    while monotonic() < end:
        sums = {name: ring.ask(name, "CHECKSUM TABLE t")[0][1] for name in NAMES}
        if len(set(sums.values())) == 1:
            break
        gevent.sleep(0.3)
    at = {name: ring.ask(name, "SELECT COUNT(*), @@gtid_current_pos FROM t") for name in NAMES}
    assert len(set(sums.values())) == 1, (sums, at, ring.report())
    ring.cluster = Cluster(topology.parse(ring.local.url()))
    ring.writers = [gevent.spawn(ring._write)]
