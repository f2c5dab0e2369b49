"""Ours, Scrapy, scrapy-redis and Crawlee (Parsel) with the same duties on the same site, in turn.

``python -m bench.peers.compare [--short]`` writes ``bench/results/peers.json``.

There are two levels of duties:

* plain: robots.txt is obeyed, all links to the same hosts are followed, no page is fetched twice;
* full: in addition title and text are extracted, and page, text, links and headers are stored
  durably in SQLite.

Greencrawl ("ours") has no option that leaves out text and storage, so its figure for the full level
is in both tables: in the plain table it does more than the others. After every run the log of nginx
and the stores show whether the duties were done.

A crawling process has one core to itself. nginx, Redis and our broker share another core (on a
machine with one core, all share it). Pages a second are counted from the answer to the first page
until the last page was handled. For ours a page is handled when it is stored, for the others when
it is parsed (and given to storage). CPU is that of all processes of a crawler, without nginx and
without the start of the processes. For ours these are the worker (with its supervisor and the
SQLite store), the broker and Redis, for scrapy-redis its process and Redis. CPU also includes what
is spent before the answer to the first page and after the last page, so a share of a core may be
above 100 %. Memory is proportional (PSS), of the same processes, at the end of the crawl.

A ratio is the median of the ratios of all rounds, not the ratio of the medians beside it. Broker
and Redis do not run on "its core", though ours and scrapy-redis need them. Their CPU is included in
the CPU a page, and in the tables by process. The settings of the others, with reasons, are in
`bench/peers/scrapy_job.py` and `bench/peers/crawlee_job.py`; what they store is in
`bench/peers/page_store.py`. Ours has the default settings, except for the delay, which is 0 for all
crawlers, and the number of connections to a host.

Each crawler fetches whole hosts. All hosts serve the same pages, except for a comment that makes
the bodies of each host different. So all crawlers get the same pages with the same share of new
links. Ours stores equal bodies once, so it has to store every body here. Faster crawlers get more
hosts. All hosts together have 64 connections.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from bench.peers.crawls import (
    CRAWLEE,
    FULL,
    OURS,
    PLAIN,
    SCRAPY,
    SCRAPY_REDIS,
    Outcome,
    crawl_with,
    crawl_with_ours,
    served,
)
from bench.rig.record import Cell, Record, draw, spread
from bench.rig.sites import DOCUMENTATION, SYNTHETIC, Site

HOSTS = {OURS: 8, SCRAPY: 1, SCRAPY_REDIS: 1, CRAWLEE: 2}
"""The number of hosts of each crawler: enough to keep it busy for some five to twenty seconds."""
ROUNDS = 5
SHORT_SITE = replace(SYNTHETIC, pages=500)
SHORT_ROUNDS = 2
OTHERS = (SCRAPY, SCRAPY_REDIS, CRAWLEE)
LEVELS = {PLAIN: "robots, links, no page twice", FULL: "the same with text and storage"}
CONTENDERS = ((OURS, FULL), *((who, level) for who in OTHERS for level in LEVELS))
SHORT_REAL = ((OURS, FULL), (SCRAPY, PLAIN), (SCRAPY, FULL))
PACKAGES = ("Scrapy", "Twisted", "scrapy-redis", "crawlee", "impit", "parsel")

Outcomes = Mapping[tuple[str, str], list[Outcome]]
"""The results of each contender (name, level) in the rounds of one site."""


def run(short: bool) -> None:
    """Measure, print and keep ``bench/results/peers.json``."""
    record = Record(
        "peers", "Beside other crawlers, with the same duties", short, packages=PACKAGES
    )
    for paragraph in (__doc__ or "").split("\n\n")[2:]:
        record.note(paragraph)
    with tempfile.TemporaryDirectory() as folder:
        if short:
            synthetic = measure(SHORT_SITE, CONTENDERS, SHORT_ROUNDS, Path(folder))
            real = measure(DOCUMENTATION, SHORT_REAL, 1, Path(folder))
        else:
            synthetic = measure(SYNTHETIC, CONTENDERS, ROUNDS, Path(folder))
            real = measure(DOCUMENTATION, CONTENDERS, ROUNDS, Path(folder))
    report(record, synthetic, real)
    record.finish()


def measure(
    site: Site, contenders: Sequence[tuple[str, str]], rounds: int, folder: Path
) -> Outcomes:
    """Run every contender ``rounds`` times alternately; each round begins with another one."""
    outcomes: dict[tuple[str, str], list[Outcome]] = {key: [] for key in contenders}
    with served(site, max(HOSTS.values()), folder / site.name) as on:
        for number in range(rounds):
            turn = number * 3 % len(contenders)
            for who, level in (*contenders[turn:], *contenders[:turn]):
                here = folder / f"{site.name}-{number}-{who}-{level}"
                if who == OURS:
                    one = crawl_with_ours(on, HOSTS[who], here)
                else:
                    one = crawl_with(who, level, on, HOSTS[who], here)
                outcomes[who, level].append(one)
                print(f"   {site.name} {number + 1}: {who}, {level}: {one}", flush=True)
    return outcomes


def of(outcomes: Outcomes, who: str, level: str) -> list[Outcome]:
    """Return a contender's outcomes at a level; ours has one level only."""
    return outcomes[who, FULL if who == OURS else level]


def faster(outcomes: Outcomes, who: str, level: str) -> list[float]:
    """Return our pages a second over another's, round by round."""
    pairs = zip(of(outcomes, OURS, level), of(outcomes, who, level), strict=True)
    return [ours.rate / theirs.rate for ours, theirs in pairs]


def cheaper(outcomes: Outcomes, who: str, level: str) -> list[float]:
    """Return another's CPU a page over ours, all processes of each, round by round."""
    pairs = zip(of(outcomes, OURS, level), of(outcomes, who, level), strict=True)
    return [theirs.all_cpu / ours.all_cpu for ours, theirs in pairs]


def report(record: Record, synthetic: Outcomes, real: Outcomes) -> None:
    """Add tables, plots and required figures of all outcomes."""
    for site, outcomes in ((SYNTHETIC, synthetic), (DOCUMENTATION, real)):
        for level, duties in LEVELS.items():
            _compare(record, f"{site.what}; {level}: {duties}", outcomes, level)
        _by_process(record, site, outcomes)
        runs = {
            f"{who}, {level}": list(map(asdict, ones)) for (who, level), ones in outcomes.items()
        }
        record.runs(site.name, runs)
        _plot(record, site, outcomes)
    for key, values in {
        "plain_scrapy": faster(synthetic, SCRAPY, PLAIN),
        "full_scrapy": faster(synthetic, SCRAPY, FULL),
        "plain_scrapy_redis": faster(synthetic, SCRAPY_REDIS, PLAIN),
        "plain_crawlee": faster(synthetic, CRAWLEE, PLAIN),
        "documentation_plain_scrapy": faster(real, SCRAPY, PLAIN),
        "documentation_full_scrapy": faster(real, SCRAPY, FULL),
        "cpu_full_scrapy": cheaper(synthetic, SCRAPY, FULL),
    }.items():
        record.figure(key, statistics.median(values))
    _duties(record, {SYNTHETIC: synthetic, DOCUMENTATION: real})


def _compare(record: Record, title: str, outcomes: Outcomes, level: str) -> None:
    rows: list[list[Cell]] = []
    for who in (OURS, *OTHERS):
        if (who, FULL) not in outcomes:
            continue
        ones = of(outcomes, who, level)
        own = who == OURS
        rows.append(
            [
                f"{who}, {FULL}" if own and level != FULL else who,
                spread([one.rate for one in ones]),
                "" if own else spread(faster(outcomes, who, level)),
                spread([one.all_cpu for one in ones]),
                "" if own else spread(cheaper(outcomes, who, level)),
                spread([one.all_memory for one in ones]),
                int(statistics.median(one.pages for one in ones)),
            ]
        )
    columns = [
        "crawler",
        "pages/s of its core",
        "ours ÷ it",
        "CPU ms a page",
        "it ÷ ours",
        "memory MB",
        "pages",
    ]
    record.table(title[0].upper() + title[1:], columns, rows)


def _by_process(record: Record, site: Site, outcomes: Outcomes) -> None:
    rows: list[list[Cell]] = []
    for (who, level), ones in outcomes.items():
        for part in ones[0].cpu:
            core = [one.cpu[part] * one.rate / 10 for one in ones]
            cells = [spread([one.cpu[part] for one in ones]), spread(core)]
            rows.append([who, level, part, *cells, spread([one.memory[part] for one in ones])])
    columns = ["crawler", "level", "process", "CPU ms a page", "% of a core", "memory MB"]
    record.table(f"By process, {site.name} site", columns, rows)


def _duties(record: Record, found: Mapping[Site, Outcomes]) -> None:
    rows: list[list[Cell]] = []
    for site, outcomes in found.items():
        for (who, level), ones in outcomes.items():
            neglected = [what for one in ones for what in one.neglected]
            pages = sum(one.pages for one in ones)
            shown = "; ".join(neglected[:3]) + (" …" if len(neglected) > 3 else "")
            rows.append([site.name, who, level, pages, len(neglected), shown])
    columns = ["site", "crawler", "level", "pages in all", "duties not done", "which"]
    record.table("Duties, judged by the server's log and the stores", columns, rows)
    if any(
        one.neglected for outcomes in found.values() for ones in outcomes.values() for one in ones
    ):
        record.note(
            "Not all duties were done (see the last table): these figures count for nothing."
        )


def _plot(record: Record, site: Site, outcomes: Outcomes) -> None:
    """Add two plots side by side: pages a second, and CPU a page by process."""
    figure = draw(11, 3.4)
    speed, cost = figure.subplots(1, 2)
    names = [who if who == OURS else f"{who}\n{level}" for who, level in outcomes]
    rates = [[one.rate for one in ones] for ones in outcomes.values()]
    middles = [statistics.median(values) for values in rates]
    below = [middle - min(values) for middle, values in zip(middles, rates, strict=True)]
    above = [max(values) - middle for middle, values in zip(middles, rates, strict=True)]
    colours = ["#1b7f5c" if who == OURS else "#8a8f98" for who, _ in outcomes]
    speed.bar(names, middles, yerr=[below, above], color=colours, capsize=3)
    speed.set_title("pages a second of the crawling core")
    shades = {"crawler": "#8a8f98", "worker": "#1b7f5c", "broker": "#7fc8a9", "redis": "#c0392b"}
    bottoms = [0.0] * len(names)
    for part, shade in shades.items():
        heights = [
            statistics.median(one.cpu.get(part, 0.0) for one in ones) for ones in outcomes.values()
        ]
        cost.bar(names, heights, bottom=bottoms, color=shade, label=part)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    cost.set_title("CPU ms a page, all processes")
    cost.legend(fontsize="small")
    for axes in (speed, cost):
        axes.tick_params(axis="x", labelsize=6.5)
    record.plot(
        site.name, figure, f"{site.what}: medians, and the least and the most of the rounds"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Beside other crawlers, with the same duties.")
    parser.add_argument("--short", action="store_true", help="fewer pages and rounds")
    run(parser.parse_args().short)
