"""The long form of a row: one worker process, ten good hosts, and an attack at the same time.

Broker, Redis, SQLite and a supervisor with one child are real processes, and so are good hosts and
attackers. The attackers run at a lower priority, since on the net they would have machines of their
own. Good hosts get the next request :data:`DELAY` after each answer, so their rate falls when
anything delays the worker's process. The good hosts begin alone; the attack's URLs are added to
their crawl :data:`BEFORE_SECONDS` later. The rate of the good hosts from then on is compared with
their rate at the same time in a run without an attack.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.attacks.rows import Attack
from tests.support.checkout import ROOT
from tests.support.redis_server import RedisServer
from tests.support.system import System

GOOD_HOSTS = 10
DELAY = 0.03
BEFORE_SECONDS = 6.0
LOOK_SECONDS = 0.25
SETTINGS = {"request_seconds": "10"}
LEAST_SHARE = 0.9
MOST_BYTES = 150e6
NICENESS = 10

Say = Callable[[str], None]


@dataclass
class Result:
    """A line of the table. ``rate`` is the pages a second of the good hosts, ``share`` that rate
    over the rate without an attack, ``worst`` the rate in the worst five seconds. ``memory`` is the
    most bytes of the worker's child, ``tree`` those with the supervisor and the process for
    suspects. ``counted`` is what the summary counts: failures, and sessions put off. ``why_not`` is
    empty if and only if the row holds."""

    name: str
    what: str
    mechanism: str = ""
    rate: float = 0.0
    share: float = 0.0
    worst: float | None = None
    memory: int = 0
    tree: int = 0
    asked: int = 0
    counted: dict[str, int] = field(default_factory=dict)
    said: str = ""
    notes: dict[str, Any] = field(default_factory=dict)
    why_not: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.why_not


class Served:
    """A process of :mod:`tests.attacks.servers`."""

    def __init__(self, *names: str, niceness: int = 0) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.attacks.servers", *names],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        psutil.Process(self._process.pid).nice(niceness)
        told = self._read()
        self.ports: list[int] = told["ports"]
        self.name_server: str = told["names"]

    def counted(self) -> dict[str, Any]:
        """Return what the process has counted so far."""
        assert self._process.stdin
        self._process.stdin.write("?\n")
        self._process.stdin.flush()
        found: dict[str, Any] = self._read()
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            pipe.close()

    def _read(self) -> Any:
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())


@contextmanager
def crawling(folder: Path, attack: Attack | None) -> Iterator[tuple[System, Served]]:
    """A system that crawls the good hosts, and the process of these hosts."""
    settings = dict(attack.settings) if attack else {}
    with ExitStack() as stack:
        good = Served("good", *([attack.name] if attack and attack.zones else []))
        stack.callback(good.close)
        redis = RedisServer(folder / "redis").start()
        stack.callback(redis.stop)
        system = stack.enter_context(
            System(folder, [redis.url], dns_servers=good.name_server, **{**SETTINGS, **settings})
        )
        system.start()
        yield system, good


def run(attack: Attack | None, folder: Path, say: Say, peer: Result | None = None) -> Result:
    """Run an attack once; compare the rate with that of ``peer``, a run without an attack."""
    result = Result(attack.name, attack.what, attack.mechanism) if attack else Result("none", "")
    with ExitStack() as stack:
        system, good = stack.enter_context(crawling(folder, attack))
        bad = None
        if attack:
            bad = Served(attack.name, niceness=NICENESS)
            stack.callback(bad.close)
        seeds = [f"http://g{n}.good.test:{good.ports[0]}/0" for n in range(GOOD_HOSTS)]
        system.crawl(seeds, delay=DELAY, scope="any")
        time.sleep(BEFORE_SECONDS)
        urls = attack.seeds(bad.ports, short=False) if attack and bad else []
        crawl = "test"
        if attack and attack.options:
            crawl = "attack"
            system.crawl([], crawl, **{"delay": DELAY, "scope": "any", **attack.options})
        for start in range(0, len(urls), 1000):
            part = urls[start : start + 1000]
            system.call("POST", f"/v1/crawls/{crawl}/urls", {"urls": part})
        _watch(result, system, good, attack.seconds if attack else 40.0, say)
        stats = system.stats(crawl)
        result.counted = stats["failures"] | stats["put_off"]
        if attack and bad:
            result.asked = sum(bad.counted()["asked"].values())
            result.said = _said(system, attack, urls)[:300]
            _judge(result, attack)
        if system.worker is None or system.worker.poll() is not None:
            result.why_not.append("the worker ended")
        if attack and peer and peer.rate:
            result.share = result.rate / peer.rate
            result.worst = (result.worst or 0.0) / peer.rate
            if result.share < LEAST_SHARE:
                result.why_not.append(f"good hosts had {result.share:.0%} of their rate")
        else:
            result.worst = None
    return result


def _watch(result: Result, system: System, good: Served, seconds: float, say: Say) -> None:
    before, began = good.counted()["asked"], time.monotonic()
    child = system.children()[0]
    last, last_at = sum(before.values()), began
    while time.monotonic() < began + seconds:
        time.sleep(LOOK_SECONDS)
        child_bytes, tree = _memory(system, child)
        result.memory = max(result.memory, child_bytes)
        result.tree = max(result.tree, tree)
        now = time.monotonic()
        if now - last_at >= 5:
            asked = sum(good.counted()["asked"].values())
            rate = (asked - last) / (now - last_at)
            result.worst = min(rate, result.worst if result.worst is not None else rate)
            say(f"{rate:5.0f} good pages/s, {child_bytes / 1e6:.0f} MB")
            last, last_at = asked, now
    after, now = good.counted()["asked"], time.monotonic()
    result.rate = (sum(after.values()) - sum(before.values())) / (now - began)
    if system.children() != [child]:
        result.why_not.append("the worker's child ended")


def _memory(system: System, child: psutil.Process) -> tuple[int, int]:
    assert system.worker
    mine = tree = 0
    with suppress(psutil.NoSuchProcess):
        mine = child.memory_info().rss
    top = psutil.Process(system.worker.pid)
    for process in [top, *top.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            tree += process.memory_full_info().pss
    return mine, tree


def _said(system: System, attack: Attack, urls: list[str]) -> str:
    """Return what ``explain`` says of the first seed that has the expected reason."""
    found = ""
    for url in urls[:: max(1, len(urls) // 100)]:
        for state in system.call("GET", f"/v1/urls?url={url}"):
            found = " ".join([state["why"], *(one["detail"] for one in state["attempts"])])
            if re.search(attack.said, found):
                return found
    return f"NOT: {found}"


def _judge(result: Result, attack: Attack) -> None:
    if result.memory > MOST_BYTES:
        result.why_not.append(f"{result.memory / 1e6:.0f} MB of memory")
    if result.said.startswith("NOT"):
        result.why_not.append(f"explain says {result.said}")
    if not set(attack.kinds) & set(result.counted):
        result.why_not.append(f"the summary says {result.counted}")
