"""The access log: each request and its credentials; and the gate that holds requests."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse

HOLD_SECONDS = 20.0

Answer = Callable[[HttpRequest], HttpResponse]


class Who:
    """It notes the user on the request.

    It runs inside of Django's own middleware, so the user is known.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.user.is_authenticated:
            request.who = request.user.get_username()  # type: ignore[attr-defined]
        request.key = request.session.session_key or ""  # type: ignore[attr-defined]
        return self._answer(request)


class AccessLog:
    """It writes one JSON line for each request; it is outermost, so it sees everything.

    While ``FOLDER/hold`` exists and contains ``{"path": PREFIX, "count": N, "sql": STATEMENT}``,
    requests below PREFIX wait until N of them are there, or for ``HOLD_SECONDS``. The last one runs
    the statement before the others go on – for example, it lets tokens expire – and renames the
    file to ``held``.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._file = os.open(
            settings.SITE_FOLDER / "access.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
        )
        self._waiting = 0
        self._in_flight = 0
        self._lock = threading.Condition()

    def __call__(self, request: HttpRequest) -> HttpResponse:
        began = time.time()
        with self._lock:
            self._in_flight += 1
            at_once = self._in_flight
        try:
            held = self._hold(request)
            response = self._answer(request)
        finally:
            with self._lock:
                self._in_flight -= 1
        self._note(request, response, began, at_once, held)
        return response

    def _hold(self, request: HttpRequest) -> bool:
        try:
            gate: dict[str, Any] = json.loads((settings.SITE_FOLDER / "hold").read_text())
        except FileNotFoundError:
            return False
        if not request.path.startswith(gate["path"]):
            return False
        limit = time.monotonic() + HOLD_SECONDS
        with self._lock:
            self._waiting += 1
            if self._waiting == gate["count"]:
                with sqlite3.connect(settings.SITE_FOLDER / "site.sqlite", timeout=30) as db:
                    db.execute(gate["sql"])
                (settings.SITE_FOLDER / "hold").rename(settings.SITE_FOLDER / "held")
                self._lock.notify_all()
            while self._waiting < gate["count"] and time.monotonic() < limit:
                self._lock.wait(limit - time.monotonic())
        return True

    def _note(
        self,
        request: HttpRequest,
        response: HttpResponse,
        began: float,
        at_once: int,
        held: bool,
    ) -> None:
        content = b"" if response.streaming else response.content
        bearer = request.headers.get("Authorization", "").partition("Bearer ")[2]
        line = {
            "time": began,
            "seconds": round(time.time() - began, 4),
            "method": request.method,
            "host": request.get_host(),
            "path": request.get_full_path(),
            "status": response.status_code,
            "user": getattr(request, "who", ""),
            "session": request.COOKIES.get(settings.SESSION_COOKIE_NAME, ""),
            "made": response.cookies[settings.SESSION_COOKIE_NAME].value
            if settings.SESSION_COOKIE_NAME in response.cookies
            else "",
            "bearer": bearer,
            "grant": request.POST.get("grant_type", "") if request.method == "POST" else "",
            "asks_password": b'type="password"' in content,
            "at_once": at_once,
            "held": held,
        }
        os.write(self._file, json.dumps(line).encode() + b"\n")
