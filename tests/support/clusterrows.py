"""The rows of ``make cluster-faults``; a short version of some runs in ``make test-cluster``."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql

from greencrawl.store import open_store
from tests.support.clusterrig import POINT, ClusterRig, run_on_cluster
from tests.support.faultrig import Fault, Result, Rig, Row, Say
from tests.support.proxy import TcpProxy
from tests.support.system import System, wait_until
from tests.support.web import WebSpec

QUICK_PAGES = 4000
AWAY_SECONDS, QUICK_AWAY_SECONDS = 60.0, 12.0
TAKEOVER_SECONDS = 40.0
SETTINGS = {"lease_seconds": "20", "request_seconds": "5"}
WEB = WebSpec(pages=6000)


def _cluster(rig: Rig) -> ClusterRig:
    assert isinstance(rig, ClusterRig)
    return rig


def _until_taken_over(rig: ClusterRig, old: str) -> None:
    """Wait until the other master takes writes."""
    wait_until(
        lambda: rig.writer() == rig.other(old), TAKEOVER_SECONDS, "a takeover", every=0.1
    )  # fmt: skip


def kill_writer(rig: Rig) -> None:
    """Kill the writing master (kill -9) while commits wait for the other; it comes back, and
    rejoins.

    The other is stopped for as long as that takes, so that such commits exist.
    """
    rig = _cluster(rig)
    old = rig.writer()
    partner = rig.cluster.servers[rig.other(old)]
    partner.freeze()
    try:
        wait_until(lambda: rig.hanging(old) > 0, 20, "a commit waits", every=0.05)
        with rig.blow("kill -9 of the writing master"):
            rig.notes["commits that waited"] = rig.hanging(old)
            rig.cluster.servers[old].kill()
            partner.thaw()
            _until_taken_over(rig, old)
    finally:
        partner.thaw()
    rig.notes["takeover s"] = round(rig.blows[-1].over - rig.blows[-1].at, 1)
    survivor = rig.other(old)
    before = {url for at, url in rig.acked() if at < rig.blows[-1].at}
    lacking = before - rig.stored_on(survivor)
    rig.notes["acknowledged before the kill"] = len(before)
    if lacking:
        rig.find(f"{len(lacking)} acknowledged URLs are not on the survivor at the takeover")
    rig.cluster.start([old])
    rig.notes["back in the ring s"] = round(rig.until_ring(), 1)


class BothAway:
    """Kill both masters; start them again after ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, rig: Rig) -> None:
        rig = _cluster(rig)
        with rig.blow(f"both masters away for {self.seconds:g} s"):
            for name in ("m1", "m2"):
                rig.cluster.servers[name].kill()
            time.sleep(self.seconds)
            rig.cluster.start(["m1", "m2"])
        wait_until(rig.writer, TAKEOVER_SECONDS, "a master takes writes", every=0.1)
        rig.notes["until writes s"] = round(time.monotonic() - rig.blows[-1].over, 1)
        rig.notes["back in the ring s"] = round(rig.until_ring(), 1)


LAG_SECONDS = 1.0


class Replicas:
    """One replica applies nothing, one is killed: reads within the bound avoid them."""

    def __call__(self, rig: Rig) -> None:
        rig = _cluster(rig)
        with rig.asking("r1") as db:
            with rig.blow("a lagging and a dead replica"):
                db.execute("FLUSH TABLES WITH READ LOCK")
                rig.cluster.servers["r2"].kill()
                time.sleep(2 * LAG_SECONDS)
                self._read(rig)
            db.execute("UNLOCK TABLES")
        rig.cluster.start(["r2"])

    def _read(self, rig: ClusterRig) -> None:
        """Check that streams have everything that was acknowledged longer ago than the bound."""
        store = open_store(rig.cluster.url() + f"&lag={LAG_SECONDS:g}")
        try:
            crawl = store.crawl("test").id
            for _ in range(6):  # each replica has its turn
                time.sleep(0.5)
                limit = time.monotonic() - LAG_SECONDS - 0.5
                old = {url for at, url in rig.acked() if at < limit}
                found = {page.url for _, page in store.pages(crawl, detail="row")}
                if not old <= found:
                    rig.find(f"{len(old - found)} URLs older than the lag bound were not read")
            rig.notes["on the writer, not on r1"] = len(
                rig.stored_on(rig.writer()) - rig.stored_on("r1")
            )
        finally:
            store.close()


DISK_BYTES = 300 * 1024 * 1024
LEFT_BYTES = 4 * 1024 * 1024
FULL_SECONDS = 25.0
HELD_SECONDS = 3.0


class FullDisk:
    """The writing master's folder is a small file system, which is full for a while."""

    def prepare(self, rig: Rig) -> None:
        """Mount the file system before the server is made."""
        folder = rig.folder / "c" / "m1"
        folder.mkdir(parents=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "greencrawl", str(folder)],
            check=True,
        )
        rig.stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=False)

    def __call__(self, rig: Rig) -> None:
        rig = _cluster(rig)
        ballast = rig.folder / "c" / "m1" / "ballast"
        _fill(ballast, LEFT_BYTES)
        rig.until_at_stake()
        with rig.blow("disk full under the writing master"):
            _fill(ballast)
            time.sleep(FULL_SECONDS)
            rig.notes["bytes free while full"] = _free(ballast.parent)
            rig.notes["takes writes then"] = rig.writer()
            ballast.unlink()
        if (rig.silence() or 0) < HELD_SECONDS:
            rig.find("the full disk held up no commit")
        server = rig.cluster.servers["m1"]
        rig.notes["m1 lives"] = server.pid is not None
        log = (server.folder / "log").read_text(errors="replace").splitlines()
        said = [line.partition("[ERROR]")[2].strip() for line in log if "[ERROR]" in line]
        rig.notes["m1 said"] = said[:1]
        if not self._answers(rig):  # it may wait for a minute before it looks for room again
            rig.notes["m1 was started again"] = True
            server.kill()
            rig.cluster.start(["m1"])
        rig.until_ring()

    def _answers(self, rig: ClusterRig) -> bool:
        try:
            rig.ask("m1", "INSERT INTO fence SELECT * FROM fence WHERE FALSE")
        except pymysql.MySQLError:
            return False
        return True


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_bsize


def _fill(path: Path, left: int = 0) -> None:
    chunk = b"x" * (1 << 16)
    with path.open("ab", buffering=0) as file:
        while _free(path.parent) > left:
            try:
                file.write(chunk)
            except OSError:
                if len(chunk) == 1:
                    return  # the servers write at the same time
                chunk = chunk[: len(chunk) // 2]


def freeze_writer(rig: Rig) -> None:
    """Freeze the writing master with SIGSTOP (its port accepts, but does not answer), and resume it
    later."""
    rig = _cluster(rig)
    old = rig.writer()
    with rig.blow("the writing master hangs"):
        rig.cluster.servers[old].freeze()
        _until_taken_over(rig, old)
    rig.notes["takeover s"] = round(rig.blows[-1].over - rig.blows[-1].at, 1)
    time.sleep(2.0)
    rig.cluster.servers[old].thaw()
    _restart_if_stuck(rig, old)


def _restart_if_stuck(rig: ClusterRig, old: str) -> None:
    """Do what ``store status`` advises for commits that hang on the old writer: kill and start
    it."""
    began = time.monotonic()
    time.sleep(6.0)
    hangs = [note for note in rig.report().findings if "kill -9" in note]
    rig.notes["commits hung on the old writer"] = bool(hangs)
    if hangs:
        rig.cluster.servers[old].kill()
        rig.cluster.start([old])
    rig.until_ring()
    rig.notes["back in the ring s, at most"] = round(time.monotonic() - began, 1)


class Partition:
    """m1 and one worker on one side; the brokers, m2, the replicas and another worker on the other.

    Nothing is refused: packets are lost. Each worker reaches the brokers all the time.
    """

    def prepare(self, rig: Rig) -> None:
        """Let all but the lonely worker reach m1 by a proxy, and let that worker reach m2 by
        another."""
        rig = _cluster(rig)
        ports = rig.cluster.ports
        self.m1 = rig.stack.enter_context(TcpProxy(("127.0.0.1", ports["m1"])))
        self.m2 = rig.stack.enter_context(TcpProxy(("127.0.0.1", ports["m2"])))
        rig.use(rig.cluster.url({"m1": self.m1.address}))
        self.lonely_url = rig.cluster.url({"m2": self.m2.address})

    def second(self, rig: Rig) -> Sequence[str]:
        """Start the lonely worker, before there is work; it seeds nothing further."""
        rig = _cluster(rig)
        self.log = rig.folder / "acknowledged beside m1"
        given: dict[str, Any] = {
            **rig.settings, "worker_id": "lonely", "store": self.lonely_url,
            "store_steward": "", "data": str(rig.folder / "data2"),
            "broker": f"http://127.0.0.1:{rig.system.port}",
        }  # fmt: skip
        lonely = System(rig.folder / "lonely", [rig.redis.url], **given)
        rig.stack.enter_context(lonely).start_worker(f"{POINT}>{self.log.absolute()}")
        wait_until(self.log.exists, 90, "the lonely worker has begun")
        return ()

    def __call__(self, rig: Rig) -> None:
        rig = _cluster(rig)
        log = self.log
        wait_until(log.read_text, 90, "the lonely worker has committed")
        rig.until_at_stake()
        with rig.blow("two workers and two masters apart"):
            self.m1.drop()
            self.m2.drop()
            _until_taken_over(rig, "m1")
            taken = time.monotonic()
            wait_until(
                lambda: any(at > taken for at, _ in rig.acked()), 30, "a commit on the new writer"
            )
            time.sleep(5.0)
            rig.notes["commits that waited on m1"] = rig.hanging("m1")
            lines = [line.partition("\t") for line in log.read_text().splitlines()]
            late = [url for at, _, url in lines if float(at) > taken]
            if late:
                rig.find(f"{len(late)} commits were acknowledged by m1 after the takeover")
            rig.notes["acknowledged by m1 after the takeover"] = len(late)
            self.m2.mend()
            self.m1.mend()
        _restart_if_stuck(rig, "m1")


_PARTITION, _DISK = Partition(), FullDisk()

KILL = Fault(
    "kill -9 of the writing master; it rejoins",
    kill_writer,
    "each commit is on both masters before it is acknowledged; a takeover by votes, one epoch up",
    rows=(1,), web=WEB, delay=0.05, settings=SETTINGS, refetched="any",
)  # fmt: skip
AWAY = Fault(
    "both masters away",
    BothAway(AWAY_SECONDS),
    "workers keep what they fetched and wait; nothing is charged",
    rows=(2,), web=WEB, delay=0.05, settings=SETTINGS, refetched="any", done_seconds=180,
)  # fmt: skip
REPLICAS = Fault(
    "a lagging and a dead replica",
    Replicas(),
    "positions tell who lags; streams go to a replica that is near, else to the writer",
    rows=(3,), web=WEB, delay=0.05, settings=SETTINGS, refetched="any",
)  # fmt: skip
DISK = Fault(
    "disk full under the writing master",
    _DISK,
    "what does not commit is not acknowledged; the other master takes over",
    rows=(4,), web=WEB, delay=0.05, settings=SETTINGS, refetched="any", prepare=_DISK.prepare,
    done_seconds=180,
)  # fmt: skip
FREEZE = Fault(
    "the writing master accepts and hangs",
    freeze_writer,
    "time-outs; a takeover; what the old one still commits gets no acknowledgement",
    rows=(5,), web=WEB, delay=0.05, settings=SETTINGS, refetched="any", done_seconds=180,
)  # fmt: skip
PARTITION = Fault(
    "two workers cut off with different masters",
    _PARTITION,
    "a master without an acknowledger commits nothing; a majority of votes opens the other",
    rows=(6,), web=WEB, delay=0.05, settings=SETTINGS, refetched="any",
    prepare=_PARTITION.prepare, seeds_extra=_PARTITION.second, done_seconds=180,
)  # fmt: skip


def _row(fault: Fault) -> Row:
    def run_row(folder: Path, say: Say, small: bool) -> Result:
        return run_on_cluster(quick(fault) if small else fault, folder, say)

    return run_row


def quick(fault: Fault) -> Fault:
    """Return a fault with fewer pages and shorter times."""
    inflict = BothAway(QUICK_AWAY_SECONDS) if fault is AWAY else fault.inflict
    pages = 2 * QUICK_PAGES if fault is DISK else QUICK_PAGES
    return replace(fault, inflict=inflict, web=replace(fault.web, pages=pages), least_leases=100)


def disk(folder: Path, say: Say, small: bool) -> Result:
    """Run row 4, if a file system can be mounted."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        result = Result(DISK.name, DISK.rows, DISK.mechanism)
        result.why_not.append("mounting a small file system takes root")
        return result
    return _row(DISK)(folder, say, small)


ROWS: dict[int, Row] = {
    1: _row(KILL),
    2: _row(AWAY),
    3: _row(REPLICAS),
    4: disk,
    5: _row(FREEZE),
    6: _row(PARTITION),
}
