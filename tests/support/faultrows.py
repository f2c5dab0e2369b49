"""Rows 1 to 7 of ``make faults``: workers, brokers and Redis are killed, set back, emptied,
replaced.

Leases and requests are short where a lost Redis is recovered, since the node then rests for the
longest lease and the longest request; each result has its settings.
"""

from __future__ import annotations

import shutil
import signal
import time
import urllib.error
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from tests.support import oracle
from tests.support.faultrig import Blow, Fault, Leased, Result, Rig, Row, Say, run
from tests.support.redis_server import RedisServer
from tests.support.site_server import Hit
from tests.support.system import STOP_SECONDS, wait_until
from tests.support.web import WebSpec

LONG_LEASE = {"lease_seconds": "60", "request_seconds": "1"}
"""This lease is longer than the rows take: a host that is free earlier did not wait for its end."""
QUICK = 5000
"""Number of pages with a smaller web."""


def _row(fault: Fault, quick: Fault | None = None) -> Row:
    """Return a row that runs one fault; ``quick`` is that fault on a smaller web."""
    smaller = quick or replace(fault, web=replace(fault.web, pages=QUICK))

    def row(folder: Path, say: Say, small: bool) -> Result:
        return run(smaller if small else fault, folder, say)

    return row


# --- workers --------------------------------------------------------------------------------

WORKER_POINTS = (
    "worker.after_store",
    "worker.after_admit",
    "worker.before_finish",
    "worker.after_finish",
    "store.before_commit",
    "store.after_commit",
)


class KillWorkers:
    """kill -9 a worker at any moment, then ``times`` at each of :data:`WORKER_POINTS` in turn."""

    def __init__(self, times: int) -> None:
        self.points = WORKER_POINTS * times

    def __call__(self, rig: Rig) -> None:
        died, left = "any moment", list(self.points)
        rig.until_at_stake(2)
        while True:
            rig.system.kill("worker")
            with rig.blow(f"kill -9 a worker at {died}"):
                if died in WORKER_POINTS and rig.must_repeat():
                    left.insert(0, died)
                point = left.pop(0) if left else ""
                rig.system.start_worker(rig.armed(point))
            if not point:
                return
            share = 0.9 * (1 - (len(left) + 1) / (len(self.points) + 1))
            rig.die(rig.system.children()[0], after=share)
            died = point


KILL_WORKERS = Fault(
    "kill -9 a worker ten times at each boundary between stages",
    KillWorkers(times=10),
    "commit, then admit, then finish, all idempotent; a new incarnation reconciles",
    rows=(1,),
    web=WebSpec(hosts=250, pages=100_000),
    seeds=400,
    after=0.01,
    delay=0.01,
    settings={**LONG_LEASE, "greenlets": "150"},
)


def stop_worker(rig: Rig) -> None:
    """Send SIGTERM three times; unfetched tasks must be handed back, and nothing may be leased."""
    for share in (0.1, 0.3, 0.5):
        rig.until_at_stake(after=share)
        worker = rig.system.worker
        assert worker is not None
        with rig.blow("SIGTERM a worker"):
            worker.send_signal(signal.SIGTERM)
            status = worker.wait(STOP_SECONDS)
            left = len(rig.leased())
            rig.system.start_worker()
        if status or left:
            rig.find(f"a stopped worker ended with {status} and left {left} tasks leased")


STOP_WORKER = Fault(
    "SIGTERM a worker",
    stop_worker,
    "what is under way is stored and finished, the rest released",
    rows=(2,),
    web=WebSpec(pages=10_000),
    settings=LONG_LEASE,
    refetched="none",
)


# --- brokers --------------------------------------------------------------------------------


BROKER_POINTS = (
    "broker.after_lease_script",
    "broker.after_finish_script",
    "broker.after_close_script",
)


def kill_brokers(rig: Rig) -> None:
    """kill -9 twice at any moment, and at each of :data:`BROKER_POINTS`.

    The blows fall early in the crawl, so that pages are left if a blow must be repeated. It must be
    if leases end just when it falls: after a restart all hosts are leased together, and their
    leases may end together, too.
    """
    died, left = "", ["", *BROKER_POINTS]
    while True:
        if not died:
            rig.until_at_stake(2, after=0.04 * (5 - len(left)))
        rig.system.kill("broker")
        with rig.blow(f"kill -9 the broker at {died or 'any moment'}"):
            if died and rig.must_repeat():
                left.insert(0, died)
            point = left.pop(0) if left else ""
            rig.system.start_broker(rig.armed(point))
        if not (point or left):
            return
        if point:
            assert rig.system.broker is not None
            rig.die(psutil.Process(rig.system.broker.pid), after=0.04 * (5 - len(left)))
        died = point


def hosts_free_again(rig: Rig) -> float:
    """Return the longest time from the end of a fault to the next request at a host with leased
    URLs that were not yet asked for."""
    hits = sorted(rig.hits(), key=lambda hit: hit.arrived)
    first: dict[str, float] = {}
    for hit in hits:
        first.setdefault(f"http://{hit.address}:{rig.web.port}{hit.target}", hit.arrived)
    waits = [0.0]
    for blow in rig.blows:
        owed = {task.host for task in blow.leased if first.get(task.url, 0.0) > blow.over}
        for hit in hits:
            host = f"{hit.address}:{rig.web.port}"
            if hit.arrived > blow.over and host in owed:
                owed.remove(host)
                waits.append(hit.arrived - blow.over)
    return max(waits)


def _well_before_the_lease_ends(rig: Rig) -> list[str]:
    waited, lease = hosts_free_again(rig), float(rig.settings["lease_seconds"])
    return [f"a host was free only after {waited:.1f} s"] if waited > lease / 3 else []


KILL_BROKERS = Fault(
    "kill -9 the broker five times, also between script and answer",
    kill_brokers,
    "after a lost answer the worker reconciles: what it does not hold is released",
    rows=(3,),
    web=WebSpec(hosts=250, pages=10_000),
    seeds=250,
    after=0.04,
    delay=0.1,
    settings={**LONG_LEASE, "greenlets": "100"},
    check=_well_before_the_lease_ends,
    recovered=hosts_free_again,
)


# --- Redis ----------------------------------------------------------------------------------


def kill_redis(rig: Rig) -> None:
    """kill -9, and start it half a second later."""
    with rig.blow("kill -9 Redis"):
        rig.redis.kill()
        time.sleep(0.5)
        rig.redis.start()
    rig.until_leasing()


KILL_REDIS = Fault(
    "kill -9 Redis (everysec) and start it again",
    kill_redis,
    "another run_id: SQL's window is replayed; a rest for the longest lease and request",
    rows=(4,),
    web=WebSpec(pages=10_000),
    delay=0.1,
    refetched="any",
)

CUT_SECONDS = 2.0
RETRY_AFTER = 12


class PowerCut:
    """Kill Redis (kill -9), cut 2 s of writes and part of a command off the append-only file,
    restart.

    Ten hosts answer 429 before that, half of them within the 2 s. More than 2 s are cut off if no
    session was opened in them.
    """

    def __call__(self, rig: Rig) -> None:
        early, late = range(5), range(5, 10)
        self._throttle(rig, early)
        time.sleep(0.3)
        held = {task.token for task in rig.leased()}
        length = self._log(rig).stat().st_size
        began = time.monotonic()
        time.sleep(CUT_SECONDS / 3)
        self._throttle(rig, late)
        time.sleep(max(0.0, began + CUT_SECONDS - time.monotonic()))
        wait_until(
            lambda: any(task.token not in held for task in rig.leased()), 10, "a session is opened"
        )
        with rig.blow("power cut") as blow:
            rig.redis.kill()
            with self._log(rig).open("r+b") as file:
                rig.notes["bytes cut off"] = file.seek(0, 2) - length
                file.truncate(length - 3)
            rig.redis.start()
            restored = {task.token for task in rig.leased()}
        refused(rig, blow, restored)
        rig.until_leasing(restored)

    @staticmethod
    def _throttle(rig: Rig, hosts: range) -> None:
        before = len(_told_to_wait(rig))
        rig.web.throttle(hosts, RETRY_AFTER)
        wait_until(
            lambda: len(_told_to_wait(rig)) >= before + len(hosts), 10, "429 was answered", 0.05
        )

    @staticmethod
    def _log(rig: Rig) -> Path:
        """Return the file that grows: that of Redis 7, or of 6.2."""
        parts = sorted(rig.redis.folder.glob("appendonlydir/*.incr.aof"))
        return parts[-1] if parts else rig.redis.folder / "appendonly.aof"


def refused(rig: Rig, blow: Blow, restored: set[str]) -> None:
    """Finish with each token that Redis has forgotten: every answer must be ``stale``."""
    forgotten = [task for task in blow.leased if task.token not in restored]
    rig.notes["tasks under forgotten tokens"] = len(forgotten)
    if not forgotten:
        rig.find("every session was restored: no old token to try")
        return
    answers = _finish(rig, forgotten)
    taken = [status for status in answers if status != "stale"]
    if taken:
        rig.find(f"{len(taken)} of {len(answers)} old tokens were answered {set(taken)}")


def _finish(rig: Rig, tasks: list[Leased]) -> list[str]:
    items = [
        {
            "session": task.session,
            "token": task.token,
            "task": task.number,
            "outcome": {"type": "done"},
        }
        for task in tasks
    ]
    answers: list[str] = []

    def answered() -> bool:
        try:
            answers.extend(rig.system.call("POST", "/v1/finish", {"items": items})["results"])
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            return False
        return True

    wait_until(answered, 30, "the broker answers again", every=0.05)
    return answers


def _told_to_wait(rig: Rig) -> list[Hit]:
    return [hit for hit in rig.hits() if hit.status == 429]


def _blocks_hold(rig: Rig) -> list[str]:
    """Check that a host that answered 429 gets no request until its Retry-After is over."""
    findings = []
    hosts = oracle.by_host(rig.hits())
    for told in _told_to_wait(rig):
        until = told.ended + RETRY_AFTER
        early = [hit for hit in hosts[told.address] if told.ended < hit.arrived < until]
        findings += [
            f"{hit.address}: {hit.target} {until - hit.arrived:.2f} s before its block ends"
            for hit in early
        ]
    over = [told for told in _told_to_wait(rig) if told.ended + RETRY_AFTER > rig.blows[0].over]
    rig.notes["blocks in force after the cut"] = len(over)
    return findings if over else ["no block was in force after the cut"]


POWER_CUT = Fault(
    "power cut: append-only file cut back by 2 s of writes",
    PowerCut(),
    "SQL's window is replayed; unknown tokens are stale; blocks are written through to SQL",
    rows=(5,),
    web=WebSpec(pages=10_000),
    delay=0.1,
    refetched="any",
    check=_blocks_hold,
)


def delete_folder(rig: Rig) -> None:
    """kill -9 Redis, delete its data folder, start it empty."""
    with rig.blow("data folder deleted"):
        rig.redis.kill()
        shutil.rmtree(rig.redis.folder)
        rig.redis.start()
    rig.until_leasing()


DELETE_FOLDER = Fault(
    "Redis' data folder deleted",
    delete_folder,
    "an empty Redis is given all that SQL holds; a rest as for a killed one",
    rows=(6,),
    web=WebSpec(pages=10_000),
    delay=0.1,
    refetched="any",
)


class Promotion:
    """Cut the connection to the replica, go on for 2 s, kill the master, promote the replica.

    Greencrawl has the name of a Unix socket: a link that is turned to the replica, like a proxy or
    an address of the cluster.
    """

    def prepare(self, rig: Rig) -> None:
        """Start a master and a replica that has caught up."""
        name = rig.folder / "redis.sock"
        rig.redis = RedisServer(
            rig.folder / "redis",
            None,
            *("--unixsocket", str(rig.folder / "master.sock")),
            *("--repl-diskless-sync-delay", "0"),
        ).start()
        replica = RedisServer(
            rig.folder / "replica",
            None,
            *("--unixsocket", str(rig.folder / "replica.sock")),
            *("--replicaof", "127.0.0.1", str(rig.redis.port)),
        )
        rig.stack.callback(replica.stop)
        self.replica = replica.start()
        wait_until(
            lambda: self.replica.client.info("replication")["master_link_status"] == "up",
            20,
            "the replica has caught up",
        )
        name.symlink_to("master.sock")
        rig.addresses = [f"unix://{name}"]

    def __call__(self, rig: Rig) -> None:
        client = self.replica.client
        client.execute_command("REPLICAOF", "127.0.0.1", 1)  # nobody answers there
        time.sleep(CUT_SECONDS)
        with rig.blow("a replica 2 s behind is promoted") as blow:
            rig.notes["bytes behind"] = _offset(rig.redis) - _offset(self.replica)
            rig.redis.kill()
            client.execute_command("REPLICAOF", "NO", "ONE")
            fresh = rig.folder / "redis.new"
            fresh.symlink_to("replica.sock")
            fresh.replace(rig.folder / "redis.sock")
            rig.redis = self.replica
            restored = {task.token for task in rig.leased()}
        refused(rig, blow, restored)
        rig.until_leasing(restored)


def _offset(server: RedisServer) -> int:
    info: dict[str, Any] = server.client.info("replication")
    return int(info["master_repl_offset"])


_PROMOTION = Promotion()
PROMOTE_REPLICA = Fault(
    "a replica promoted while behind",
    _PROMOTION,
    "another run_id: what the replica lacks is in SQL's window; a rest as for a killed one",
    rows=(7,),
    web=WebSpec(pages=10_000),
    delay=0.1,
    refetched="any",
    prepare=_PROMOTION.prepare,
)

ROWS: dict[int, Row] = {
    1: _row(
        KILL_WORKERS,
        replace(
            KILL_WORKERS,
            inflict=KillWorkers(times=1),
            web=WebSpec(hosts=100, pages=QUICK),
            seeds=200,
        ),
    ),
    2: _row(STOP_WORKER),
    3: _row(KILL_BROKERS),
    4: _row(KILL_REDIS),
    5: _row(POWER_CUT),
    6: _row(DELETE_FOLDER),
    7: _row(PROMOTE_REPLICA),
}
