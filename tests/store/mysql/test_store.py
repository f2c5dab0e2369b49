"""The contract on a real MariaDB, and the particularities of MySQL."""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import gevent
import pymysql
import pytest
from gevent.server import StreamServer
from msgspec.structs import replace

from greencrawl.schema.errors import InvalidConfig, Unavailable, UnknownCrawl
from greencrawl.schema.records import Commit, CrawlOptions
from greencrawl.store.base import EVERY, Store
from greencrawl.store.errors import BodyAway, Unstorable
from greencrawl.store.mysql import streams
from greencrawl.store.mysql.cluster.routing import Cluster
from greencrawl.store.mysql.cluster.topology import Server, Topology, parse
from greencrawl.store.mysql.connection import connect
from greencrawl.store.mysql.ids import BITS, SINCE_MS, Numbers
from greencrawl.store.mysql.migrations import FOLDER, MysqlUpgrade, migrate, prepare
from greencrawl.store.mysql.store import MysqlStore
from greencrawl.store.warc.files import WarcFiles
from tests.support.mysql_database import rows_of, server, topology
from tests.support.ports import free_port
from tests.support.store_content import month
from tests.support.store_contract import Opener, StoreContract, crawl, store
from tests.support.store_records import attempt, beyond, final, links, page
from tests.support.system import wait_until

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


class TestMysql(StoreContract):
    pass


# -- opening


def test_stores_that_open_an_empty_database_at_once_set_it_up_once(topology: Topology) -> None:
    jobs = [gevent.spawn(MysqlStore, topology) for _ in range(5)]
    gevent.joinall(jobs, timeout=60)
    stores = [job.get(timeout=1) for job in jobs]
    assert stores[0].tick() + 1 == stores[4].tick()
    for one in stores:
        one.close()


@pytest.mark.parametrize("done", [True, False])
def test_a_store_that_opens_amid_a_set_up_waits_for_its_end(
    topology: Topology, store: Store, done: bool
) -> None:
    last = rows_of(topology, "SELECT * FROM migrations ORDER BY number DESC LIMIT 1")[0]
    rows_of(topology, f"DELETE FROM migrations WHERE number = {last[0]}")
    sets_up = connect(topology, topology.masters[0])
    with sets_up.cursor() as db:
        db.execute("SELECT GET_LOCK(CONCAT('greencrawl.', DATABASE()), 0)")
        opens = gevent.spawn(MysqlStore, topology)
        waits = "SELECT 1 FROM information_schema.processlist WHERE state = 'User lock'"
        wait_until(lambda: rows_of(topology, waits), 30, "it waits for the lock")
        if done:
            db.execute("INSERT INTO migrations VALUES (%s, %s, %s, %s)", last)
    sets_up.close()
    if done:
        opens.get(timeout=30).close()
    else:  # the process that was setting it up died
        with pytest.raises(InvalidConfig, match="is missing\\): run `greencrawl migrate`"):
            opens.get(timeout=30)


def test_an_earlier_database_is_refused_until_it_is_migrated(
    topology: Topology, store: Store, tmp_path: Path
) -> None:
    """The newer version applies its migration; this version goes on beside a migration that it
    does not know."""
    newer = tmp_path / "mysql"
    shutil.copytree(FOLDER, newer)
    more = newer / "9002_pre_more.sql"
    more.write_text(
        "CREATE TABLE IF NOT EXISTS more (n INT); \n"
        "-- a comment; in a line\nINSERT INTO more VALUES (1, 2);\n"
    )
    cluster = Cluster(topology)
    tick = store.tick()
    with pytest.raises(InvalidConfig, match=r"9002_pre_more is missing\): run `greencrawl"):
        prepare(cluster, newer)
    with pytest.raises(pymysql.err.OperationalError, match="Column count"):
        migrate(cluster, newer)  # half of it is done
    more.write_text(more.read_text().replace("(1, 2)", "(1)"))
    told: list[str] = []
    assert migrate(cluster, newer, told=lambda one: told.append(str(one))) == 1
    assert migrate(cluster, newer) == 0
    assert told == ["9002_pre_more"]
    prepare(cluster, newer)
    assert rows_of(topology, "SELECT n FROM more") == [(1,)]
    cluster.close()
    again = MysqlStore(topology)
    assert again.tick() == tick + 1
    again.close()


def test_an_upgrade_finishes_a_set_up_that_was_cut_off(topology: Topology, store: Store) -> None:
    tick = store.tick()
    rows_of(topology, "DELETE FROM migrations")
    rows_of(topology, "DROP TABLE overflow")
    upgrade = MysqlUpgrade(topology)
    assert [str(one) for one in upgrade.pending()] == [
        "0002_base", "0003_pre_parked", "0004_pre_directives", "0005_pre_items",
        "0006_pre_periods", "0007_pre_spans", "0008_pre_rounds", "0009_pre_calendar",
        "0010_pre_members", "0011_pre_samples",
    ]  # fmt: skip
    assert upgrade.apply(post=False, told=lambda _: None) == 10
    assert upgrade.apply(post=True, told=lambda _: None) == 0
    upgrade.close()
    again = MysqlStore(topology)
    assert again.overflow_places() == []
    assert again.tick() == tick + 1, "what is repeated changes nothing that was there"
    again.close()


def test_a_database_of_another_program_is_refused(topology: Topology) -> None:
    rows_of(topology, "CREATE TABLE customers (id INT)")
    with pytest.raises(InvalidConfig, match="has a table 'customers'"):
        MysqlStore(topology)
    with pytest.raises(InvalidConfig, match="has a table 'customers'"):
        MysqlUpgrade(topology).apply(post=True, told=lambda _: None)


def test_a_missing_server_is_unavailable_and_a_wrong_password_is_a_wrong_setting(
    topology: Topology,
) -> None:
    with pytest.raises(InvalidConfig, match="check user and password"):
        MysqlStore(dataclasses.replace(topology, password="wrong"))
    nobody = dataclasses.replace(topology, masters=(Server("127.0.0.1", free_port()),))
    with pytest.raises(Unavailable):
        MysqlStore(nobody)


# -- the capacity of a row


@pytest.mark.parametrize(
    ("account", "code"),
    [
        ("u1@'%' IDENTIFIED VIA unix_socket", "check user and password"),
        ("u1@'%' IDENTIFIED BY 'x' ACCOUNT LOCK", "locked"),
        ("u1@'%' IDENTIFIED BY 'x'", "may not use the database"),
    ],
)
def test_an_account_that_the_server_refuses_is_a_wrong_setting(
    topology: Topology, account: str, code: str
) -> None:
    rows_of(topology, f"CREATE USER {account}")
    try:
        with pytest.raises(InvalidConfig, match=code):
            MysqlStore(dataclasses.replace(topology, user="u1", password="x"))
    finally:
        rows_of(topology, "DROP USER u1@'%'")


def test_a_login_method_whose_package_is_missing_is_a_wrong_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pymysql._auth._have_cryptography", False)
    scramble = b"12345678" + b"901234567890"
    greeting = (
        b"\x0a8.0.40\0" + bytes(4) + scramble[:8] + b"\0" + b"\xff\xf7\x21\x02\0\xff\xdf\x15"
        + bytes(10) + scramble[8:] + b"\0caching_sha2_password\0"
    )  # fmt: skip

    def serve(client: gevent.socket.socket, _: object) -> None:
        """A server that needs the whole password, encrypted with its key: MySQL 8 without TLS."""
        for number, answer in ((0, greeting), (2, b"\x01\x04"), (4, b"\x01" + KEY)):
            client.sendall(len(answer).to_bytes(3, "little") + bytes([number]) + answer)
            client.recv(4096)

    mysql8 = StreamServer(("127.0.0.1", 0), serve)
    mysql8.start()
    try:
        with pytest.raises(InvalidConfig, match=r"GREENCRAWL_STORE.*cannot log in.*cryptography"):
            Cluster(parse(f"mysql://u:p@127.0.0.1:{mysql8.server_port}/t")).read(lambda _: None)
    finally:
        mysql8.stop()


KEY = b"-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n"


def test_quotes_backslashes_and_every_byte_come_back(store: Store, crawl: int) -> None:
    text = "".join(map(chr, range(256))) + "'\\'\"%s`;--\n漢字😀\\"
    body = bytes(range(256)) * 3 + b"\\'"
    written = page(
        crawl, 1, body=body, title=text, text=text, language=text, encoding=text,
        headers={text: text}, fields={text: [text]}, links=links(f"http://a/{text}"),
    )  # fmt: skip
    written.url = written.final_url = f"http://example.org/{text}"
    last = replace(final(crawl, 2), url=written.url, detail=text, kind=text)
    tried = attempt(crawl, 3, url=written.url, kind=text, worker=text, detail=text)
    store.commit(Commit([written], [tried], [last]))
    assert store.page(crawl, 1) == written
    assert store.final(crawl, 2) == last
    assert store.attempts(crawl, 3) == [tried]


def test_names_are_compared_as_bytes(store: Store) -> None:
    store.put_crawl("news", CrawlOptions(), [])
    for name in ("NEWS", "news ", "ñews"):
        with pytest.raises(UnknownCrawl):
            store.crawl(name)
    for host in ("a.org", "A.org", "a.org ", "á.org"):
        store.put_block(host, 2000, host)
    assert [name for name, _, _ in store.blocks(0)] == ["A.org", "a.org", "a.org ", "á.org"]


def test_the_wait_of_an_attempt_is_stored_as_null_if_it_is_not_finite(
    store: Store, crawl: int
) -> None:
    store.commit(Commit(attempts=[attempt(crawl, 1, n, wait=float(w)) for n, w in WAITS]))
    assert [one.wait for one in store.attempts(crawl, 1)] == [1e300, None, None]


def test_a_window_of_the_replay_log_has_no_row_of_a_crawl_that_is_being_deleted(
    store: Store, crawl: int
) -> None:
    store.commit(Commit([page(crawl, 1, links=links("http://a/"))], finals=[final(crawl, 2)]))
    assert [len(marks) for marks in store.replay_marks(0)] == [1, 1]
    store.add_purge(crawl)
    assert list(store.replay_marks(0)) == []
    assert list(store.replay_links(0)) == []


def test_a_status_beyond_its_column_is_cut_and_not_refused(store: Store, crawl: int) -> None:
    store.commit(Commit([page(crawl, 1, status=10**6), page(crawl, 2, status=-1)]))
    assert [one.status for _, one in store.pages(crawl)] == [32_767, 0]


WAITS = ((1, "nan"), (2, "inf"), (3, "1e300"))


def test_a_commit_with_a_record_larger_than_a_packet_fails_and_names_it(
    store: Store, crawl: int, topology: Topology
) -> None:
    ((before,),) = rows_of(topology, "SELECT @@global.max_allowed_packet")
    rows_of(topology, "SET GLOBAL max_allowed_packet = 1048576")
    try:
        other = MysqlStore(topology)  # a session keeps the mode with which it began
        noise = random.Random(1).randbytes(1_200_000)
        big = page(crawl, 2, body=noise)
        small = [page(crawl, n, body=noise[n : n + 90_000]) for n in range(10, 40)]
        with pytest.raises(Unstorable, match="max_allowed_packet") as caught:
            other.commit(Commit([*small, big]))
        assert caught.value.url == big.url
        assert other.counts(crawl)["pages"] == 0
        other.commit(Commit(small))  # 2.7 MB, in several statements
        assert {one.body for _, one in other.pages(crawl, detail="body")} == {
            one.body for one in small
        }
        other.close()
    finally:
        rows_of(topology, f"SET GLOBAL max_allowed_packet = {before}")


def test_a_record_that_the_server_refuses_is_named(store: Store, crawl: int) -> None:
    bad = page(crawl, 2, title="t" * 17_000_000)  # a column holds 16 MB
    with pytest.raises(Unstorable, match="too long") as caught:
        store.commit(Commit([page(crawl, 1), bad, page(crawl, 3)], [attempt(crawl, 1)]))
    assert caught.value.url == bad.url
    assert store.counts(crawl)["pages"] == 0
    with pytest.raises(Unstorable, match="17 bytes") as caught:
        store.commit(Commit([page(crawl, 1, digest=b"x" * 17)]))
    assert caught.value.url == page(crawl, 1).url


# -- sums, bodies, months


def test_sums_are_exact_after_repetitions_and_replacements(store: Store, crawl: int) -> None:
    work = Commit(
        [page(crawl, n, body=b"%d" % n) for n in range(10)],
        [attempt(crawl, n) for n in range(10)],
        [final(crawl, n, state="gone") for n in range(20, 25)],
    )
    for _ in range(3):
        store.commit(work)
    store.commit(Commit([page(crawl, n, 2000, status=404) for n in range(3)]))
    store.commit(Commit([page(crawl, 20, 2000)], finals=[final(crawl, 21, 3000, "dead")]))
    assert store.counts(crawl) == {
        "pages": 8, "bytes": 7, "attempts": 10, "hosts": 1, "dead": 1, "gone": 3, "excluded": 0,
        "parked": 0,
    }  # fmt: skip
    assert store.requeue_dead(crawl) is not None
    assert store.counts(crawl)["dead"] == 0
    assert store.requeue_dead(crawl) is None


def test_equal_bodies_take_one_row_and_a_refetch_replaces_the_wide_row(
    store: Store, crawl: int, topology: Topology
) -> None:
    for fetched_ms in (1000, 2000, 3000):
        store.commit(Commit([page(crawl, n, fetched_ms, body=b"same") for n in range(20)]))
    tables = ("pages", "contents", "bodies", "digests", "versions")
    counted = {name: rows_of(topology, f"SELECT COUNT(*) FROM {name}")[0][0] for name in tables}
    assert counted == {"pages": 20, "contents": 20, "bodies": 1, "digests": 1, "versions": 40}


def test_a_window_of_the_replay_log_costs_only_what_happened_in_it(
    store: Store, topology: Topology
) -> None:
    """It reads no rows of the overflow, of pages or of crawls outside of the window."""

    def rows_read() -> int:
        found = rows_of(topology, "SHOW GLOBAL STATUS LIKE 'Handler_read%'")
        return sum(int(count) for _, count in found)

    spent = []
    for count in (20, 200):
        for n in range(count // 10):
            one = store.put_crawl(f"{count}-{n}", CrawlOptions(), []).id
            store.put_overflow(one, beyond([3] * count, host="a.org"))
            store.overflow_taken(store.overflow(one, 7, "a.org", count // 2), "n", 1)
            store.commit(Commit([page(one, 1, links=links("http://a/"))]))
        since = store.tick()
        before = rows_read()
        store.free_overflow(7, since)
        assert list(store.overflow_since(7, since)) == []
        assert list(store.replay_links(since)) == list(store.replay_marks(since)) == []
        spent.append(rows_read() - before)
    assert spent[1] < spent[0] + 20 * 15, "three look-ups a crawl, of 20 more"


def test_a_purge_counts_the_rows_that_it_removes(store: Store, crawl: int) -> None:
    for fetched_ms in (1000, 2000):
        pages = [page(crawl, n, fetched_ms, body=b"%d" % n) for n in range(300)]
        store.commit(Commit(pages, [attempt(crawl, n) for n in range(300)], [final(crawl, -1)]))
    store.put_overflow(crawl, beyond([3] * 5, host="a.org"))
    store.add_seeds(crawl, links("http://a/"))
    purge = store.add_purge(crawl)
    size = store.purge_size(purge)
    while store.purge_step(purge):
        (left,) = store.purges()
        assert left.removed <= size
    assert left.removed == size == 2 * 300 + 2 * 300 + 300 + 300 + 1 + 5 + 1
    assert store.purges() == []


def test_months_of_the_journal_are_partitions_that_are_dropped_as_a_whole(
    store: Store, crawl: int, topology: Topology
) -> None:
    def partitions() -> dict[str, int]:
        return {
            name: rows_of(topology, f"SELECT COUNT(*) FROM attempts PARTITION ({name})")[0][0]
            for (name,) in rows_of(
                topology,
                "SELECT partition_name FROM information_schema.partitions WHERE table_name = "
                "'attempts' AND table_schema = DATABASE() ORDER BY partition_ordinal_position",
            )
        }

    store.commit(Commit(attempts=[attempt(crawl, 1, month(2031, n)) for n in range(1, 7)]))
    assert partitions() == {"rest": 6}
    store.prepare_months(month(2031, 2))
    expected = {"m203102": 2, "m203103": 1, "m203104": 1, "rest": 2}
    assert partitions() == expected, "what nobody prepared is divided"
    store.prepare_months(month(2031, 2))
    store.prepare_months(month(2030, 1))
    assert partitions() == expected
    store.prepare_months(month(2031, 3))
    assert list(partitions()) == ["m203102", "m203103", "m203104", "m203105", "rest"]
    assert next(store.drop_months(month(2031, 4))) == 1
    assert list(partitions()) == ["m203103", "m203104", "m203105", "rest"], "a step is a month"
    assert list(store.drop_months(month(2031, 4))) == [1]
    assert partitions() == {"m203104": 1, "m203105": 1, "rest": 1}
    store.prepare_months(2**63 - 1)
    store.commit(Commit(attempts=[attempt(crawl, 2, 2**63 - 1), attempt(crawl, 2, -(2**63))]))
    assert len(store.attempts(crawl, 2)) == 2


def test_bodies_in_files_are_found_by_their_place(
    topology: Topology, tmp_path: Path, open_store: Opener
) -> None:
    files = MysqlStore(topology, WarcFiles(tmp_path / "warc"))
    crawl = files.put_crawl("a", CrawlOptions(), []).id
    same = [page(crawl, n, body=b"same" * 500) for n in range(5)]
    files.commit(Commit([*same, page(crawl, 9, body=b"other"), page(crawl, 10)]))
    files.commit(Commit([page(crawl, 11, body=b"same" * 500)]))
    bodies = {one.fingerprint: one.body for _, one in files.pages(crawl, detail="body")}
    assert bodies == {**dict.fromkeys((*range(5), 11), b"same" * 500), 9: b"other", 10: b""}
    kept = rows_of(topology, "SELECT file <> '', length > 0, LENGTH(body) FROM bodies")
    assert kept == [(1, 1, 0)] * 2
    in_sql = open_store()
    with pytest.raises(BodyAway):
        in_sql.page(crawl, 1)
    assert in_sql.page(crawl, 1, detail="text") is not None
    files.close()


def test_rare_final_states_are_asked_for_in_bounded_steps(
    store: Store, crawl: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "WINDOW", 50)
    store.commit(Commit(finals=[final(crawl, n, n) for n in range(2000, 3000)]))
    assert isinstance(store, MysqlStore)
    after: int | None = None
    found: list[int] = []
    for _ in range(21):
        some, after = store._cluster.read(partial(streams.finals, crawl=crawl, since_ms=2990,
                                                  after=after))  # fmt: skip
        found += [row[1] for row in some]
        if after is None:
            break
    assert (after, found) == (None, list(range(2990, 3000)))
    assert [one.fingerprint for _, one in store.finals(crawl, 2990)] == found
    assert len(list(store.finals(crawl))) == 1000


def test_a_stream_reads_as_many_wide_rows_as_fit(store: Store, crawl: int) -> None:
    noise = random.Random(2).randbytes(9_000_000)
    store.commit(Commit([page(crawl, n, body=noise[n * 3_000_000 :][:3_000_000]) for n in (0, 1)]))
    store.commit(Commit([page(crawl, 2, body=noise), page(crawl, 3, text="t"), page(crawl, 4)]))
    assert isinstance(store, MysqlStore)
    found = store._cluster.read(lambda db: streams.narrow(db, crawl, EVERY, "body", streams.START))
    parts = [[at[2] for at in part] for part in streams.parts(found)]
    assert parts == [[0, 1], [2], [3, 4]]
    sizes = dict(zip((0, 1, 2, 3, 4), (size for _, size in found), strict=True))
    assert all(3_000_000 < sizes[n] < 3_010_000 for n in (0, 1))


def test_numbers_of_rows_rise_though_the_clock_jumps_back() -> None:
    times = iter([SINCE_MS + 5, SINCE_MS + 6, SINCE_MS + 2, 0, SINCE_MS + 7])
    numbers = Numbers(lambda: next(times))
    taken = [numbers.take(n) for n in (1, 3_000_000, 5, 1, 1)]
    assert all(b >= a + n for a, b, n in zip(taken, taken[1:], (1, 3_000_000, 5, 1), strict=False))
    assert 5 << BITS <= taken[0] < 6 << BITS
    assert max(taken) < 2**63
