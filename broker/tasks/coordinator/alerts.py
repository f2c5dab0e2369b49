"""Alerts for people: when each begins, and when it is over.

The store keeps which alerts are open, under the epoch of the coordinator's duty. So another
coordinator goes on where the last one ended. It sends no message twice, and counts how long
something has lasted from when the first one saw it. If something is not known now (Redis does not
answer, or too little was seen yet), this neither begins an alert nor ends one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from greencrawl.schema.log import logger
from greencrawl.schema.records import WITHHELD, Alert, AlertKind, Crawl, CrawlStats, Member
from greencrawl.store.base import Store

log = logger("alerts")

LASTS_SECONDS: dict[AlertKind, float] = {
    "node_lost": 0.0, "links_owed": 300.0, "store_not_writable": 0.0, "crawl_stuck": 900.0,
    "disk_full": 0.0, "hook_failing": 0.0,
}  # fmt: skip
"""Each alert has to last this long before it is reported."""
GONE_SECONDS = 30.0
"""An alert is over if its reason was not seen for this long."""
OPEN = 500
"""At most this many alerts are open at once: further ones are only logged."""
FULL = 0.9
"""The used share of a disk from which it counts as full."""
FORGOTTEN_MS = 7 * 86_400_000
"""A node that has been lost for this long is not reported any more."""
REPLACED_MS = 120_000
"""A broker that started this long before another was noted as lost may have replaced it."""
HOOK_PAGES = 10
"""This many pages together show whether a hook fails; fewer if the crawl has ended with fewer."""
HOOK_SHARE = 0.5
SUBJECT, TEXT = 300, 1000
"""The subject and the text of an alert have at most this many characters."""

Found = Mapping[AlertKind, Mapping[str, str | None] | None]
"""Kind → subject → text; None if that is not known now."""
Key = tuple[AlertKind, str]
FailedSince = Callable[[int, int], tuple[int, int]]
"""See ``Store.hook_failed_since``."""


class Changes(NamedTuple):
    """Alerts to be written, and alerts to be forgotten: these ended before they were reported."""

    put: list[Alert]
    forget: list[Alert]


class Alerts:
    """Keeps the open alerts up to date. All state is in the store, except since when an alert was
    not seen."""

    def __init__(self) -> None:
        self._gone: dict[Key, float] = {}
        """Open alert → since when it was not seen any more, by the caller's clock."""

    def begin(self) -> None:
        """Forget all: another broker has been the coordinator."""
        self._gone.clear()

    def look(self, store: Store, found: Found, now: float, now_ms: int) -> bool:
        """Write which alerts begin and end; return whether there is a message to send.

        ``now`` is monotonic, in seconds. Raises Unavailable, and DutyLost.
        """
        changes = self.changes(store.alerts(), found, now, now_ms)
        if changes.forget:
            store.forget_alerts(changes.forget)
        if changes.put:
            store.put_alerts(changes.put)
        for one in changes.put:
            if one.over_ms:
                log.info("alert_ended", alert=one.kind, subject=one.subject)
            elif one.began_ms:
                log.warning("alert_started", alert=one.kind, subject=one.subject, text=one.text)
        return any(one.began_ms for one in changes.put)

    def changes(self, known: Sequence[Alert], found: Found, now: float, now_ms: int) -> Changes:
        """Return the changes of the alerts ``known`` to be open."""
        left: dict[Key, Alert] = {(one.kind, one.subject): one for one in known}
        put, forget, count = list[Alert](), list[Alert](), len(left)
        for kind, subjects in found.items():
            for subject, text in (subjects or {}).items():
                seen = left.pop((kind, subject[:SUBJECT]), None)
                self._gone.pop((kind, subject[:SUBJECT]), None)
                if text is None:
                    continue
                if seen is None and count >= OPEN:
                    log.error("alert_not_kept", alert=kind, subject=subject, text=text)
                    continue
                if seen is None:
                    count += 1
                    seen = Alert(
                        kind=kind, subject=subject[:SUBJECT], text=text[:TEXT], since_ms=now_ms
                    )
                    if LASTS_SECONDS[kind]:
                        put.append(seen)
                        continue
                if not seen.began_ms and now_ms - seen.since_ms >= LASTS_SECONDS[kind] * 1000:
                    put.append(replace(seen, text=text[:TEXT], began_ms=now_ms))
        for key, alert in left.items():
            if found.get(alert.kind) is None:
                continue
            if not alert.began_ms:
                forget.append(alert)
            elif now - self._gone.setdefault(key, now) >= GONE_SECONDS:
                del self._gone[key]
                put.append(replace(alert, over_ms=now_ms))
        return Changes(put, forget)


# -- what is looked for


def lost_nodes(members: Sequence[Member], now_ms: int) -> dict[str, str]:
    """Return nodes that have no member left, the last of which was lost.

    A broker's name has its port, and a command that was killed starts its next broker on another
    one. So a broker does not count as lost if another has started on its machine since, or just
    before.
    """
    brokers = [one for one in members if one.kind == "broker" and not one.left_ms]
    of: dict[str, list[Member]] = {}
    for member in members:
        of.setdefault(member.node, []).append(member)
    found = {}
    for node, some in of.items():
        last = max(some, key=lambda one: one.left_ms)
        here = any(one.left_ms == 0 for one in some)
        replaced = last.kind == "broker" and any(
            one.facts.machine == last.facts.machine and one.joined_ms > last.left_ms - REPLACED_MS
            for one in brokers
        )
        news = last.why == "lost" and now_ms - last.left_ms < FORGOTTEN_MS
        if news and not here and not replaced:
            found[node] = f"The {last.kind} {node} does not report any more."
    return found


def owed(debts: Iterable[str], addresses: Mapping[str, str]) -> dict[str, str]:
    """Return Redis nodes (ids) that are owed links."""
    named = {addresses.get(node, node) for node in debts}
    return {name: f"The Redis node {name} is owed links: it does not answer." for name in named}


def full_disks(members: Iterable[Member]) -> dict[str, str]:
    """Return machines with a nearly full disk, as their processes report."""
    used: dict[str, float] = {}
    for member in members:
        if not member.left_ms and member.facts.disk_used > FULL:
            name = member.facts.machine or member.node
            used[name] = max(used.get(name, 0.0), member.facts.disk_used)
    return {name: f"A disk of {name} is {share:.1%} full." for name, share in used.items()}


class CrawlWatch:
    """Finds crawls that do not progress, and hooks that fail, by comparing counters with those
    before."""

    def __init__(self) -> None:
        self._moved: dict[int, tuple[int, ...]] = {}
        self._hooks: dict[int, tuple[int, int]] = {}
        """Crawl → its pages when its hook was last judged, and the latest failure (Unix ms)."""
        self._ends: dict[int, tuple[int, int]] = {}
        """The same two numbers at the end of its last run."""
        self.stuck: dict[str, str | None] | None = None
        """Crawl → why; None before the first look."""
        self.failing: dict[str, str | None] | None = None

    def look(
        self,
        seen: Sequence[tuple[Crawl, CrawlStats]],
        crawls: Sequence[Crawl],
        failed: FailedSince,
        first: Collection[int] = (),
        unmended: Collection[str] = (),
    ) -> None:
        """Compare the ``seen`` counters with those of the last look.

        ``crawls`` are all crawls: for active ones that were not counted now, nothing changes. No
        coordinator has seen the crawls in ``first`` (ids) yet: all that they did counts. The hook
        of a crawl that has ended is judged for the last time. The crawls in ``unmended`` (names)
        have ended and were reported, and have pages left on which their hook failed. ``failed``
        counts the failures of a crawl's hook.
        """
        active = [crawl for crawl in crawls if crawl.state == "active"]
        names = {crawl.name for crawl in active}
        self.stuck = {name: why for name, why in (self.stuck or {}).items() if name in names}
        self.failing = {name: why for name, why in (self.failing or {}).items() if name in names}
        self.failing.update(dict.fromkeys(unmended))
        for book, kept in ((self._moved, active), (self._hooks, crawls), (self._ends, crawls)):
            for gone in book.keys() - {crawl.id for crawl in kept}:
                del book[gone]
        for crawl, stats in seen:
            if crawl.state == "active":
                self._look_whether_it_stands_still(crawl, stats, self.stuck)
            if crawl.id in first:
                self._hooks.setdefault(crawl.id, (0, 0))
            self._look_at_its_hook(crawl, stats, failed if stats.hooks else _never, self.failing)
            if crawl.name in unmended:
                self.failing.setdefault(crawl.name, None)

    def _look_whether_it_stands_still(
        self, crawl: Crawl, stats: CrawlStats, stuck: dict[str, str | None]
    ) -> None:
        known, moved = self._moved.get(crawl.id), _moved(stats)
        self._moved[crawl.id] = moved
        waits = stats.waiting + stats.overflow
        stuck.pop(crawl.name, None)
        if stats.stuck:
            stuck[crawl.name] = f"No worker takes the crawl {crawl.name}: see its hook."
        elif known is None:
            stuck[crawl.name] = None
        elif waits and not stats.leased and known == moved:
            what = f"{waits:,} URLs wait, nothing is fetched, and nothing changes"
            stuck[crawl.name] = f"The crawl {crawl.name} stands still: {what}."

    def _look_at_its_hook(
        self, crawl: Crawl, stats: CrawlStats, failed: FailedSince, failing: dict[str, str | None]
    ) -> None:
        known = self._hooks.get(crawl.id)
        if known is None and not crawl.ended:
            failing[crawl.name] = None
            self._hooks[crawl.id] = stats.stored, failed(crawl.id, 0)[1]
            return
        before, after_ms = known or (0, 0)
        pages = stats.stored - before
        run = crawl.ended and pages > 0 and known == self._ends.get(crawl.id, (0, 0))
        if 0 <= pages < HOOK_PAGES and not run:
            if not crawl.ended:
                return  # too few to judge by
            pages, after_ms = stats.stored, 0  # the last ones of a run: all are judged
        bad, latest_ms = failed(crawl.id, after_ms)
        self._hooks[crawl.id] = stats.stored, max(latest_ms, after_ms)
        if crawl.ended:
            self._ends[crawl.id] = self._hooks[crawl.id]
        failing.pop(crawl.name, None)
        if bad >= HOOK_SHARE * pages > 0:
            failing[crawl.name] = (
                f"The hook of the crawl {crawl.name} failed on {bad:,} of {pages:,} pages."
            )


def _never(_crawl: int, after_ms: int) -> tuple[int, int]:
    """Stand for a store in which a hook has not failed."""
    return 0, after_ms


def _moved(stats: CrawlStats) -> tuple[int, ...]:
    return (stats.finished, stats.retries, stats.admitted, stats.stored, stats.unchanged)


def errors(stats: CrawlStats) -> int:
    """Return how many tries of a crawl failed."""
    return sum(count for kind, count in stats.failures.items() if kind not in WITHHELD)
