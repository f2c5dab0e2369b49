"""The WSGI application that a broker mounts; it loads the Monitor at the first request.

So a broker without readers does not load templates, texts and pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from gevent.lock import BoundedSemaphore

from greencrawl.broker.service.service import Service

if TYPE_CHECKING:
    from greencrawl.monitor.app import App


class Monitor:
    """The pages under ``/monitor/`` of one broker; the tokens are empty if it has none."""

    def __init__(self, service: Service, admin_token: str, view_token: str) -> None:
        self._given = service, admin_token, view_token
        self._app: App | None = None
        self._loading = BoundedSemaphore(1)

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request by WSGI."""
        return self.app().wsgi(environ, start)

    def app(self) -> App:
        """Return the application, made once."""
        with self._loading:
            if self._app is None:
                from greencrawl.monitor.app import App

                self._app = App(*self._given)
        return self._app

    def stop(self) -> None:
        """End background work. Idempotent."""
        if self._app is not None:
            self._app.stop()
