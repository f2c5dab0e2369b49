"""Follows a crawl at a broker: creates it, shows it, until it is done or a person stops it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

import gevent
from msgspec import convert
from msgspec.structs import replace as replace_struct
from rich.console import Console

from greencrawl.broker.client import BrokerClient
from greencrawl.cli.local.processes import Processes, frozen_text
from greencrawl.cli.local.stopping import Stop
from greencrawl.cli.ui import advice, summary
from greencrawl.cli.ui.display import (
    Display,
    away_text,
    full_text,
    moment,
    printable,
    refused_text,
    rest_text,
)
from greencrawl.cli.ui.summary import Summary
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import Refused, Unavailable
from greencrawl.schema.net.scope import starts
from greencrawl.schema.net.urls import canonicalise, host_of
from greencrawl.schema.records import (
    STOPPED,
    Crawl,
    CrawlOptions,
    CrawlStats,
    CreateCrawl,
    HostPatch,
    HostState,
    Round,
    SeedRequest,
    Stats,
)

T = TypeVar("T")

POLL_SECONDS = 0.5
"""Seconds between two readings of the broker's counters."""

QUIET_SECONDS = 5.0
"""If URLs wait this long with none in flight, the display says why."""

BATCH = 1000
"""URLs in a request that asks for some again."""

SILENT_SECONDS = 10.0
"""If a broker is silent for this long, the display says so."""

ONLY_RETRIES = (
    "only retries are left, and none is due yet: `greencrawl explain URL` says why; "
    "after Ctrl-C the same command resumes"
)

AUTH = re.compile(r"\bauth (?P<name>[a-z][a-z0-9_]*)")
"""Finds the entry in the reason of a block after a login (``greencrawl.worker.auth.account``)."""

HOSTS = 10
"""How many of the seeds' hosts are asked about."""

ALL_REST = (
    "the hosts of all waiting URLs have to rest: they asked for a pause or did not answer, or a "
    "process died whose request may still be under way; the crawl goes on by itself, and "
    "`greencrawl explain URL` says when (unless all workers are paused or drained, as "
    "`greencrawl nodes` shows)"
)


@dataclass(frozen=True)
class End:
    """The end of following a crawl: its first and last counters, and the last slowest hosts.

    ``hosts`` is the largest number of hosts with work at once.
    """

    first: CrawlStats
    last: CrawlStats
    slowest: tuple[HostState, ...]
    hosts: int
    seconds: float

    @property
    def stopped(self) -> bool:
        """Return whether the crawl was stopped before it was done, or rests until its next
        period."""
        return self.last.state != "done" and not self.rests

    @property
    def rests(self) -> bool:
        """Return whether the crawl rests, and its next period is not due yet."""
        return self.last.state == "resting" and self.last.wakes_ms > epoch_ms()

    def summary(self) -> Summary:
        """Return the counters of the broker for this run."""
        stats = replace_struct(self.last, hosts=self.hosts)
        return summary.of_run(stats, self.slowest, self.seconds, self.first.fetched)


def follow(
    broker: BrokerClient,
    wanted: CreateCrawl,
    stop: Stop,
    processes: Processes | None,
    *,
    fresh: bool,
    stay: bool = False,
    again: Sequence[str] = (),
) -> End | None:
    """Create or update the crawl and show it until it is done or ``stop`` is asked for.

    With ``fresh`` all pages of a known crawl are fetched again; otherwise only the URLs in
    ``again``. With ``stay`` the run goes on while the crawl rests between two periods. A crawl that
    was paused or stopped is resumed, since a person named it. The call waits for a broker that is
    away, and starts our own processes again when they die. It returns None if ``stop`` came before
    there were any counters. Raises :class:`greencrawl.schema.errors.Refused` when the broker
    refuses the crawl, and :class:`greencrawl.cli.local.processes.ProcessFailed` when our processes
    die again and again.
    """
    name = wanted.name
    with Display(Console(stderr=True)) as display:

        def ask(call: Callable[[], T]) -> T | None:
            """Return the answer of the broker, and wait for it if the broker is away; None after a
            stop."""
            while not stop.asked.is_set():
                for death in processes.restart_dead() if processes else ():
                    display.note(f"{death}; started again")
                silent = gevent.spawn_later(SILENT_SECONDS, say_silent)
                try:
                    return stop.within(call)
                except Unavailable as error:
                    waits = f"waiting for the broker: {error}"
                    display.note(still() or waits)
                    stop.asked.wait(POLL_SECONDS)
                finally:
                    silent.kill(block=False)
            return None

        def still() -> str:
            return frozen_text(processes.frozen()) if processes else ""

        def say_silent() -> None:
            silence = f"the broker has not answered for {SILENT_SECONDS:g} s"
            display.note(f"{silence}: {still() or 'the command waits for it'}")

        anew = fresh and ask(lambda: known_at(broker, name)) is not None
        if fresh and not anew and not stop.asked.is_set():
            display.say(f"crawl {name} is new: --fresh has nothing to fetch again yet")
        created = ask(lambda: broker.put_crawl(wanted))
        if anew and created is not None:
            ask(lambda: broker.begin_round(name))
        for start in range(0, 0 if anew else len(again), BATCH):
            some = SeedRequest(tuple(again[start : start + BATCH]), force=True)
            ask(partial(broker.seed, name, some))
        if created is not None and (created.state == "paused" or created.reason == STOPPED):
            ask(lambda: broker.resume(name))
        if created is not None:
            ask(lambda: _unblock(broker, wanted))
        for one in (created and ask(lambda: broker.rounds(name))) or ():
            if not one.ended_ms:
                display.note(round_text(one))
        end: End | None = None
        busy, crashes, rest_seconds = display.seconds, 0, 0.0
        while (stats := ask(lambda: broker.stats(name))) is not None:
            end = _noted(end, stats, display.seconds)
            display.show(end.last, end.slowest)
            if end.last.leased or not end.last.waiting:
                busy = display.seconds
            resting = display.seconds - busy > QUIET_SECONDS
            note = ""
            if _only_retries(end.last):
                note = (ask(lambda: _first(broker, wanted)) or "") + ONLY_RETRIES
            if end.last.refused:
                note = refused_text(end.last)
            elif stats.rest_hosts:
                note = rest_text(stats)
            elif note or resting:
                note = ask(lambda: _blocked(broker, wanted)) or note
                if not note:
                    first = ask(lambda: _first(broker, wanted)) or ""
                    note = first if first and stats.workers == 0 else first + ALL_REST
            if stats.full and not note:
                note = full_text(stats.full[0])
            if stats.away:
                note = away_text(stats.away[0])
            note = still() or note
            if stats.rest_seconds > rest_seconds + QUIET_SECONDS:  # only a crash makes it longer
                crashes += 1
            rest_seconds = stats.rest_seconds
            key = f"crash {crashes}" if note and note == rest_text(stats) else ""
            key = "full" if stats.full and note == full_text(stats.full[0]) else key
            key = "waits" if note.endswith((ONLY_RETRIES, ALL_REST)) else key
            display.note(advice.complete(note), key)
            ended = not end.stopped and not (stay and end.rests)
            if ended or stop.asked.wait(POLL_SECONDS):
                break
    return end


def _unblock(broker: BrokerClient, wanted: CreateCrawl) -> None:
    """Free the seeds' hosts from the block of a refused login, since a person tries again.

    The login is tried again only if the secrets have changed; otherwise the workers know that it
    was refused, and block the hosts again.
    """
    for host in _hosts(wanted):
        if AUTH.search(broker.host(host).why):
            broker.patch_host(host, HostPatch(block=0.0))


def _blocked(broker: BrokerClient, wanted: CreateCrawl) -> str:
    """Return why a host of the seeds is blocked after a login; "" if no host is.

    The text names the time at which the block ends, and not the time that is left: a text that
    changes would be shown again and again.
    """
    for host in _hosts(wanted):
        state = broker.host(host)
        if found := AUTH.search(state.why):
            ends = datetime.fromtimestamp(epoch_ms() / 1000 + state.blocked_in, UTC)
            command = f"greencrawl login {found['name']}"
            mend = f"; correct that, and `{command}` or the same command again continues at once"
            what = state.why if command in state.why else f"{state.why}{mend}"
            return f"{host} is blocked until {ends:%H:%M} UTC: {what}"
    return ""


def _hosts(wanted: CreateCrawl) -> list[str]:
    """Return the hosts that the crawl starts from, if it logs in somewhere."""
    if not wanted.auth:
        return []
    return list(dict.fromkeys(host_of(canonicalise(url)) for _, url in starts(wanted)))[:HOSTS]


def _first(broker: BrokerClient, wanted: CreateCrawl) -> str:
    """Return why the first URL of the crawl still waits; "" if it does not wait."""
    for state in broker.url(starts(wanted)[0][1], wanted.name):
        if state.state in ("later", "waiting"):
            tries = [f"{one.detail or one.kind}; " for one in state.attempts[:1]]
            return printable(f"{state.url}: {''.join(tries)}{state.why}. ")
    return ""


def last_look(broker: BrokerClient, end: End) -> End:
    """Return ``end`` with the present counters, or unchanged when no broker answers."""
    try:
        return replace(end, last=broker.stats(end.last.crawl).crawls[0])
    except (Unavailable, Refused):
        return end


def _noted(end: End | None, stats: Stats, seconds: float) -> End:
    """Return ``end`` with new counters; slowest hosts are kept when there are none."""
    now = stats.crawls[0]
    if end is None:
        return End(now, now, stats.slowest, now.hosts, seconds)
    slowest, hosts = stats.slowest or end.slowest, max(end.hosts, now.hosts)
    return replace(end, last=now, slowest=slowest, hosts=hosts, seconds=seconds)


def _only_retries(stats: CrawlStats) -> bool:
    return 0 < stats.later == stats.open


def known_at(broker: BrokerClient, name: str) -> Crawl | None:
    """Return the crawl of that name, or None if the broker knows none."""
    try:
        return broker.crawl(name)
    except Refused as error:
        if error.status == 404:
            return None
        raise


def round_text(one: Round) -> str:
    """Return the state of a round that is under way, for people."""
    pages = "1 page is" if one.total == 1 else f"{one.total:,} pages are"
    if one.total < 0:  # not counted
        pages = "pages are"
    if one.kind == "read":
        return f"{one.why}: {pages} read again from what is stored"
    return f"{one.why}: {pages} stored; each stays until its new version is stored"


def is_finished(crawl: Crawl, wanted: CreateCrawl) -> bool:
    """Return whether running ``wanted`` again would change nothing: the crawl is done, with the
    same options."""
    fields = {name: getattr(wanted, name) for name in CrawlOptions.__struct_fields__}
    rests = crawl.state == "resting" and crawl.wakes_ms > epoch_ms()
    ended = rests or (crawl.state == "done" and crawl.reason != STOPPED)
    return ended and crawl.options == convert(fields, CrawlOptions)


def over_text(known: Crawl) -> str:
    """Say why the command that made a crawl does nothing now, and what would go on with it."""
    if known.state == "resting":
        return f"crawl {known.name} rests until {moment(known.wakes_ms)}; --follow waits for it"
    finished = f"crawl {known.name} is finished; to crawl it again, add --fresh"
    return advice.at_limit(known.name, known.reason) or finished
