"""One worker process: builds its parts, and handles what its predecessor left behind."""

from __future__ import annotations

import os
import resource
import secrets
import signal
import sys
import time
from functools import partial
from typing import Any

import gevent
from gevent.event import Event
from gevent.lock import Semaphore

from greencrawl import __version__
from greencrawl.broker.client import BrokerClient
from greencrawl.broker.frontier import Frontier
from greencrawl.schema import crash_points, garbage
from greencrawl.schema.errors import UnknownCrawl
from greencrawl.schema.log import logger
from greencrawl.schema.logs.sender import Sender
from greencrawl.schema.net.permits import Permits
from greencrawl.schema.records import (
    CloseItem,
    CloseRequest,
    Failure,
    FailureKind,
    FinishItem,
    FinishRequest,
    MemberRequest,
    Task,
)
from greencrawl.schema.settings import Settings
from greencrawl.store import Store, open_store
from greencrawl.worker import retry
from greencrawl.worker.auth.authenticator import Authenticator
from greencrawl.worker.auth.kinds.basic import load
from greencrawl.worker.auth.kinds.registry import make
from greencrawl.worker.auth.logins import LoginParts
from greencrawl.worker.auth.state.late_grants import marked
from greencrawl.worker.auth.state.secrets import Secrets
from greencrawl.worker.crawls import Crawls
from greencrawl.worker.delivery.attempts import Journal
from greencrawl.worker.delivery.outbox import Outbox
from greencrawl.worker.delivery.results import Results
from greencrawl.worker.delivery.writer import Writer
from greencrawl.worker.engine import Engine, Limits
from greencrawl.worker.extract import bound_parses, stops
from greencrawl.worker.http.client import Downloader
from greencrawl.worker.metrics.gauges import meter_of
from greencrawl.worker.metrics.tallies import file_of, joined
from greencrawl.worker.orders.figures import Figures
from greencrawl.worker.orders.following import Follower
from greencrawl.worker.orders.kept import OrdersFile
from greencrawl.worker.orders.ordered import OrderedProcess
from greencrawl.worker.orders.rate import Rate, SharedTurns
from greencrawl.worker.pipeline import Pipeline
from greencrawl.worker.process import heap
from greencrawl.worker.process.blocked import blocked
from greencrawl.worker.process.crash_record import CrashRecord, Suspect
from greencrawl.worker.process.guarded import Guarded
from greencrawl.worker.process.incarnation import Incarnation, begin
from greencrawl.worker.process.inflight_table import InflightTable
from greencrawl.worker.process.quarantine import Quarantine
from greencrawl.worker.process.supervisor import folder
from greencrawl.worker.session.backoff import until_available
from greencrawl.worker.session.held import HeldSession, Sessions
from greencrawl.worker.session.memory_budget import MemoryBudget
from greencrawl.worker.session.shares import Shares
from greencrawl.worker.traps.novelty import FILE, Novelty
from greencrawl.worker.traps.traps import Traps

log = logger("worker")

MEND = (
    "no parse can be ended early: suspect pages are read in a process of their own, all reading "
    "is slower, and no main text is stored; if there is a C compiler, "
    f"`{sys.executable} -m greencrawl.worker.extract.compile` compiles the part"
)

CALL_SECONDS = 30.0
"""A worker waits at most this long for a broker's answer."""

_DID = {FailureKind.PROCESS_DEATH: "killed", FailureKind.STALLED: "hung"}


def broker_of(settings: Settings, *addresses: str) -> BrokerClient:
    """Make a worker's client. It leaves a silent broker for the next one after a third of a lease,
    at least a second. Then another broker can still extend or finish the sessions in time."""
    seconds = min(CALL_SECONDS, max(settings.lease_seconds / 3, 1.0))
    to, token = addresses or settings.broker, settings.worker_token
    return BrokerClient(to, token, ca=settings.tls_ca, timeout=seconds)


def sender_of(settings: Settings) -> Sender:
    """Send the log lines of this process to the loggers from now on, if there are any."""
    return Sender(settings.data, settings.worker_token, settings.tls_ca)


class Worker:
    """All parts of one process. Raises FrontierMismatch and InvalidConfig; waits for the rest.

    ``broker`` replaces the client of ``settings.broker``, as benchmarks need it; ``sender`` has the
    log lines so far.
    """

    def __init__(
        self,
        settings: Settings,
        number: int,
        stopping: Event,
        *,
        broker: BrokerClient | None = None,
        sender: Sender | None = None,
    ) -> None:
        name = f"{settings.worker_id}-{number}"
        base = folder(settings)
        self._settings = settings
        self._stopping = stopping
        self._sender = sender or sender_of(settings)
        self._permits = Permits.of(settings)
        counted = file_of(base, settings.worker_id, number) if settings.metrics_bind else None
        self._tallies = joined(counted)
        self._crash_record = CrashRecord(base / f"{name}.crash", Semaphore(1), blocked())
        self._store = until_available(
            lambda: open_store(settings.store_url, settings.bodies), "store"
        )
        self._frontier = until_available(lambda: _join(settings, self._store), "frontier")
        self._broker = broker or broker_of(settings)
        self._each = [broker] if broker else [broker_of(settings, one) for one in settings.broker]
        self._inflight = InflightTable(base / f"{name}.inflight")
        self._sessions = Sessions(self._inflight)
        self._results = Results(Journal(name), self._frontier.fingerprint)
        self._memory_budget = MemoryBudget()
        self._shares = Shares(
            partial(self._frontier.shares, secrets.token_hex(8)), settings.allow_networks
        )
        self._downloader = Downloader(
            settings.allow_networks,
            settings.request_seconds,
            shares=self._shares,
            allow_ports=settings.allow_ports,
            dns_servers=settings.dns_servers,
            memory_budget=self._memory_budget,
            tallies=self._tallies,
        )
        self._quarantine = Quarantine(settings.stall_seconds)
        self._crawls = Crawls(self._store, permits=self._permits)
        self._rate = Rate(SharedTurns(base / f"{settings.worker_id}.rate"))
        self._figures = Figures()
        self._fetching = Quarantine(settings.stall_seconds)
        self._build(name, begin(base / f"{name}.incarnation"))

    def _build(self, name: str, incarnation: Incarnation) -> None:
        settings, sessions = self._settings, self._sessions
        finishing: Outbox[FinishItem] = Outbox(
            "finish",
            lambda items: self._broker.finish(FinishRequest(tuple(items))),
            lambda item, status: sessions.settled(item.token, status),
            before=lambda: crash_points.point("worker.before_finish"),
            after=lambda: crash_points.point("worker.after_finish"),
        )
        closing: Outbox[CloseItem] = Outbox(
            "close",
            lambda items: self._broker.close(CloseRequest(tuple(items))),
            lambda item, _: sessions.closed(item.token),
        )
        self._finishing = finishing
        self._writer = Writer(
            self._store,
            self._frontier,
            finishing,
            sessions,
            spawn=lambda *call: self._engine.spawn(*call),
            memory_budget=self._memory_budget,
            figures=self._figures,
            tallies=self._tallies,
        )
        self._pipeline = Pipeline(
            store=self._store,
            frontier=self._frontier,
            fetcher=self._downloader,
            auth=self._authenticator(),
            writer=self._writer,
            results=self._results,
            guarded=Guarded(self._crash_record, self._quarantine, self._fetching),
            stopping=self._stopping,
            keep_all=settings.bodies != "sql",
            memory_budget=self._memory_budget,
            crawls=self._crawls,
            rate=self._rate,
            traps=Traps(Novelty(folder(settings) / FILE)),
        )
        self._engine = Engine(
            Limits(
                worker=name,
                incarnation=incarnation.number,
                greenlets=settings.greenlets,
                lease_seconds=settings.lease_seconds,
                beat_seconds=min(1.0, settings.stall_seconds / 5),
            ),
            self._broker,
            self._pipeline,
            sessions,
            self._writer,
            (finishing, closing),
            closing,
            self._crash_record,
            inflight=self._inflight,
            dead=incarnation.dead,
            dead_for=self._dead_for,
            refusals=self._crawls.refusals,
            blocked=blocked().since,
            stopping=self._stopping,
        )
        held, writer = self._sessions, self._writer
        parts = held, writer, self._crawls, self._rate, self._figures, self._sender
        self._follower = Follower(
            MemberRequest(
                id=name,
                node=settings.worker_id,
                kind="worker",
                incarnation=incarnation.number,
                version=__version__,
            ),
            self._each,
            OrdersFile(folder(settings) / f"{settings.worker_id}.orders"),
            OrderedProcess(settings, self._engine, *parts),
        )
        self._meter = meter_of(
            self._tallies,
            self._engine,
            self._sessions,
            self._writer,
            self._memory_budget,
            self._downloader,
        )
        self._sender.begin(name, incarnation.number)
        log.info("worker_started", worker=name, incarnation=incarnation.number, pid=os.getpid())
        if not stops():
            log.warning("reader_not_compiled", mend=MEND)

    def _dead_for(self) -> float:
        """Return the seconds since the previous process was found dead; 0 if that is not known."""
        died = self._crash_record.died
        return time.monotonic() - died if died else 0.0

    def _authenticator(self) -> Authenticator:
        """Build the authentication. A file of credentials that is named must exist."""
        settings, file = self._settings, self._settings.credentials_file

        def open_parts() -> LoginParts:
            # Only for crawls that log in: its libraries take memory, and the vault makes a folder.
            from greencrawl.worker.auth.errands import Errands
            from greencrawl.worker.auth.state.sealing import sealing
            from greencrawl.worker.auth.state.vault import open_vault

            seal = sealing(settings, "errands")
            return LoginParts(
                open_vault(settings, self._frontier),
                Errands(self._frontier, seal.seal, seal.unseal),
            )

        authenticator = Authenticator(
            open_parts,
            Secrets(file),
            load(file) if settings.credentials or file.exists() else None,
            make=partial(make, permits=self._permits),
            stopping=self._stopping,
        )
        if settings.session_key and marked(settings.logins):
            authenticator.resume()
        return authenticator

    def run(self) -> int:
        """Charge the page at which the last process died, then crawl; return the exit status.

        Charging needs the store and a broker. If this process is told to stop before they answer,
        the next process charges the page.
        """
        try:
            charging = gevent.spawn(self._charge)
            either: list[Any] = [charging, self._stopping]
            gevent.wait(either, count=1)
            if not charging.ready():
                charging.kill()
                return 0
            charging.get()
            with self._meter.running():
                self._follower.start()
                following = self._engine.spawn(self._follower.run)
                status = self._engine.run(self._settings.request_seconds + 10.0)
                following.kill()
                self._follower.leave()
                return status
        finally:
            self._quarantine.close()
            self._fetching.close()
            self._shares.close()
            self._downloader.close()
            self._store.close()
            self._sender.stop()

    def _charge(self) -> None:
        """Charge the page that killed or hung our predecessor, and that page alone.

        Other pages may have had a part in the death, so the page is not a dead letter yet. From now
        on the page is read alone (``greencrawl.worker.process.quarantine``); the result there is
        the proof. This comes before the first reconcile, which releases the session's other tasks
        without a failure. If the broker has reaped the session already, the outcome is stale and
        the page is only fetched once more; its attempt is in the journal.
        """
        verdict = self._crash_record.verdict()
        if verdict is None:
            return
        cause, suspect = verdict
        beating = gevent.spawn(self._beat)  # the store or the broker may be away for long
        try:
            self._settle(cause, suspect)
        finally:
            beating.kill()
        self._crash_record.clear()

    def _settle(self, cause: FailureKind, suspect: Suspect) -> None:
        try:
            crawl = until_available(lambda: self._store.crawl(suspect.crawl), "store")
        except UnknownCrawl:
            return
        task = Task(suspect.task, suspect.url, suspect.depth, suspect.level, errors=suspect.errors)
        failure = Failure(cause, f"{_DID[cause]} the process that read it; next it is read alone")
        decision = retry.decide(failure, suspect.errors, crawl.options.tries, proven=False)
        held = HeldSession(suspect.of_session(), 0.0)
        result = self._results.failed(held, suspect.crawl, task, failure, decision)
        log.warning(
            "page_charged", url=suspect.url, cause=str(cause), outcome=str(decision.outcome)
        )
        self._writer.settle_now(result)
        self._finishing.flush()

    def _beat(self) -> None:
        while True:
            self._crash_record.beat()
            gevent.sleep(min(1.0, self._settings.stall_seconds / 5))


def _join(settings: Settings, store: Store) -> Frontier:
    return Frontier(
        settings.redis_addresses,
        store,
        partitions=settings.partitions,
        lease_seconds=settings.lease_seconds,
        request_seconds=settings.request_seconds,
        create=False,
    )


def before_start() -> None:
    """Configure the process before any part is built."""
    heap.settle()
    bound_parses()
    gevent.config.track_greenlet_tree = False  # who spawned whom, for debuggers: 3 KB a greenlet
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # each session and each idle connection needs a socket
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _started(
    settings: Settings, number: int, stopping: Event, sender: Sender
) -> Worker | Exception:
    """Return the worker, or the error of its start: gevent prints a traceback of what is raised."""
    try:
        return Worker(settings, number, stopping, sender=sender)
    except Exception as error:  # noqa: BLE001 - raised again in main
        return error


def main(settings: Settings, number: int) -> int:
    """Run ``python -m greencrawl.worker --child N``; return the exit status."""
    crash_points.arm(settings.fault)
    before_start()
    sender = sender_of(settings)
    stopping = Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(signum, stopping.set)
    starting = gevent.spawn(_started, settings, number, stopping, sender)
    stopping.rawlink(lambda _: starting.kill(block=False))
    worker = starting.get()
    if isinstance(worker, Exception):
        raise worker
    garbage.started()
    if not isinstance(worker, Worker):  # told to stop while it waited, for example for Redis
        return 0
    return worker.run()
