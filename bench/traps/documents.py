"""Documentation as Debian packages it: a crawl with the detector must fetch the same as one
without."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.traps.crawl import Failed, Manner, Result, parked, run
from bench.traps.debian import Missing, newest, unpacked
from tests.support.site_server import SiteServer
from tests.support.sites import folder_site


@dataclass(frozen=True)
class Documents:
    """A package, by a pattern of its name; ``start`` is in the first of its folders that has it."""

    pattern: str
    start: str


DOCUMENTS = {
    "openjdk": Documents(r"openjdk-17-doc", "api/index.html"),
    "postgresql": Documents(r"postgresql-doc-[0-9]+", "html/index.html"),
    "python": Documents(r"python3\.[0-9]+-doc", "html/index.html"),
    "linux": Documents(r"linux-doc-[0-9.]+", "html/index.html"),
}


def folder_of(documents: Documents) -> Path:
    """Return the folder with ``start``. Raises :class:`Missing`."""
    package = newest(documents.pattern)
    root = unpacked(package) / "usr" / "share" / "doc"
    found = sorted(root.glob(f"*/{documents.start}"))
    if not found:
        raise Missing(f"{package} has no {documents.start}")
    return found[0].parent


def compare(name: str, folder: Path, manner: Manner) -> Result:
    """Crawl with the detector on and off; every difference is an error.

    If the tree has no detector, both crawls must be the same, and only this is checked.
    """
    result, fetched = Result(f"documentation: {name}"), {}
    try:
        site = folder_site(folder_of(DOCUMENTS[name]))
        for traps in ("off", "on"):
            with SiteServer(site) as server:
                one = Manner(manner.requests, traps, manner.slots, manner.processes, manner.tree)
                seconds, summary = run([server.url("/index.html")], folder / traps, one)
                hits = [hit for hit in server.hits if hit.target != "/robots.txt"]
            fetched[traps] = {hit.target for hit in hits if hit.status == 200}
            result.notes |= {f"{traps}, s": round(seconds, 1), f"{traps}, requests": len(hits)}
            result.notes |= parked(summary)
    except (Missing, Failed) as error:
        result.why_not.append(str(error))
        return result
    result.seconds, result.requests = seconds, len(hits)
    result.of, result.content = len(fetched["off"]), len(fetched["off"] & fetched["on"])
    result.missing = sorted(fetched["off"] - fetched["on"])
    more = sorted(fetched["on"] - fetched["off"])
    if more:
        result.why_not.append(f"{len(more)} more than without, as {more[0]}")
    return result
