"""Why a crawl stored nothing, for the message at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from greencrawl.cli.ui.display import printable
from greencrawl.cli.ui.summary import Summary
from greencrawl.schema.records import UrlState

URLS = 3
"""How many seeds the message names."""

WORDS = {
    "robots": "robots.txt forbids it",
    "scope": "out of the crawl's scope",
    "dns_missing": "no such host name; for those of a search list see GREENCRAWL_DNS_SERVERS",
    "dns_failed": "no name server could say what the host name is",
    "gone": "404 or 410",
    "address_forbidden": "a private or loopback address, which GREENCRAWL_ALLOW_NETWORKS may "
    "allow, or a port of another protocol",
    "login": "not let in",
    "dense": "pages that unpack to far more than their size",
    "links": "pages with more links than are followed or kept",
    "hook": "the crawl's own code failed",
}
"""The meaning of kinds of failure whose name is not clear."""


def reasons(summary: Summary, begins: Sequence[UrlState]) -> list[str]:
    """Return a line for each reason: failures by kind, limits, hooks, and the results of the first
    URLs in ``begins``."""
    return [printable(reason) for reason in _reasons(summary, begins)]


def _reasons(summary: Summary, begins: Sequence[UrlState]) -> Iterator[str]:
    common = sorted(summary.failures.items(), key=lambda item: (-item[1], item[0]))
    kinds = [f"{kind} {count:,}{_meaning(kind)}" for kind, count in common if count]
    if kinds:
        yield f"failures: {', '.join(kinds)}"
    if summary.reason.startswith("max_"):
        yield f"the crawl ended at its limit {summary.reason}"
    for one in summary.refused[:1]:
        where = f"worker {one.worker} on machine {one.host}"
        yield f"{where} does not take hook {one.hook}: {one.reason}"
    for state in begins[:URLS]:
        if state.why:
            yield f"{state.url}: {state.why.rstrip('.')}"


def _meaning(kind: str) -> str:
    return f" ({WORDS[kind]})" if kind in WORDS else ""
