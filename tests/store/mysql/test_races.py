"""Two transactions side by side on a real MariaDB; a lock stops one of them half-way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gevent
import pytest

from greencrawl.schema.errors import Unavailable, UnknownCrawl
from greencrawl.schema.records import Commit, NodeOptions, PageFilter, Stamp
from greencrawl.store.base import Store
from greencrawl.store.mysql import streams
from greencrawl.store.mysql.cluster.admin import Admin
from greencrawl.store.mysql.cluster.observe import observe
from greencrawl.store.mysql.cluster.register import Vote
from greencrawl.store.mysql.cluster.routing import Cluster
from greencrawl.store.mysql.cluster.topology import Topology
from greencrawl.store.mysql.connection import Db, connect
from greencrawl.store.mysql.store import MysqlStore
from greencrawl.store.mysql.tables.pages import PAGES
from tests.support.mysql_database import held, held_row, rows_of, server, topology
from tests.support.store_contract import Opener, crawl, store
from tests.support.store_members import member
from tests.support.store_parked import DAYS, TAGS, parked
from tests.support.store_records import attempt, beyond, final, links, page

__all__ = ["crawl", "server", "store", "topology"]  # fixtures


@pytest.fixture
def open_store(topology: Topology) -> Iterator[Opener]:
    opened: list[Store] = []

    def open_one() -> Store:
        opened.append(MysqlStore(topology))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def stopped(work: Callable[..., Any], *values: Any) -> gevent.Greenlet[..., Any]:
    """Run ``work`` in the background until a lock stops it."""
    job = gevent.spawn(work, *values)
    gevent.sleep(0.2)
    assert not job.ready(), "it waits"
    return job


def test_raising_an_epoch_waits_for_commits_under_way_and_later_ones_see_it(
    store: Store, crawl: int, topology: Topology
) -> None:
    with held(topology, "sums"):
        commit = stopped(store.commit, Commit([page(crawl, 1)]))
        raised = stopped(store.raise_epoch, "n", 0, 1)
        later = stopped(store.commit, Commit([page(crawl, 2)]))
    assert raised.get(timeout=10)
    assert store.page(crawl, 1) is not None, "recovery reads what was committed before"
    before: Stamp = commit.get(timeout=10)
    after: Stamp = later.get(timeout=10)
    assert (before.epochs, after.epochs) == ({}, {"n": 1})


def test_a_crawl_does_not_end_while_seeds_are_being_added(
    store: Store, crawl: int, topology: Topology
) -> None:
    with held(topology, "seed_batches"):
        added = stopped(store.add_seeds, crawl, links("http://a/"))
        ended = stopped(store.set_state, crawl, "done", "finished")
    assert added.get(timeout=10)
    assert ended.get(timeout=10).state == "active"


def test_a_crawl_does_not_end_while_overflow_is_being_put(
    store: Store, crawl: int, topology: Topology
) -> None:
    with held(topology, "overflow"):
        put = stopped(store.put_overflow, crawl, beyond([3], host="a.org"))
        ended = stopped(store.set_state, crawl, "done", "finished")
    put.get(timeout=10)
    assert ended.get(timeout=10).state == "active"


def test_a_release_of_a_shape_waits_for_commits_that_park_and_later_ones_park_nothing(
    store: Store, crawl: int, topology: Topology
) -> None:
    with held(topology, "sums"):
        commit = stopped(store.commit, Commit(finals=[parked(crawl, 1)]))
        released = stopped(store.add_released, crawl, [DAYS])
        later = stopped(store.commit, Commit(finals=[parked(crawl, 2), parked(crawl, 3, TAGS)]))
    assert not commit.get(timeout=10).refused
    assert released.get(timeout=10).released == (DAYS,)
    assert later.get(timeout=10).refused == {(crawl, 2)}
    batch = store.release_parked(crawl, DAYS)
    assert batch is not None, "what was parked before is there to be released"
    assert [item.url for item in batch.urls] == ["http://example.org/1"]
    assert store.counts(crawl)["parked"] == 1


def test_no_row_is_written_for_a_crawl_after_its_deletion(
    store: Store, crawl: int, topology: Topology
) -> None:
    with held(topology, "sums"):
        commit = stopped(
            store.commit,
            Commit([page(crawl, 1, body=b"x")], [attempt(crawl, 1)], [final(crawl, 2)]),
        )
        deleted = stopped(store.delete_crawl, crawl)
    commit.get(timeout=10)
    deleted.get(timeout=10)
    store.commit(Commit([page(crawl, 3)]))
    for table in ("pages", "contents", "bodies", "digests", "attempts", "finals", "sums", "hosts"):
        assert rows_of(topology, f"SELECT COUNT(*) FROM {table}") == [(0,)], table
    with pytest.raises(UnknownCrawl):
        store.add_seeds(crawl, links("http://a/"))


def test_only_the_newest_of_final_states_written_at_once_stays_and_is_counted(
    store: Store, crawl: int, topology: Topology
) -> None:
    store.commit(Commit(finals=[final(crawl, 1, 1000)]))
    with held(topology, "sums"):
        newer = stopped(store.commit, Commit(finals=[final(crawl, 1, 3000, state="gone")]))
        older = stopped(store.commit, Commit(finals=[final(crawl, 1, 2000)]))
    for job in (newer, older):
        job.get(timeout=10)
    kept = store.final(crawl, 1)
    assert kept is not None
    assert kept.state == "gone"
    assert {state: store.counts(crawl)[state] for state in ("dead", "gone")} == {
        "dead": 0, "gone": 1,
    }  # fmt: skip


def test_an_overflow_row_that_is_taken_late_lowers_no_stamp(
    store: Store, crawl: int, topology: Topology
) -> None:
    store.put_overflow(crawl, beyond([3, 3], host="a.org"))
    rows = store.overflow(crawl, 7, "a.org", 10)
    with held_row(topology, "overflow", f"crawl = {crawl} AND fingerprint = 10"):
        taken = stopped(store.overflow_taken, rows, "n", 1)
        since = store.tick()
        store.commit(Commit([page(crawl, 11)]))
    taken.get(timeout=10)
    assert store.overflow(crawl, 7, "a.org", 10) == [], "it was taken, and its page was seen"
    assert store.stamps(crawl, [11]) == {11: since}


def test_an_overflow_row_goes_if_it_is_taken_while_its_page_is_committed(
    store: Store, crawl: int, topology: Topology
) -> None:
    store.put_overflow(crawl, beyond([3, 3, 3], host="a.org"))
    rows = store.overflow(crawl, 7, "a.org", 10)
    with held(topology, "sums"):
        commit = stopped(store.commit, Commit([page(crawl, 10)], finals=[final(crawl, 11)]))
        taken = stopped(store.overflow_taken, rows, "n", 1)
    commit.get(timeout=10)
    taken.get(timeout=10)
    left = [row for _, some in store.overflow_of(7) for row in some]
    assert [row.fingerprint for row in left] == [12]


def test_an_overflow_row_goes_if_it_is_put_and_taken_while_its_page_is_committed(
    store: Store, crawl: int, topology: Topology
) -> None:
    with held(topology, "sums"):
        commit = stopped(store.commit, Commit([page(crawl, 10)]))
        store.put_overflow(crawl, beyond([3], host="a.org"))  # which the commit cannot see
        rows = store.overflow(crawl, 7, "a.org", 10)
        taken = stopped(store.overflow_taken, rows, "n", 1)
    commit.get(timeout=10)
    taken.get(timeout=10)
    assert list(store.overflow_of(7)) == []


def test_a_final_state_is_not_kept_if_a_page_came_before_it_was_written(
    store: Store, crawl: int, topology: Topology
) -> None:
    with held(topology, "finals"):
        last = stopped(store.commit, Commit(finals=[final(crawl, 1, 1000), final(crawl, 2, 1000)]))
        rows_of(
            topology,
            f"INSERT INTO pages ({PAGES}) VALUES ({crawl}, 1, 1, 1, 2000, 200, 0, '', 0, 0)",
        )
    last.get(timeout=10)
    assert store.final(crawl, 1) is None
    assert store.final(crawl, 2) is not None
    assert store.counts(crawl)["dead"] == 1


def test_a_final_state_older_than_a_page_being_committed_is_not_kept(
    store: Store, crawl: int, topology: Topology
) -> None:
    with held(topology, "sums"):
        commit = stopped(store.commit, Commit([page(crawl, 1, 2000)]))
        last = stopped(store.commit, Commit(finals=[final(crawl, 1, 1000), final(crawl, 2, 1000)]))
    commit.get(timeout=10)
    last.get(timeout=10)
    assert store.final(crawl, 1) is None
    assert store.final(crawl, 2) is not None
    assert store.counts(crawl)["dead"] == 1


def test_a_new_page_that_two_stores_commit_is_one_page_with_both_versions(
    open_store: Opener, topology: Topology, store: Store, crawl: int
) -> None:
    other = open_store()
    with held(topology, "sums"):
        first = stopped(store.commit, Commit([page(crawl, 1, 1000, links=links("http://a/"))]))
        second = stopped(other.commit, Commit([page(crawl, 1, 2000, links=links("http://b/"))]))
    first.get(timeout=10)
    second.get(timeout=10)
    assert [one.fetched_ms for one in store.history(crawl, 1)] == [2000, 1000]
    stored = store.page(crawl, 1)
    assert stored is not None
    assert {link.url for link in stored.links} == {"http://a/", "http://b/"}
    assert rows_of(topology, "SELECT COUNT(*) FROM contents") == [(1,)]


def test_a_page_that_two_stores_insert_at_once_is_one_page(
    open_store: Opener, topology: Topology, store: Store, crawl: int
) -> None:
    works = [
        Commit([page(crawl, 1, 1000 * n, body=b"%d" % n)], [attempt(crawl, n)]) for n in (1, 2)
    ]
    with held(topology, "bodies"):  # both have looked for the page, and found none
        jobs = [
            stopped(one.commit, work)
            for one, work in zip((store, open_store()), works, strict=True)
        ]
    for job in jobs:
        job.get(timeout=10)
    assert [one.fetched_ms for one in store.history(crawl, 1)] == [2000, 1000]
    assert store.counts(crawl) == store.counts(crawl) | {"pages": 1, "bytes": 1, "attempts": 2}


def test_a_stamp_read_early_does_not_lower_one_written_meanwhile(
    open_store: Opener, topology: Topology, store: Store, crawl: int
) -> None:
    """A reader of the log by stamps would pass over a row that moved back."""
    store.commit(Commit([page(crawl, 1, 1000), page(crawl, 2, 1000)]))
    connection = connect(topology, topology.masters[0])
    with connection.cursor() as db:
        db.execute("BEGIN")
        db.execute("SELECT 1 FROM pages FOR UPDATE")
        early = [
            stopped(store.commit, Commit([page(crawl, n, fetched_ms)]))
            for n, fetched_ms in ((1, 500), (2, 2000))
        ]
        ticked = open_store().tick()
        db.execute("UPDATE pages SET stamp = %s", (ticked,))
        db.execute("COMMIT")
    connection.close()
    assert all(job.get(timeout=10).clock < ticked for job in early)
    assert store.stamps(crawl, [1, 2]) == {1: ticked, 2: ticked}


def test_a_transaction_runs_again_after_a_deadlock(
    store: Store, crawl: int, topology: Topology
) -> None:
    store.commit(Commit([page(crawl, 1), page(crawl, 2)]))
    rows_of(topology, "CREATE TABLE ballast (n INT)")
    before = int(rows_of(topology, "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")[0][1])
    connection = connect(topology, topology.masters[0])
    with connection.cursor() as db:
        db.execute("BEGIN")  # it has more to undo than the commit, so the commit is given up
        db.execute("INSERT INTO ballast VALUES " + ", ".join(["(1)"] * 500))
        db.execute("SELECT 1 FROM pages WHERE crawl = %s AND fingerprint = 2 FOR UPDATE", (crawl,))
        works = Commit([page(crawl, n, 2000) for n in (1, 2)], [attempt(crawl, 1)])
        commit = stopped(store.commit, works)  # it holds 1 and waits for 2
        db.execute("SELECT 1 FROM pages WHERE crawl = %s AND fingerprint = 1 FOR UPDATE", (crawl,))
        after = int(rows_of(topology, "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")[0][1])
        db.execute("COMMIT")
    connection.close()
    commit.get(timeout=20)
    assert after == before + 1
    assert [one.fetched_ms for one in store.history(crawl, 2)] == [2000, 1000]
    assert store.counts(crawl)["attempts"] == 1


def test_batches_of_seeds_that_come_together_share_a_commit(
    store: Store, crawl: int, topology: Topology
) -> None:
    def commits() -> int:
        return int(rows_of(topology, "SHOW GLOBAL STATUS LIKE 'Com_commit'")[0][1])

    before = commits()
    jobs = [gevent.spawn(store.add_seeds, crawl + n % 2, links("http://a/")) for n in range(20)]
    gevent.joinall(jobs, timeout=20)
    assert [type(job.exception) for job in jobs] == [type(None), UnknownCrawl] * 10
    assert len({job.value for job in jobs if job.successful()}) == 10
    assert commits() - before <= 4
    jobs = [gevent.spawn(store.seeds_admitted, batch.id) for batch in store.pending_seeds()]
    gevent.joinall(jobs, timeout=20, raise_error=True)
    assert store.pending_seeds() == []


def test_batches_of_seeds_that_met_a_deadlock_are_written_again(
    store: Store, crawl: int, topology: Topology
) -> None:
    """The first batch is refused with its whole transaction; the counter (MyISAM) is not undone."""
    rows_of(topology, "CREATE TABLE met (times INT) ENGINE = MyISAM")
    rows_of(topology, "INSERT INTO met VALUES (0)")
    rows_of(
        topology,
        "CREATE TRIGGER meets BEFORE INSERT ON seed_batches FOR EACH ROW BEGIN "
        "UPDATE met SET times = times + 1; IF (SELECT times FROM met) = 2 THEN "
        "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213; END IF; END",
    )
    jobs = [gevent.spawn(store.add_seeds, crawl, links(f"http://a/{n}")) for n in range(3)]
    gevent.joinall(jobs, timeout=20)
    assert [job.exception for job in jobs] == [None] * 3
    assert {batch.id for batch in store.pending_seeds()} == {job.value for job in jobs}
    assert rows_of(topology, "SELECT times FROM met") == [(5,)], "two, and all three again"


def test_a_commit_fails_while_a_lock_is_held_for_too_long_and_succeeds_after_it(
    store: Store, crawl: int, topology: Topology
) -> None:
    work = Commit([page(crawl, 1)], [attempt(crawl, 1)])
    store.commit(work)
    connection = connect(topology, topology.masters[0])
    with connection.cursor() as db:
        db.execute("BEGIN")
        db.execute("SELECT 1 FROM pages FOR UPDATE")
        with pytest.raises(Unavailable):
            store.commit(work)
        db.execute("COMMIT")
    connection.close()
    store.commit(work)
    assert store.counts(crawl)["attempts"] == 1


def test_a_lock_held_for_too_long_closes_no_other_connection(topology: Topology) -> None:
    rows_of(topology, "CREATE TABLE t (a INT PRIMARY KEY) ENGINE = InnoDB")
    rows_of(topology, "INSERT INTO t VALUES (1)")
    cluster = Cluster(topology)

    def who(db: Db, seconds: float = 0.0) -> int:
        db.execute("SELECT CONNECTION_ID(), SLEEP(%s)", (seconds,))
        return int((db.fetchone() or (0,))[0])

    def locking(db: Db) -> None:
        db.execute("UPDATE t SET a = 2")

    def two() -> set[int]:
        asked = [gevent.spawn(cluster.read, partial(who, seconds=0.2)) for _ in range(2)]
        return {one.get(timeout=10) for one in asked}

    connected = two()
    other = connect(topology, topology.masters[0])
    with other.cursor() as db:
        db.execute("BEGIN")
        db.execute("SELECT 1 FROM t FOR UPDATE")
        waiting = gevent.spawn(cluster.write, locking)
        slow = gevent.spawn(cluster.read, partial(who, seconds=7.0))
        with pytest.raises(Unavailable, match="Lock wait"):
            waiting.get(timeout=20)
        db.execute("COMMIT")
    other.close()
    assert slow.get(timeout=10) in connected
    assert cluster.read(who) in connected, "the connection that was in use is used again"

    connected = two()
    rows_of(topology, f"KILL {cluster.read(who)}")
    with pytest.raises(Unavailable):
        cluster.read(who)
    assert cluster.read(who) not in connected, "where one is gone none is trusted"
    cluster.close()


def test_endless_deadlocks_are_blamed_on_no_record(
    store: Store, crawl: int, topology: Topology
) -> None:
    rows_of(
        topology,
        "CREATE TRIGGER meets BEFORE INSERT ON attempts FOR EACH ROW "
        "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213",
    )
    for work in (
        Commit(attempts=[attempt(crawl, 1)]),
        Commit([page(crawl, 1)], [attempt(crawl, 1)]),
    ):
        with pytest.raises(Unavailable, match="locks"):
            store.commit(work)
    rows_of(topology, "DROP TRIGGER meets")
    store.commit(work)
    assert store.counts(crawl)["attempts"] == 1


def test_a_steward_never_sees_an_old_domain_at_an_open_server(
    topology: Topology,
) -> None:
    """A steward would treat it as a server that was started anew, and begin another term."""

    class Opened(Admin):
        """After the first of our questions a steward opens the server for epoch 9: first it sets
        the domain, then the fence."""

        def status(self, like: str) -> dict[str, str]:
            self.set_global(gtid_domain_id=9)
            self.set_fence(9, open_=True)
            return super().status(like)

    admin = Opened(topology, topology.masters[0])
    admin.prepare()
    before = admin.variables("gtid_domain_id")
    try:
        admin.set_fence(8, open_=False)
        for epoch in (8, 9):
            [seen] = observe([admin])
            assert (seen.error, seen.epoch) == ("", epoch)
            assert not seen.open or seen.domain == epoch
    finally:
        admin.set_global(**before)
        admin.close()


def test_a_server_whose_replication_names_no_master_follows_none(topology: Topology) -> None:
    admin = Admin(topology, topology.masters[0])
    admin.prepare()
    try:
        admin.execute("CHANGE MASTER TO MASTER_CONNECT_RETRY = 7")
        [seen] = observe([admin])
        assert (seen.error, seen.following) == ("", None)
    finally:
        admin.execute("RESET SLAVE ALL")
        admin.close()


def test_a_server_promises_the_higher_of_two_ballots_that_are_asked_for_at_once(
    topology: Topology,
) -> None:
    """If it promised both, two terms could be accepted, each by a majority of its own."""
    admin = Admin(topology, topology.masters[0])
    admin.prepare()
    admin.enrol(Vote())
    other = connect(topology, topology.masters[0])
    with other.cursor() as db:
        db.execute("BEGIN")
        db.execute("UPDATE votes SET promised = 9")
        lower = stopped(admin.promise, 5)
        db.execute("COMMIT")
    other.close()
    assert lower.get(timeout=10) is None
    assert admin.vote().promised == 9
    admin.close()


def test_a_list_goes_on_if_the_last_row_of_a_window_moves_meanwhile(
    store: Store, crawl: int, topology: Topology
) -> None:
    """Rows 2 to 4 are one window; 4 is stored again between the window's count and its end."""
    store.commit(Commit([page(crawl, n, status=404) for n in (1, 2, 3, 4)]))
    store.tick()
    wanted = PageFilter(status=(404, 404))
    first = next(store.page_steps(crawl, wanted, detail="row", window=1))
    at = streams.after_page(first.cursor)
    connection = connect(topology, topology.masters[0])
    with connection.cursor() as db:
        execute = db.execute

        def moving(sql: str, values: Any = None) -> int:
            if "OFFSET" in sql and not moved:
                moved.append(store.commit(Commit([page(crawl, 4, 2000, status=404)])))
            return execute(sql, values)

        moved: list[Stamp] = []
        db.execute = moving  # type: ignore[method-assign]
        end, looked_at = streams.window(db, crawl, wanted, at, 3)
        assert moved
        assert end is not None, "the list would be through"
        assert looked_at == 3
        assert [one[2] for one, _ in streams.narrow(db, crawl, wanted, "row", at, end)] == [2, 3, 4]
    connection.close()


def test_a_steward_can_close_its_connection_while_a_query_runs(topology: Topology) -> None:
    admin = Admin(topology, topology.masters[0])
    asked = stopped(admin.row, "SELECT SLEEP(30)")
    admin.close()
    with pytest.raises(Unavailable):
        asked.get(timeout=5)


def test_a_node_that_joins_while_it_is_forgotten_keeps_its_orders(
    store: Store, topology: Topology
) -> None:
    store.put_member(member("w-0"))
    ordered = store.put_orders("w", NodeOptions(drain=True), (), "ann", 600)
    store.member_left("w-0", 10, "lost", 1000)
    with held(topology, "orders"):
        forgotten = stopped(store.forget_node, "w", "bob", 3000)
        assert store.put_member(member("w-1"))
    assert forgotten.get(timeout=10)
    assert [one.id for one in store.members()] == ["w-1"]
    assert store.orders().nodes == (ordered,)
    assert store.orders_log(1)[0].changed == {"forgotten": True}
