"""What a broker mounts: a WSGI application that loads the Monitor when somebody first asks for it.

A broker that nobody looks at does not pay for templates, words and pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from gevent.lock import BoundedSemaphore

from greencrawl.broker.service.service import Service

if TYPE_CHECKING:
    from greencrawl.monitor.app import App


class Monitor:
    """The pages under ``/monitor/`` of one broker; the tokens are empty where it has none."""

    def __init__(self, service: Service, admin_token: str, view_token: str) -> None:
        self._given = service, admin_token, view_token
        self._app: App | None = None
        self._loading = BoundedSemaphore(1)

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request, as WSGI has it."""
        return self.app().wsgi(environ, start)

    def app(self) -> App:
        """The application, made once."""
        with self._loading:
            if self._app is None:
                from greencrawl.monitor.app import App

                self._app = App(*self._given)
        return self._app

    def stop(self) -> None:
        """End what goes on in the background. Idempotent."""
        if self._app is not None:
            self._app.stop()
