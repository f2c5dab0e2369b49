"""The web as it is: names, TLS, latencies, robots.txt, pages of all sizes, dead hosts.

``python -m bench.scale.wide [--short]``. Hosts are resolved by a DNS server of ours, in a network
namespace (``bench.rig.namespace``). A crawl with the default delay is bounded by politeness – so
many hosts, each of which gives a page in its latency and the delay – and by the CPU of one core.
The figure is the share of the smaller bound that the crawl reaches.

The CPU bound is measured by a run of the same crawler on the same web without delay and latencies:
pages a second of its core's CPU. Ours does all its duties, storing included; Scrapy follows links.
If other programs disturb a measurement, it is repeated, a bounded number of times.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench.rig import namespace
from bench.rig.record import Record, draw, spread
from bench.rig.web import Spec, Web, cores, host, polite_rate
from bench.rig.window import Patience, Window, unquiet
from tests.support.redis_server import RedisServer
from tests.support.system import System

NAME = "wide"
DELAY = 1.0
LATENCY_MS = (50, 500)
PAGE_BYTES = (20_000, 250_000)
ODD = 0.01
FOREIGN = 0.1
"""Share of links that lead to another host."""
REQUEST_SECONDS = 10
SPIDER = Path(__file__).parent / "wide_spider.py"
PATIENCE_SECONDS = 30.0


class Size(NamedTuple):
    """Number of hosts, seconds to warm up (each host is visited), seconds of the measurement."""

    hosts: int
    warm: float
    seconds: float


def sizes(short: bool) -> list[Size]:
    """Return two numbers of hosts: with the first politeness limits a core, with the second it does
    not."""
    return [Size(200, 5.0, 6.0)] if short else [Size(300, 10.0, 20.0), Size(2000, 20.0, 15.0)]


def rounds(short: bool) -> dict[str, int]:
    """Return how many polite runs each crawler makes. The benchmark is about Greencrawl; Scrapy is
    for comparison."""
    return {"ours": 1 if short else 3, "Scrapy": 1}


# -- the crawlers


def ours(
    folder: Path, web: Web, patience: Patience, *, delay: float, warm: float, seconds: float
) -> dict[str, Any]:
    """Measure one crawl by a worker process on a core of its own; see ``bench.rig.window``."""
    crawler, others = cores()
    redis = RedisServer(folder / "redis").start()
    assert redis.process is not None
    server = psutil.Process(redis.process.pid)
    if others is not None:
        server.cpu_affinity([others])
    system = System(
        folder,
        [redis.url],
        worker_cpu=crawler,
        broker_cpu=others,
        log_level="warning",
        allow_networks="127.0.0.0/8,::1/128",
        greenlets=str(web.spec.hosts),
        request_seconds=str(REQUEST_SECONDS),
    )

    def cpu() -> dict[str, float]:
        times = server.cpu_times()
        return {**system.cpu_seconds(), "redis": times.user + times.system}

    try:
        system.start()
        system.settle()
        system.crawl(web.seeds(), delay=delay, scope="host", user_agent="greencrawl-bench/1.0")
        time.sleep(warm)
        return patience.measure(lambda: Window(web, cpu), seconds)
    finally:
        system.kill("worker")  # its last answers may take long and are not needed
        system.stop()
        redis.stop()


def scrapy(
    folder: Path, web: Web, patience: Patience, *, delay: float, warm: float, seconds: float
) -> dict[str, Any]:
    """Measure one crawl by Scrapy on that core."""
    folder.mkdir(parents=True)
    seeds = folder / "seeds.txt"
    seeds.write_text("\n".join(web.seeds()))
    environment = os.environ | {"BENCH_DELAY": str(delay), "BENCH_HOSTS": str(web.spec.hosts)}
    process = subprocess.Popen(
        [sys.executable, "-m", "scrapy", "runspider", str(SPIDER), "-a", f"seeds={seeds}"],
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=(folder / "scrapy.log").open("ab"),
    )
    seen = psutil.Process(process.pid)
    crawler, _ = cores()
    if crawler is not None:
        seen.cpu_affinity([crawler])

    def cpu() -> dict[str, float]:
        times = seen.cpu_times()
        return {"worker": times.user + times.system}

    try:
        time.sleep(warm)
        found = patience.measure(lambda: Window(web, cpu), seconds)
        if process.poll() is not None:
            raise SystemExit(f"Scrapy ended\n{(folder / 'scrapy.log').read_text()[-1500:]}")
        return found
    finally:
        process.kill()
        process.wait()


# -- what the server saw


def closest(rows: list[tuple[float, float, str, str, int]], *, from_start: bool) -> float:
    """Return the least seconds between two requests to one host: from the end of the first request,
    or from its start."""
    last: dict[str, float] = {}
    least = float("inf")
    for arrived, answered, name, _, _ in sorted(rows):
        if name in last:
            least = min(least, arrived - last[name])
        last[name] = arrived if from_start else answered
    return least


def by_second(rows: list[tuple[float, float, str, str, int]]) -> list[int]:
    """Return the pages answered in each second since the first request."""
    pages = [answered for _, answered, _, path, _ in rows if path != "/robots.txt"]
    if not pages:
        return []
    first = min(arrived for arrived, *_ in rows)
    counts = Counter(int(at - first) for at in pages)
    return [counts[second] for second in range(max(counts) + 1)]


def _inside(short: bool) -> dict[str, Any]:
    """Run everything in the namespace."""
    patience = Patience(PATIENCE_SECONDS / 3 if short else PATIENCE_SECONDS)
    crawlers = {"ours": ours, "Scrapy": scrapy}
    found: dict[str, Any] = {}
    _, others = cores()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        namespace.bring_up()
        namespace.resolve_by(folder)
        for size in sizes(short):
            spec = Spec(
                size.hosts, 400, LATENCY_MS, PAGE_BYTES, odd=ODD, names=True, foreign=FOREIGN
            )
            runs: dict[str, list[dict[str, Any]]] = {}
            with Web(folder / f"web{size.hosts}", spec, tls=True, cpu=others) as web:
                os.environ["SSL_CERT_FILE"] = str(web.folder / "ca.pem")
                for crawler, crawl in crawlers.items():
                    at = folder / f"{crawler}{size.hosts}"
                    free = _free(at / "free", web, crawl, size, patience)
                    runs[crawler] = [
                        _polite(at / str(number), web, crawl, size, patience, free)
                        for number in range(rounds(short)[crawler])
                    ]
            manners = Counter(host(spec, number).manner for number in range(size.hosts))
            found[str(size.hosts)] = {"manners": manners, "runs": runs}
    return found


Crawl = Callable[..., dict[str, Any]]


def _free(folder: Path, web: Web, crawl: Crawl, size: Size, patience: Patience) -> dict[str, Any]:
    """Measure a run that only the CPU limits.

    The run is measured at the same stage as the polite run. A new host (TLS, robots.txt) takes more
    CPU than a page, so with many hosts pages cost more at an early stage.
    """
    web.set_latency(0.0)
    seconds = max(5.0, size.seconds / 2)
    found = crawl(folder, web, patience, delay=0.0, warm=size.warm, seconds=seconds)
    web.set_latency(None)
    web.flush()
    return found


def _polite(
    folder: Path, web: Web, crawl: Crawl, size: Size, patience: Patience, free: dict[str, Any]
) -> dict[str, Any]:
    """Measure a polite run, and compare it with its bounds."""
    web.log.unlink(missing_ok=True)
    polite = crawl(folder, web, patience, delay=DELAY, warm=size.warm, seconds=size.seconds)
    rows = web.flush()
    from_start = crawl is scrapy
    bounds = {
        "cpu": round(free["pages_s"] / free["busy"]["worker"], 1),
        "politeness": round(polite_rate(web.spec, DELAY, from_start=from_start), 1),
    }
    share = polite["pages_s"] / min(bounds.values())
    print(
        f"   {size.hosts} hosts, {'Scrapy' if from_start else 'ours'}: {polite['pages_s']} pages/s,"
        f" {share:.3f} of the smaller bound, foreign cores {polite['foreign']}",
        flush=True,
    )
    return {
        "polite": polite,
        "free": free,
        "bounds": bounds,
        "ratio": round(share, 4),
        "closest_seconds": round(closest(rows, from_start=from_start), 4),
        "by_second": by_second(rows),
    }


# -- the report


def run(short: bool) -> None:
    """Write the result and the plot. Return with a message if namespaces are not allowed."""
    record = Record(NAME, "The web as it is", short, packages=("Scrapy", "dnslib"))
    if namespace.prefix() is None:
        record.note(
            "Not run: this machine allows no network namespaces (unshare --user --net). Run it"
            " as root, or where they are allowed."
        )
        record.finish()
        return
    command = [
        sys.executable,
        "-m",
        "bench.scale.wide",
        "--inside",
        *(["--short"] if short else []),
    ]
    found = json.loads(namespace.run_inside(command))
    record.runs("hosts", found)
    record.note(
        f"{' and '.join(found)} hosts with names from a local DNS server, TLS with a certificate"
        f" for each host, latencies of {LATENCY_MS[0]}–{LATENCY_MS[1]} ms, pages of"
        f" {PAGE_BYTES[0] // 1000}–{PAGE_BYTES[1] // 1000} KB, a delay of {DELAY:g} s. One"
        " host in a hundred is slow, one accepts and never answers, one refuses and one does not"
        " exist. There are as many greenlets as hosts. Each crawler has one core; server, DNS,"
        " broker and Redis share another. The bound by CPU is the rate that the same crawler"
        " reaches on the same web without delay and latencies, for each second of its core's CPU,"
        " in one run. So the share shows what politeness and many connections cost; pages/s show"
        " how fast a crawler is. The bound of politeness counts the delay from the end of a request"
        " for ours and from its start for Scrapy, as each crawler does. Ours verifies certificates,"
        " extracts text and stores; Scrapy only follows links. With many hosts, each has given some"
        " three pages when it is measured. So the first contact with a host (TLS, robots.txt) is a"
        " large part of a page's CPU, in the bound and in the crawl. Scrapy sends requests in waves"
        " and reads for seconds after each, while the server counts a page when it answers. So its"
        " figures depend on how many waves fall into a measurement: its pages/s, its bound by CPU"
        " and its share, which may be above 1, are rough. With 2,000 hosts it has not reached all"
        " of them by then. The closest requests are measured as the server saw them: from the end"
        " of one to the start of the next for ours, from start to start for Scrapy."
    )
    runs = [one for part in found.values() for each in part["runs"].values() for one in each]
    if loud := unquiet([one[what] for one in runs for what in ("polite", "free")]):
        record.note(loud)
    rows = []
    for hosts, part in found.items():
        for crawler, runs in part["runs"].items():
            rows.append(
                (
                    int(hosts),
                    crawler,
                    spread([one["polite"]["pages_s"] for one in runs]),
                    runs[0]["bounds"]["politeness"],  # all runs are compared with the same bounds
                    runs[0]["bounds"]["cpu"],
                    spread([one["ratio"] for one in runs]),
                    spread([one["polite"]["busy"]["worker"] for one in runs]),
                    spread([one["closest_seconds"] for one in runs]),
                )
            )
            ratios = sorted(one["ratio"] for one in runs)
            record.figure(f"{crawler.lower()}_{hosts}", ratios[len(ratios) // 2])
    columns = (
        "hosts",
        "crawler",
        "pages/s",
        "bound by politeness",
        "bound by CPU",
        "of the smaller bound",
        "core in use",
        "closest requests, s",
    )
    record.table("Pages a second against the smaller bound", columns, rows)
    least = min(ratio for hosts in found for ratio in _ratios(found[hosts]["runs"]["ours"]))
    record.figure("of_bound", least)
    _plot(record, found)
    record.finish()


def _ratios(runs: list[dict[str, Any]]) -> list[float]:
    """Return a list of one ratio: that of the median run."""
    return [sorted(one["ratio"] for one in runs)[len(runs) // 2]]


def _plot(record: Record, found: dict[str, Any]) -> None:
    colours = {"ours": "tab:green", "Scrapy": "tab:red"}
    figure = draw(7, 3.5 * len(found))
    for place, (hosts, part) in enumerate(found.items(), 1):
        axes = figure.add_subplot(len(found), 1, place)
        for crawler, runs in part["runs"].items():
            middle = sorted(runs, key=lambda one: one["ratio"])[len(runs) // 2]
            axes.plot(middle["by_second"][:-1], color=colours[crawler], label=crawler)
            for bound, style in (("politeness", "--"), ("cpu", ":")):
                axes.axhline(
                    middle["bounds"][bound],
                    color=colours[crawler],
                    linestyle=style,
                    linewidth=0.8,
                    label=f"{crawler}: bound by {'CPU' if bound == 'cpu' else bound}",
                )
        axes.set(xlabel="seconds", ylabel="pages/s", title=f"{hosts} hosts", ylim=(0, None))
        axes.legend(fontsize=7)
    record.plot("rate", figure, "Pages a second from the start of a crawl, and what bounds it")


def main(arguments: list[str]) -> int:
    """Run it; with ``--inside``, the part that runs in a network namespace of its own."""
    short = "--short" in arguments
    if "--inside" in arguments:
        print(json.dumps(_inside(short)))
    else:
        run(short)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
