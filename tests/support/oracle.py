"""Checkers of logs and stores. Each returns findings in words; [] is a pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise

from tests.support.site_server import Hit

SHOWN = 10
"""Number of findings of a long list that are printed."""


def by_host(hits: Iterable[Hit]) -> dict[str, list[Hit]]:
    """Return the hits of each address, in order of arrival."""
    hosts: dict[str, list[Hit]] = {}
    for hit in sorted(hits, key=lambda hit: hit.arrived):
        hosts.setdefault(hit.address, []).append(hit)
    return hosts


def impolite(hits: Iterable[Hit], delay: float) -> list[str]:
    """Return pairs at one host whose arrivals are closer than ``delay`` seconds, or that overlap.

    Robots and redirects count like every request, and nothing is forgiven.
    """
    findings = []
    for address, log in by_host(hits).items():
        busy_until = 0.0
        for before, after in pairwise(log):
            busy_until = max(busy_until, before.ended)
            gap = after.arrived - before.arrived
            if gap < delay:
                findings.append(f"{address}: {before.target} then {after.target} after {gap:.4f} s")
            if after.arrived < busy_until:
                findings.append(
                    f"{address}: {after.target} arrived {busy_until - after.arrived:.4f} s before"
                    f" the answer to an earlier request ended"
                )
    return findings


def closest(hits: Iterable[Hit]) -> float:
    """Return the least time in seconds between two arrivals at one host; infinity if there is no
    pair."""
    gaps = (
        after.arrived - before.arrived
        for log in by_host(hits).values()
        for before, after in pairwise(log)
    )
    return min(gaps, default=float("inf"))


def requests_of(hits: Iterable[Hit], port: int) -> Counter[str]:
    """Return requests by absolute URL, without robots.txt."""
    return Counter(
        f"http://{hit.address}:{port}{hit.target}" for hit in hits if hit.target != "/robots.txt"
    )


def refetched(requests: Mapping[str, int]) -> int:
    """Return the number of requests beyond the first of each URL."""
    return sum(count - 1 for count in requests.values())


def not_once(requests: Mapping[str, int], expected: Collection[str]) -> list[str]:
    """Return URLs that were not requested exactly once, or should not have been requested at
    all."""
    return [
        *(f"{url} requested {n} times" for url, n in requests.items() if n != 1),
        *differences(requests, expected, "requested"),
    ]


def differences(found: Collection[str], expected: Collection[str], what: str) -> list[str]:
    """Return URLs that are only on one side."""
    have, want = set(found), set(expected)
    return [
        *(f"{url} not {what}" for url in sorted(want - have)),
        *(f"{url} {what}, but the walk did not find it" for url in sorted(have - want)),
    ]


def shown(findings: list[str]) -> str:
    """Return findings for a person: the first few, and their number."""
    more = f"\n… and {len(findings) - SHOWN} more" if len(findings) > SHOWN else ""
    return "\n".join(findings[:SHOWN]) + more
