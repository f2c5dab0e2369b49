"""A parked URL stays parked, with a reason, unless it is released or a fault explains the change.

A parked URL is settled without a request, so the judge of refetches does not see it. Here the time
at which it was parked counts as a request: a later request needs the same explanation as a second
one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.nemesis import site
from tests.nemesis.api import Call
from tests.nemesis.checker import Finding, Hit
from tests.nemesis.reading import Parked, Snapshot


@dataclass
class Parkings:
    """All URLs that were seen parked: times, in Unix seconds, by URL, by crawl's name."""

    by_crawl: dict[str, dict[str, set[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(set))
    )

    def note(self, crawl: str, parked: Mapping[str, Parked]) -> None:
        """Note the result of one look at SQL."""
        for url, one in parked.items():
            self.by_crawl[crawl][url].add(one.at)

    def hits(self, epoch: float) -> list[Hit]:
        """Return each parking as a request that took no time; ``epoch`` is ``time.time()`` when
        ``time.monotonic()`` was 0."""
        found = []
        for urls in self.by_crawl.values():
            for url, moments in urls.items():
                host, target = _apart(url)
                found += [Hit(at - epoch, at - epoch, host, target, 0, 0) for at in moments]
        return found

    def released(self, calls: Iterable[Call]) -> Counter[str]:
        """Return further requests that releases allow, by place. It does not matter whether the
        release was answered. A second parking needs a release, too, since it counts as a request.
        """
        found: Counter[str] = Counter()
        for call in calls:
            if call.op == "release":
                found.update("".join(_apart(url)) for url in self.by_crawl.get(call.crawl, ()))
        return found


def _apart(url: str) -> tuple[str, str]:
    """Return the address and the target of a URL."""
    parts = urlsplit(url)
    return parts.hostname or "", url.partition(f":{parts.port}")[2]


def judge(
    snapshot: Snapshot, seen: Parkings, calls: Sequence[Call], limit: int = 0
) -> list[Finding]:
    """Judge one crawl at its end: find URLs that were parked and have no row any more, URLs that
    are parked without a reason, and URLs that are parked although all were released before.
    Released URLs may wait for ever in a crawl that has as many pages as its ``max_pages`` allows
    (0: no limit)."""
    name = snapshot.crawl.name
    settled = snapshot.pages.keys() | snapshot.finals.keys()
    releases = [call for call in calls if call.op == "release" and call.crawl == name]
    released = any(call.acknowledged for call in releases)
    full = limit and snapshot.stored >= limit
    had = set() if releases and full else seen.by_crawl.get(name, {}).keys()
    wrong = {
        "were parked and have no row": had - settled,
        "are parked without shape or reason": {
            url for url, one in snapshot.parked.items() if not (one.shape and one.why)
        },
        "are parked, and are no page of a crawl with traps": {
            url for url in snapshot.parked if not _may_be_parked(url)
        },
        "are parked after all was released": snapshot.parked.keys() if released else set(),
    }
    return [
        Finding("parked", f"crawl {name}: {len(urls)} URLs {what}: {', '.join(sorted(urls)[:3])}")
        for what, urls in wrong.items()
        if urls
    ]


def _may_be_parked(url: str) -> bool:
    """Return whether a URL may be parked: a sitemap, a requisite and a first page may not."""
    graph, there = site.graph_of(url), site.resource_at(url)
    if graph is None or "t" not in graph.extras or url.endswith("/home"):
        return False
    return there.kind == "html" and "/x/old.xml" not in url
