"""The process that serves a worker's metrics. The supervisor starts it, again if it dies.

It is a process and not a thread, since the supervisor forks and must not wait. None of the crawling
processes serves it, since metrics are most useful when those hang. It reads only the numbers that
all share (:mod:`greencrawl.worker.metrics.tallies`), so it may be killed at any time. The listening
socket is the supervisor's: while there is no such process, clients wait.
"""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from greencrawl.schema.bearer import is_loopback
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.log import logger
from greencrawl.schema.process.child import end, spawn
from greencrawl.schema.settings import Settings

log = logger("metrics")

BACKLOG = 16
_COMMAND = (sys.executable, "-P", "-m", "greencrawl.worker", "--metrics")
AGAIN_SECONDS, MOST_AGAIN_SECONDS = 1.0, 60.0
"""Seconds between two starts of the process: doubled with each death, up to the second number.
After a process that ran for longer than the second number, the pause is the first number again."""


def check_settings(settings: Settings) -> None:
    """Refuse to serve metrics to the network without a token. Raises InvalidConfig."""
    bind = settings.metrics_bind
    if bind is not None and not is_loopback(bind[0]) and not settings.worker_token:
        why = f"{bind[0]} is not loopback: set GREENCRAWL_WORKER_TOKEN, or bind to 127.0.0.1"
        raise InvalidConfig([("GREENCRAWL_METRICS_BIND", why)])


class Exporter:
    """The exporter of one worker. The supervisor calls :meth:`look` now and then, :meth:`close` at
    its end.

    ``lock`` is the descriptor that holds the worker's id. Raises InvalidConfig if the address is
    not available, or may not be used without a token.
    """

    def __init__(
        self, settings: Settings, lock: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        check_settings(settings)
        self._lock = lock
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._started = self._start_at = 0.0
        self._again_seconds = AGAIN_SECONDS
        _tls(settings)
        self._listening = _listener(settings)

    def look(self) -> None:
        """Start the process if there is none.

        The process holds the lock on the worker's id, as all children of the supervisor do. So when
        the successor of a killed supervisor gets the lock, the address is free.
        """
        if self._process is not None and self._process.poll() is not None:
            self._after_death(self._process.pid)
            self._process = None
        if self._process is not None or self._clock() < self._start_at:
            return
        self._started = self._clock()
        descriptor = self._listening.fileno()
        self._process = spawn(
            (*_COMMAND, str(descriptor)),
            keep=(descriptor, self._lock),
            ignored=(signal.SIGTERM, signal.SIGINT),  # the supervisor ends it, after the others
        )

    def _after_death(self, pid: int) -> None:
        if self._clock() - self._started >= MOST_AGAIN_SECONDS:
            self._again_seconds = AGAIN_SECONDS
        self._start_at = self._started + self._again_seconds
        log.error("exporter_died", pid=pid, again_seconds=self._again_seconds)
        self._again_seconds = min(2 * self._again_seconds, MOST_AGAIN_SECONDS)

    def close(self) -> None:
        """End the process, and free the address."""
        end(self._process)
        self._process = None
        self._listening.close()


def serve(settings: Settings, folder: Path, descriptor: int) -> None:
    """Run ``greencrawl.worker --metrics DESCRIPTOR``, until the supervisor ends it.

    ``folder`` has the numbers; the descriptor is that of the listening socket. Raises
    InvalidConfig if the certificate cannot be used; perhaps it is only half written.
    """
    # Only this process needs these libraries.
    from greencrawl.worker.metrics.families import WorkerCollector
    from greencrawl.worker.metrics.server import MetricsServer

    collector = WorkerCollector(settings, folder)
    tokens = (settings.worker_token, settings.admin_token)
    listening = socket.socket(fileno=descriptor)
    MetricsServer(listening, collector, tokens, _tls(settings)).serve_forever()


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
