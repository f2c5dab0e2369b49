"""``python -m greencrawl.logger``: one logger, until SIGTERM or SIGINT."""

from greencrawl.schema.process import starting

starting.begin("logger")

from greencrawl.schema import garbage
from greencrawl.schema.greenlets import patch_all

garbage.starting()
patch_all()

import os
import signal
import sys
from contextlib import suppress
from typing import Any

import gevent
from gevent.event import Event

from greencrawl.broker.api.app import ConnectionLog, listener, tls_context
from greencrawl.broker.api.connections import BoundedServer, most_connections
from greencrawl.broker.api.security import Guard
from greencrawl.logger.app import LoggerApp
from greencrawl.logger.archive import Archive
from greencrawl.logger.intake import Intake
from greencrawl.logger.joining import Joining
from greencrawl.schema import file_lock, log
from greencrawl.schema.bearer import is_loopback
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.errors import GreencrawlError, InvalidConfig
from greencrawl.schema.process.folder import folder_text
from greencrawl.schema.process.serving import log_settings, serve
from greencrawl.schema.settings import Settings

DROP_SECONDS = 600.0
"""Seconds between two checks for days that are over."""


def check_settings(settings: Settings) -> None:
    """Refuse to be open to the network. Raises InvalidConfig."""
    host = settings.logger_bind[0]
    if not is_loopback(host) and not settings.worker_token:
        raise InvalidConfig(
            [
                (
                    "GREENCRAWL_LOGGER_BIND",
                    f"{host} is not loopback: set GREENCRAWL_WORKER_TOKEN, or bind to 127.0.0.1",
                )
            ]
        )


def run(settings: Settings) -> None:
    """Serve until told to stop. Raises InvalidConfig, and OSError for the folder."""
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, stop.set)
    check_settings(settings)
    context = tls_context(settings)
    listening = listener(settings.logger_bind, "GREENCRAWL_LOGGER_BIND")
    folder = settings.data / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = file_lock.take(folder / "lock", b"%d" % os.getpid())
    except BlockingIOError as error:
        raise InvalidConfig([("GREENCRAWL_DATA", f"another logger uses {folder}")]) from error
    archive = Archive(folder, settings.logger_days)
    intake = Intake(archive)
    http_app = LoggerApp(archive, intake, Guard(settings.worker_token, settings.admin_token))
    server = BoundedServer(
        listening,
        http_app.wsgi,
        log=None,
        error_log=ConnectionLog(),
        most=most_connections(),
        **({"ssl_context": context} if context else {}),
    )
    background: list[gevent.Greenlet[..., Any]] = [
        gevent.spawn(intake.run),
        gevent.spawn(_drop_days, archive),
    ]
    server.start()
    port = int(server.server_port or 0)
    joining = Joining(settings, port)
    joining.start()
    log.logger("logger").info("logger_started", host=settings.logger_bind[0], port=port)
    stop.wait()
    joining.stop()
    server.stop(timeout=1.0)
    gevent.killall(background)
    intake.flush()
    os.close(lock)


def _drop_days(archive: Archive) -> None:
    logger = log.logger("logger")
    while True:
        try:
            if gone := archive.drop(epoch_ms()):
                logger.info("days_dropped", days=gone)
        except Exception:  # a bug must not end it: the disk would fill
            with suppress(OSError):  # our own log may go to the same disk
                logger.exception("drop_failed")
        gevent.sleep(DROP_SECONDS)


def _run(settings: Settings) -> None:
    log_settings("logger", settings)
    try:
        run(settings)
    except OSError as error:
        raise GreencrawlError(folder_text(error, settings.data) or str(error)) from error


if __name__ == "__main__":
    sys.exit(serve("logger", sys.argv[1:], _run))
