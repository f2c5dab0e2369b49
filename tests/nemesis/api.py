"""The brokers' HTTP API as an operator uses it, and the ledger of its answers."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CALL_SECONDS = 20.0


@dataclass
class Call:
    """One operation; times are ``time.monotonic()``. ``status`` 0: its outcome is unknown."""

    op: str
    crawl: str
    sent: float
    answered: float = 0.0
    status: int = 0
    urls: list[str] = field(default_factory=list)
    """Acknowledged seeds."""
    asked: list[str] = field(default_factory=list)
    """Seeds that were sent."""
    broker: str = ""
    id: int = 0

    @property
    def acknowledged(self) -> bool:
        return 200 <= self.status < 300


class Api:
    """Calls any broker by name. Safe for threads."""

    def __init__(self, brokers: Mapping[str, str]) -> None:
        self.brokers = dict(brokers)
        self.ledger: list[Call] = []
        self._lock = threading.Lock()

    def ask(
        self, broker: str, method: str, path: str, body: object = None, seconds: float = 0
    ) -> tuple[int, Any]:
        """Return status and JSON; (0, None) if there was no answer."""
        request = urllib.request.Request(
            self.brokers[broker] + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=seconds or CALL_SECONDS) as answer:
                content = answer.read()
                return answer.status, json.loads(content) if content[:1] in (b"{", b"[") else None
        except urllib.error.HTTPError as error:
            return error.code, None
        except (OSError, ValueError):
            return 0, None

    def until_ready(self, broker: str, seconds: float) -> bool:
        """Return whether the broker becomes ready in that time."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            if self.ask(broker, "GET", "/readyz", seconds=2)[0] == 200:
                return True
            time.sleep(0.1)
        return False

    def call(self, broker: str, op: str, crawl: str, **given: Any) -> Call:
        """Make one call; it is noted before it is sent and after it is answered."""
        method, path, body = _request(op, crawl, given)
        urls = list(given.get("urls", ()))
        call = Call(op, crawl, time.monotonic(), asked=urls, broker=broker)
        with self._lock:
            self.ledger.append(call)
        status, answer = self.ask(broker, method, path, body)
        if 200 <= status < 300 and isinstance(answer, dict):
            call.id = int(answer.get("id", 0) or 0)
            items = answer.get("items")
            if items is None:
                call.urls = urls
            else:
                call.urls = [
                    url
                    for url, item in zip(urls, items, strict=True)
                    if item["status"] != "rejected"
                ]
        call.answered, call.status = time.monotonic(), status
        return call

    def calls(self) -> list[Call]:
        """Return the present ledger."""
        with self._lock:
            return list(self.ledger)


def _request(op: str, crawl: str, given: Mapping[str, Any]) -> tuple[str, str, object]:
    if op == "create":
        body = {"name": crawl, "seeds": given["urls"], **given["options"]}
        return "POST", "/v1/crawls", body
    if op == "seed":
        body = {"urls": given["urls"], "force": given.get("force", False)}
        return "POST", f"/v1/crawls/{crawl}/urls", body
    if op == "requeue":
        return "POST", "/v1/dead/requeue", {"crawl": crawl}
    if op == "release":
        return "POST", "/v1/parked/release", {"crawl": crawl, "all": True}
    if op == "stop":
        return "POST", f"/v1/crawls/{crawl}/stop", {}
    if op == "delete":
        return "DELETE", f"/v1/crawls/{crawl}", None
    return "POST", f"/v1/crawls/{crawl}/{op}", None
