"""A web to crawl: many hosts, each with its latency and behaviour; see ``bench.rig.web_server``.

All properties of a host follow from its number, so that the server, the DNS server and the
calculation of a bound agree without communication. ``Web`` is the server as a process.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import psutil

from greencrawl.worker.session.pace import LATENCY_FACTOR
from tests.support.checkout import ROOT
from tests.support.ports import free_port
from tests.support.system import wait_until

Manner = Literal["good", "slow", "mute", "refused", "missing"]


@dataclass(frozen=True)
class Spec:
    """The properties of a web. If ``names`` is set, hosts are called ``www.sNNNN.test``.

    ``odd`` is the share of hosts that are slow, and also the share of each kind of dead host: mute
    (accepts and never answers), refused, and missing (no such name). The server shapes
    ``bits_per_second`` over all connections; 0: not at all.

    A page links at random to other pages of its host. With ``fresh`` it links to this number of new
    pages, to which no earlier page led, and to the menu of its host. So a page costs the same at
    any time of a crawl, and the host has no end. The share ``foreign`` of all links leads to any
    host instead of its own, or to one of the numbers in ``abroad``.
    """

    hosts: int = 100
    pages: int = 3000
    latency_ms: tuple[int, int] = (0, 0)
    page_bytes: tuple[int, int] = (20_000, 20_000)
    slow_ms: tuple[int, int] = (2000, 4000)
    odd: float = 0.0
    names: bool = False
    bits_per_second: int = 0
    fresh: int = 0
    foreign: float = 0.0
    abroad: Sequence[int] = ()
    seed: int = 6


class Host(NamedTuple):
    """``latency`` in seconds, before the first byte of each answer."""

    number: int
    name: str
    address: str
    manner: Manner
    latency: float


def host(spec: Spec, number: int) -> Host:
    """Return host ``number``, from 0: drawn from the seed and the number."""
    chance = random.Random(spec.seed * 1_000_003 + number)
    draw = chance.random()
    manners: tuple[Manner, ...] = ("slow", "mute", "refused", "missing")
    index = int(draw / spec.odd) if spec.odd else len(manners)
    manner: Manner = manners[index] if index < len(manners) else "good"
    least, most = spec.slow_ms if manner == "slow" else spec.latency_ms
    latency = math.exp(chance.uniform(math.log(least + 1), math.log(most + 1))) - 1
    address = f"127.1.{number // 250}.{number % 250 + 1}"
    name = f"www.s{number:04}.test" if spec.names else address
    return Host(number, name, address, manner, latency / 1000)


def polite_rate(spec: Spec, delay: float, *, from_start: bool = False) -> float:
    """Return the most pages a second of all hosts that answer, with ``delay`` seconds between
    requests.

    Greencrawl counts the delay from the end of a request, and waits twice the latency of a slow
    host (``greencrawl.worker.session.pace``). With ``from_start`` the rate is that of Scrapy, which
    counts the delay from the start of a request, and does not adapt.
    """
    rate = 0.0
    for found in (host(spec, number) for number in range(spec.hosts)):
        if found.manner in ("good", "slow"):
            adapted = max(delay, LATENCY_FACTOR * found.latency)
            gap = max(delay, found.latency) if from_start else adapted + found.latency
            rate += 1 / max(gap, 1e-3)
    return rate


class Web:
    """``bench.rig.web_server`` on free ports, or on 80, 443 and 53 in a namespace of ours."""

    def __init__(
        self, folder: Path, spec: Spec, *, tls: bool = False, cpu: int | None = None
    ) -> None:
        self.spec = spec
        self.folder = folder
        self.port = 443 if tls else free_port()
        self.control = free_port()
        self.log = folder / "requests.log"
        self._tls = tls
        self._cpu = cpu
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Web:
        self.folder.mkdir(parents=True, exist_ok=True)
        config = {
            "spec": asdict(self.spec),
            "port": self.port,
            "control": self.control,
            "dns": 53 if self.spec.names else 0,
            "tls": str(self.folder) if self._tls else "",
            "log": str(self.log),
        }
        (self.folder / "web.json").write_text(json.dumps(config))
        command = [sys.executable, "-m", "bench.rig.web_server", str(self.folder / "web.json")]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stderr=(self.folder / "web.log").open("ab")
        )
        if self._cpu is not None:
            psutil.Process(self.process.pid).cpu_affinity([self._cpu])
        try:
            wait_until(self._up, 60, f"the web server is up; see {self.folder}/web.log")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(10)

    def _up(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise SystemExit((self.folder / "web.log").read_text()[-1500:])
        try:
            self.counts()
        except OSError:
            return False
        return True

    def url(self, number: int) -> str:
        """Return the first page of a host."""
        name = host(self.spec, number).name
        return f"https://{name}/p/0" if self._tls else f"http://{name}:{self.port}/p/0"

    def seeds(self) -> list[str]:
        """Return the first page of each host; only of those ``abroad``, if there are any."""
        return [self.url(number) for number in self.spec.abroad or range(self.spec.hosts)]

    def counts(self) -> dict[str, float]:
        """Return ``pages`` sent, ``bytes`` of them, ``cpu`` seconds of the server, monotonic
        ``at``."""
        return self._ask("/counts")

    def set_latency(self, seconds: float | None) -> None:
        """From now on let all hosts answer after this time; None: each after its own latency."""
        self._ask(f"/latency/{'own' if seconds is None else seconds}")

    def flush(self) -> list[tuple[float, float, str, str, int]]:
        """Return all requests so far: (arrived, answered, host, path, status), Unix seconds."""
        self._ask("/flush")
        rows = [line.split() for line in self.log.read_text().splitlines()]
        return [(float(a), float(b), name, path, int(status)) for a, b, name, path, status in rows]

    def _ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.control}{path}", timeout=10) as answer:
            return json.loads(answer.read())


def cores() -> tuple[int | None, int | None]:
    """Return a core for the crawling process and one for the rest; (None, None) with one core."""
    found = sorted(os.sched_getaffinity(0))
    return (found[-1], found[0]) if len(found) > 1 else (None, None)
