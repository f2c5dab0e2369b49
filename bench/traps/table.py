"""The sites by their names, their required results, and the table that shows them."""

from __future__ import annotations

import datetime
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from bench.rig.report import RESULTS, write_json
from bench.traps.crawl import Manner, Result, crawl_site, knows, shares
from bench.traps.documents import DOCUMENTS, compare
from bench.traps.kinds.discourse import Discourse
from bench.traps.kinds.discuz import Discuz
from bench.traps.kinds.figures import Screws, Timetable, Weather
from bench.traps.kinds.honest import Archive, Catalogue, Pages
from bench.traps.kinds.opencart import OpenCart
from bench.traps.kinds.phpbb import PhpBB
from bench.traps.kinds.shop import Shop
from bench.traps.kinds.sites import Site
from bench.traps.kinds.synthetic import TRAPS, Synthetic
from bench.traps.kinds.wordpress import WordPress
from bench.traps.wiki_run import crawl_wiki

MOST_ON_TRAPS = 0.25


@dataclass(frozen=True)
class Try:
    """A site to crawl. ``endless``: it has traps, so the crawl has a limit."""

    run: Callable[[object, Path, Manner], Result]
    endless: bool = True


def _generated(make: Callable[[object], Site]) -> Callable[[object, Path, Manner], Result]:
    return lambda seed, folder, manner: crawl_site(make(seed), folder, manner)[0]


def _synthetic(*traps: str) -> Callable[[object], Site]:
    return lambda seed: Synthetic(seed, traps, datetime.date.today())


TRIES: dict[str, Try] = {
    **{trap: Try(_generated(_synthetic(trap))) for trap in TRAPS},
    "six": Try(_generated(_synthetic(*TRAPS))),
    "phpbb": Try(_generated(PhpBB)),
    "discourse": Try(_generated(Discourse)),
    "shop": Try(_generated(Shop)),
    "discuz": Try(_generated(Discuz)),
    "opencart": Try(_generated(OpenCart)),
    "wordpress": Try(_generated(WordPress)),
    "good": Try(_generated(_synthetic()), endless=False),
    "archive": Try(_generated(Archive), endless=False),
    "catalogue": Try(_generated(Catalogue), endless=False),
    "items": Try(_generated(partial(Catalogue, by="query")), endless=False),
    "pages": Try(_generated(Pages), endless=False),
    "screws": Try(_generated(Screws), endless=False),
    "screws-query": Try(_generated(partial(Screws, by="query")), endless=False),
    "weather": Try(_generated(Weather), endless=False),
    "weather-lists": Try(_generated(partial(Weather, ways="lists")), endless=False),
    "weather-chain": Try(_generated(partial(Weather, ways="chain")), endless=False),
    "timetable": Try(_generated(Timetable), endless=False),
    "wiki": Try(lambda seed, folder, manner: crawl_wiki(folder, manner, seed)),
    **{
        name: Try(partial(lambda name, seed, folder, manner: compare(name, folder, manner), name))
        for name in DOCUMENTS
    },
}
"""Documentation is limited only by ``bound``, in the same way with the detector and without."""


def attempt(name: str, seed: object, folder: Path, manner: Manner, bound: int = 0) -> Result:
    """Try one site; ``bound``: the number of pages of finite sites, 0 for all."""
    one = TRIES[name]
    endless = one.endless and name not in DOCUMENTS
    limited = manner if endless else replace(manner, requests=bound)
    result = one.run(seed, folder, limited)
    if result.share > MOST_ON_TRAPS:
        result.why_not.append(f"{result.share:.0%} of the requests on traps")
    if (result.missing or not result.content) and not bound:
        shown = ", ".join(result.missing[:4])
        result.why_not.append(f"{result.of - result.content} of {result.of} missing: {shown}")
    return result


HEAD = f"{'':4}{'requests':>9}{'on traps':>9}{'share':>7}{'found':>7}{'of':>6}{'s':>7}  site"


def line(result: Result) -> str:
    """Return the result as a line of the table and explaining lines."""
    cells = (
        f"{result.requests:>9}{result.on_traps:>9}{result.share:>7.1%}"
        f"{result.content:>7}{result.of:>6}{result.seconds:>7.1f}"
    )
    more = [
        f"{'':8}on traps: {shares(result.wasted)}" if result.wasted else "",
        f"{'':8}others: {shares(result.useful)}" if result.useful else "",
        f"{'':8}{', '.join(f'{k}: {v}' for k, v in result.notes.items())}" if result.notes else "",
        *(f"{'':8}why not: {why}" for why in result.why_not),
    ]
    verdict = "FAIL" if result.why_not else "ok  "
    return "\n".join([f"{verdict}{cells}  {result.name}", *filter(None, more)])


def keep(results: Sequence[Result], manner: Manner, seconds: float) -> Path:
    """Write the results to ``bench/results/traps.json``."""
    record = {
        "show": "traps",
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        "detector": (manner.traps or "default") if knows(manner.tree, "--traps") else "none",
        "seconds": round(seconds, 1),
        "holds": not any(result.why_not for result in results),
        "rows": [
            {**asdict(one), "missing": one.missing[:20], "share": round(one.share, 4)}
            for one in results
        ],
    }
    path = RESULTS / "traps.json"
    write_json(path, record)
    return path
