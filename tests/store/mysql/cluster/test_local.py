"""The five servers of ``make cluster``, and features of MariaDB on which the takeover relies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gevent
import pymysql
import pytest

from greencrawl.cli.main import main
from greencrawl.store.mysql.cluster.local.cluster import DATABASE, NAMES, LocalCluster
from greencrawl.store.mysql.cluster.local.options import PLAIN
from greencrawl.store.mysql.cluster.local.server import LocalServer, Missing, program, template
from greencrawl.store.mysql.cluster.steward import by_hand
from greencrawl.store.steward import steward_of
from tests.support.effort import by_night
from tests.support.mariadb import local_cluster
from tests.support.ports import free_ports
from tests.support.system import wait_until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A formed cluster; m1 takes writes, m2 acknowledges."""
    made = local_cluster(tmp_path / "c")
    try:
        made.start()
        steward = steward_of(made.url(), made.steward)
        assert steward is not None
        by_hand.form(steward)
        steward.close()
        yield made
    finally:
        made.stop()


def application(
    cluster: LocalCluster, name: str
) -> pymysql.connections.Connection[pymysql.cursors.Cursor]:
    """Return a connection for an account of GREENCRAWL_STORE."""
    password = cluster.url().split(":")[2].partition("@")[0]
    return pymysql.connect(
        host="127.0.0.1", port=cluster.ports[name], user=DATABASE, password=password,
        database=DATABASE, autocommit=True, read_timeout=30, ssl_disabled=True,
    )  # fmt: skip


def rows(cluster: LocalCluster, name: str) -> list[int]:
    with cluster.root(name) as connection, connection.cursor() as db:
        db.execute(f"SELECT a FROM {DATABASE}.probe ORDER BY a")
        return [a for (a,) in db.fetchall()]


def probe(cluster: LocalCluster) -> None:
    """A table with one acknowledged row, on all servers."""
    with application(cluster, "m1") as connection, connection.cursor() as db:
        db.execute("CREATE TABLE probe (a INT PRIMARY KEY) ENGINE = InnoDB")
        db.execute("INSERT INTO probe VALUES (1)")

    def everywhere() -> bool:
        try:
            return all(rows(cluster, name) == [1] for name in NAMES)
        except pymysql.MySQLError:
            return False  # the table is not there yet

    wait_until(everywhere, 20, "all servers have the row", every=0.05)


def test_a_commit_that_nobody_acknowledged_is_rolled_back_when_the_killed_master_starts(
    cluster: LocalCluster,
) -> None:
    probe(cluster)
    cluster.servers["m2"].freeze()

    def write() -> str:
        try:
            with application(cluster, "m1") as connection, connection.cursor() as db:
                db.execute("INSERT INTO probe VALUES (2)")
        except pymysql.MySQLError:
            return "lost"
        return "answered"

    writing = gevent.spawn(write)
    with cluster.root("m1") as connection, connection.cursor() as db:

        def hangs() -> bool:
            assert not writing.ready(), writing.value
            db.execute("SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_master_wait_sessions'")
            return (db.fetchone() or ("", "0"))[1] == "1"

        wait_until(hangs, 20, "the commit waits for its acknowledgement")
        db.execute("SELECT @@global.gtid_binlog_pos")
        assert "1-1-3" in str(db.fetchone())
    cluster.servers["m1"].kill()
    assert writing.get(timeout=20) == "lost"
    cluster.servers["m1"].start()
    assert rows(cluster, "m1") == [1]
    with cluster.root("m1") as connection, connection.cursor() as db:
        db.execute("SELECT @@global.gtid_binlog_pos, @@global.read_only")
        position, read_only = db.fetchone() or ("", 0)
        assert position == "1-1-2"
        assert read_only == 1


@pytest.mark.parametrize("name", ["m2", "r1"])
def test_the_application_cannot_write_to_a_server_that_takes_no_writes(
    cluster: LocalCluster, name: str
) -> None:
    probe(cluster)
    with application(cluster, name) as connection, connection.cursor() as db:
        with pytest.raises(pymysql.OperationalError, match="read-only"):
            db.execute("INSERT INTO probe VALUES (3)")
        with pytest.raises(pymysql.OperationalError, match="READ_ONLY ADMIN"):
            db.execute("SET GLOBAL read_only = OFF")


@by_night
def test_another_process_finds_the_servers_and_stops_them(cluster: LocalCluster) -> None:
    pids = {name: server.pid for name, server in cluster.servers.items()}
    again = LocalCluster(cluster.folder)
    again.start()
    assert {name: server.pid for name, server in again.servers.items()} == pids
    assert again.url() == cluster.url()
    again.stop()
    wait_until(
        lambda: all(server.pid is None for server in cluster.servers.values()),
        20,
        "who started them has noticed",
    )


def test_a_pid_file_is_ignored_if_its_process_is_no_server_now(tmp_path: Path) -> None:
    server = LocalServer(tmp_path, 1, {})
    (tmp_path / "pid").write_text("1")
    assert server.pid is None


def test_missing_server_programs_are_named_with_their_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    with pytest.raises(Missing, match="mariadb-server"):
        local_cluster(tmp_path / "c").start()
    assert main(["store", "local", "--folder", str(tmp_path / "c")]) == 1
    assert "apt-get install mariadb-server" in capsys.readouterr().err


def test_a_missing_part_of_the_installer_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run the script itself, as on a machine that has the core package of the server but not that
    of the clients."""
    installer = tmp_path / "bin" / "mariadb-install-db"
    installer.parent.mkdir()
    text = Path(program("mariadb-install-db")).read_text()
    assert "/usr/bin/my_print_defaults" in text
    installer.write_text(text.replace("/usr/bin/my_print_defaults", f"{tmp_path}/nothing"))
    installer.chmod(0o755)
    monkeypatch.setenv("PATH", f"{installer.parent}:/usr/bin:/bin")
    with pytest.raises(Missing, match=r"nothing is not installed: apt-get install mariadb-server"):
        template(tmp_path / "c")
    assert not list((tmp_path / "c").iterdir())


def test_a_local_server_starts_if_the_environment_names_an_unknown_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment may name a user whose account this machine does not have."""
    monkeypatch.setenv("LOGNAME", "nobody-of-this-name")
    server = LocalServer(tmp_path / "one", free_ports(1)[0], PLAIN)
    try:
        assert server.start()
        with server.root() as connection, connection.cursor() as db:
            db.execute("SELECT 1")
            assert db.fetchone() == (1,)
    finally:
        server.stop()


def test_the_store_command_starts_shows_hands_over_and_stops_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "c")
    monkeypatch.chdir(tmp_path)
    cluster = local_cluster(tmp_path / "c")
    try:
        assert main(["store", "local", "--folder", folder]) == 0
        said = capsys.readouterr().out
        assert f"export GREENCRAWL_STORE='{cluster.url()}'" in said
        monkeypatch.setenv("GREENCRAWL_STORE", cluster.url())
        monkeypatch.setenv("GREENCRAWL_STORE_STEWARD", cluster.steward)
        assert main(["store", "status"]) == 0
        said = capsys.readouterr().out
        m1, m2 = (f"127.0.0.1:{cluster.ports[name]}" for name in ("m1", "m2"))
        assert f"{m1} takes writes since epoch 1, acknowledged by {m2}" in said
        assert main(["store", "takeover"]) == 0
        assert f"{m2} takes writes since epoch 2" in capsys.readouterr().out
        cluster.servers["r3"].kill()
        assert main(["store", "status"]) == 1
        said = capsys.readouterr().out
        assert f"127.0.0.1:{cluster.ports['r3']}  replica" in said
        assert "away" in said
        assert main(["store", "takeover", "127.0.0.1:1"]) == 2
    finally:
        assert main(["store", "local", "--folder", folder, "--stop"]) == 0
    ended = [server for server in cluster.servers.values() if server.pid is None]
    assert len(ended) == len(NAMES)


def test_the_status_says_that_nobody_may_decide_while_the_servers_are_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = local_cluster(tmp_path / "c")
    monkeypatch.setenv("GREENCRAWL_STORE", cluster.url())
    assert main(["store", "status"]) == 1
    assert "nobody may decide: 0 of 5" in capsys.readouterr().out
