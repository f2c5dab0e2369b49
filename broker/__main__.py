"""``python -m greencrawl.broker``: one broker process, until SIGTERM or SIGINT."""

from greencrawl.schema.process import starting

starting.begin("broker")

from greencrawl.schema import garbage
from greencrawl.schema.greenlets import patch_all

garbage.starting()
patch_all()

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import gevent
from gevent.event import Event

from greencrawl.broker.api.app import HttpApp, Server, listener, tls_context
from greencrawl.broker.frontier.coordination.duties import Duties
from greencrawl.broker.frontier.nodes.embedded import EmbeddedRedis
from greencrawl.broker.frontier.frontier import Frontier
from greencrawl.broker.api.security import Guard, check_settings
from greencrawl.schema.logs.sender import Sender
from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks.coordinator.coordinator import Coordinator, Watched
from greencrawl.broker.tasks.coordinator.webhook import Webhook
from greencrawl.broker.tasks.membership import Membership
from greencrawl.broker.tasks.purge import Purging
from greencrawl.broker.tasks.calendar import Calendar
from greencrawl.broker.tasks.refill import Refill
from greencrawl.broker.tasks.retention import Limits, Retention
from greencrawl.broker.tasks.upkeep import Upkeep
from greencrawl.monitor.mount import Monitor
from greencrawl.schema import log
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.net.permits import Permits
from greencrawl.schema.process.serving import log_settings, serve
from greencrawl.schema.settings import Settings
from greencrawl.store import Store, open_store
from greencrawl.store.steward import ring_of, steward_of

STORE_SECONDS = 1.0
"""Seconds between two attempts to open a store that is away."""


class BrokenOff(BaseException):
    """Raised in a starting broker that is told to stop before it serves."""


@contextmanager
def breaking_off(stop: Event) -> Iterator[None]:
    """Raise BrokenOff in the block once ``stop`` is set, whatever the block waits for."""
    ours = gevent.getcurrent()

    def throw(_: Event) -> None:
        ours.throw(BrokenOff())

    stop.rawlink(throw)
    try:
        yield
    finally:
        stop.unlink(throw)


def run(settings: Settings, sender: Sender) -> None:
    """Serve until told to stop. Raises a GreencrawlError if it cannot start."""
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, stop.set)
    check_settings(settings)
    context = tls_context(settings)
    listening = listener(settings.bind)
    embedded = EmbeddedRedis(settings.data / "redis") if settings.embedded_redis else None
    try:
        if embedded is not None:
            with breaking_off(stop):
                embedded.start()
        steward = steward_of(settings.store_url, settings.store_steward)
        looking = gevent.spawn(steward.run) if steward is not None else None
        with breaking_off(stop):
            store = _opened(settings, stop)
        duties = Duties(store)
        try:
            with breaking_off(stop):
                frontier = Frontier(
                    settings.redis_addresses,
                    store,
                    partitions=settings.partitions,
                    lease_seconds=settings.lease_seconds,
                    request_seconds=settings.request_seconds,
                    host_bytes=settings.host_bytes,
                    create=True,
                    duties=duties,
                )
                frontier.start()
            service = Service(
                frontier, store, duties=duties, permits=Permits.of(settings),
                ring=partial(ring_of, steward),
            )  # fmt: skip
            service.loggers.token, service.loggers.ca = settings.worker_token, settings.tls_ca
            upkeep, refill, purging = Upkeep(service), Refill(service), Purging(service)
            calendar = Calendar(service)
            limits = Limits(settings.journal_months, settings.journal_days, settings.version_days)
            retention = Retention(service, limits)
            http_app = HttpApp(
                service, Guard(settings.worker_token, settings.admin_token), settings.data
            )
            monitor = Monitor(service, settings.admin_token, settings.view_token)
            for path in ("/", "/monitor", "/monitor/"):
                http_app.mount(path, monitor)
            server = Server(http_app, listening, context)
            address = f"{settings.bind[0]}:{server.port}"
            membership = Membership(service, settings, address, server.port, sender)
            webhook = Webhook(settings.alert) if settings.alert else None
            coordinator = Coordinator(
                service, Watched(membership.member, webhook, settings.sample_days)
            )
            upkeep.start()
            refill.start()
            calendar.start()
            purging.start()
            retention.start()
            server.start()
            membership.start()
            coordinator.start()
            log.logger("broker").info("broker_started", host=settings.bind[0], port=server.port)
            stop.wait()
            monitor.stop()
            server.stop()
            coordinator.stop()
            membership.stop()
            retention.stop()
            upkeep.stop()
            refill.stop()
            calendar.stop()
            purging.stop()
            frontier.stop(clean=embedded is not None)
            sender.stop()
        finally:
            duties.stop()
            store.close()
            if looking is not None:
                looking.kill()
    except BrokenOff:
        log.logger("broker").info("start_interrupted")
    finally:
        listening.close()
        if embedded is not None:
            embedded.stop()


def _opened(settings: Settings, stop: Event) -> Store:
    """Open the store; wait until it answers, since it may first need the steward of this
    process."""
    said = False
    while True:
        try:
            return open_store(settings.store_url, settings.bodies)
        except Unavailable as error:
            if not said:
                log.logger("broker").warning("wait_started", what="store", reason=str(error))
            said = True
            if stop.wait(STORE_SECONDS):
                raise


def _run(settings: Settings) -> None:
    sender = Sender(settings.data, settings.worker_token, settings.tls_ca)
    log_settings("broker", settings)
    run(settings, sender)


if __name__ == "__main__":
    sys.exit(serve("broker", sys.argv[1:], _run))
