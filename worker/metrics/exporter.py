"""The process that serves a worker's metrics: a fork of the supervisor, which restarts it.

It is no thread of the supervisor, since that forks, and must not be held up. None of the crawling
processes serves it, since metrics are most useful when those hang. It reads only the numbers that
all share (:mod:`greencrawl.worker.metrics.tallies`), so it may be killed at any time. The listening
socket is the supervisor's: while there is no such process, clients wait.
"""

from __future__ import annotations

import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path

from greencrawl.schema.bearer import is_loopback
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.log import logger
from greencrawl.schema.process.parent import die_with
from greencrawl.schema.settings import Settings

log = logger("metrics")

BACKLOG = 16
AGAIN_SECONDS = 1.0
"""Seconds between two starts of the process."""


def check_settings(settings: Settings) -> None:
    """Refuse to serve metrics to the network without a token. Raises InvalidConfig."""
    bind = settings.metrics_bind
    if bind is not None and not is_loopback(bind[0]) and not settings.worker_token:
        why = f"{bind[0]} is not loopback: set GREENCRAWL_WORKER_TOKEN, or bind to 127.0.0.1"
        raise InvalidConfig([("GREENCRAWL_METRICS_BIND", why)])


class Exporter:
    """The exporter of one worker. The supervisor calls :meth:`look` now and then, :meth:`close` at
    its end.

    Raises InvalidConfig if the address is not available, or may not be used without a token.
    """

    def __init__(
        self, settings: Settings, folder: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        check_settings(settings)
        self._settings = settings
        self._folder = folder
        self._clock = clock
        self._pid = 0
        self._start_at = 0.0
        self._tls = _tls(settings)
        self._listening = _listener(settings)

    @property
    def pid(self) -> int:
        """Return the id of the serving process; 0 if there is none now."""
        return self._pid

    def look(self) -> None:
        """Start the process if there is none.

        It dies with its parent, and holds the parent's lock on the worker's id, as all its children
        do. So when the successor of a killed supervisor gets the lock, the address is free.
        """
        if self._pid and os.waitpid(self._pid, os.WNOHANG)[0]:
            log.error("exporter_died", pid=self._pid)
            self._pid = 0
        if self._pid or self._clock() < self._start_at:
            return
        self._start_at = self._clock() + AGAIN_SECONDS
        parent = os.getpid()
        self._pid = os.fork()  # safe: there are no threads
        if not self._pid:
            try:
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, signal.SIG_IGN)  # the parent ends it, after the others
                die_with(parent)
                self._serve()
            except BaseException:  # nothing of it may continue in the rest of the supervisor
                log.exception("exporter_failed")
            finally:
                sys.stderr.flush()
                os._exit(1)

    def _serve(self) -> None:
        # Only this process needs its libraries.
        from greencrawl.worker.metrics.families import WorkerCollector
        from greencrawl.worker.metrics.server import MetricsServer

        collector = WorkerCollector(self._settings, self._folder)
        tokens = (self._settings.worker_token, self._settings.admin_token)
        MetricsServer(self._listening, collector, tokens, self._tls).serve_forever()

    def close(self) -> None:
        """End the process, and free the address."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0
        self._listening.close()


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if not settings.tls_cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:  # ssl.SSLError is one
        raise InvalidConfig([("GREENCRAWL_TLS_CERT", f"cannot be used: {error}")]) from error
    return context


def _listener(settings: Settings) -> socket.socket:
    assert settings.metrics_bind is not None
    host, port = settings.metrics_bind
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        why = f"{host}:{port}: {error.strerror}"
        raise InvalidConfig([("GREENCRAWL_METRICS_BIND", why)]) from error
