"""A command is killed with -9, and started again while its broker has no parent.

Redis is bundled with the broker, and blocks while it reads a file that is a pipe.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path

import psutil
import pytest

from greencrawl.cli.local.site_server import Site
from greencrawl.schema import file_lock
from greencrawl.schema.clock import monotonic
from greencrawl.schema.records import Admission, Commit, CrawlOptions
from greencrawl.store import open_store
from greencrawl.store.sqlite.connection import opening
from tests.cli.commands.test_crawl import (
    FAST,
    SLOW,
    Command,
    _family,
    _ours,
    command,
    end,
    root,
    site,
    until,
)
from tests.support.effort import by_night
from tests.support.store_records import page

__all__ = ["command", "root", "site"]

ENDS_SECONDS = 5.0
"""The longest time until a broker ends; on an idle machine it takes a tenth of it."""
LINKS = 40_000


def broker_of(command: Command) -> int:
    """Return the process id of the broker that has the embedded Redis of the folder, 0 if there is
    none."""
    return int(file_lock.holder(command.folder / "data" / "redis" / "lock") or 0)


def first_line(process: subprocess.Popen[str]) -> str:
    """Return the first message of a command on standard error; "" if there is none for long."""
    assert process.stderr is not None
    ready, _, _ = select.select([process.stderr], [], [], 60)
    return process.stderr.readline() if ready else ""


def ended(command: Command) -> float:
    """Return the seconds until no broker uses the folder."""
    began = monotonic()
    until(lambda: not broker_of(command), "the orphan has ended")
    return monotonic() - began


def test_a_broker_that_waits_for_redis_ends_when_its_command_is_killed(
    command: Command, site: Site, root: str
) -> None:
    redis = command.folder / "data" / "redis"
    redis.mkdir(parents=True)
    os.mkfifo(redis / "appendonly.aof")
    process = command.start("crawl", root, *FAST)
    until(lambda: any("redis-server" in one.name() for one in _family(process)), "Redis blocks")
    process.kill()
    process.wait()
    assert ended(command) < ENDS_SECONDS
    until(lambda: not _ours(command.folder), "nothing is left", ENDS_SECONDS)
    (redis / "appendonly.aof").unlink()
    code, _, err = command.run("crawl", root, *FAST)
    assert code == 0, err
    assert "31 pages stored" in err


@by_night
def test_a_broker_in_a_replay_ends_when_its_command_is_killed_and_the_next_command_resumes(
    command: Command, site: Site, root: str
) -> None:
    assert command.run("crawl", root, "--crawl", "y", "--max-pages", "1", *FAST)[0] == 0
    shutil.rmtree(command.folder / "data" / "redis")
    _fill(command.folder / "data", root)
    process = command.start("crawl", root, "--crawl", "x", *FAST)
    log = command.folder / "data" / "logs" / "broker.log"
    until(lambda: log.exists() and "replay_started" in log.read_text(), "a replay")
    process.kill()
    process.wait()
    again = command.start("crawl", root, "--crawl", "x", *FAST)
    assert "node_refilled" not in log.read_text(), "it was killed under way"
    until(lambda: "node_refilled" in log.read_text(), "the replay goes on")
    again.send_signal(signal.SIGINT)
    code, _, err = end(again)
    assert code == 130, err
    assert "run the same command again to resume" in err


@pytest.mark.parametrize("how", ["crawl", "up"])
def test_a_command_waits_for_the_broker_of_a_killed_command_and_says_so(
    command: Command, site: Site, root: str, how: str
) -> None:
    arguments = ("crawl", root, *SLOW) if how == "crawl" else ("up", "--processes", "0")
    process = command.start(*arguments)
    until(lambda: broker_of(command), "a broker")
    broker = psutil.Process(broker_of(command))
    broker.suspend()
    process.kill()
    process.wait()
    again = command.start(*arguments)
    said = first_line(again)
    wanted = (
        f"waiting for the broker of another command (process {broker.pid}) to end, 60 s at most"
    )
    assert wanted in said
    broker.resume()
    until(lambda: broker_of(command) not in (0, broker.pid), "a broker of its own")
    again.send_signal(signal.SIGINT)
    code, _, err = end(again)
    assert (code, "in use" in err) == (130 if how == "crawl" else 0, False), err
    assert set(Counter(site.requests).values()) <= {1}


def test_a_command_that_waits_for_a_broker_can_be_stopped(command: Command, root: str) -> None:
    data = command.folder / "data"
    (data / "redis").mkdir(parents=True)
    descriptor = file_lock.take(data / "redis" / "lock", b"")
    (data / "content.sqlite").touch()
    with opening(data / "content.sqlite"):  # it may be frozen at that point, too
        process = command.start("crawl", root, *FAST)
        assert "waiting for the broker of another command to end" in first_line(process)
        process.send_signal(signal.SIGINT)
        assert end(process)[0] == 130
    os.close(descriptor)


def _fill(data: Path, root: str) -> None:
    """Make a crawl with many URLs in the store: it takes a while to send them to Redis."""
    store = open_store(f"sqlite:///{data / 'content.sqlite'}")
    options = CrawlOptions(seeds=(root,), delay=0.0, slots=4)
    crawl = store.put_crawl("x", options, [root.split("/")[2]]).id
    for number in range(3):
        links = [Admission(f"{root}{number}/{n}", 1) for n in range(LINKS)]
        store.commit(Commit([page(crawl, number, links=links)]))
    store.close()
