"""The log lines of all processes, from the loggers: the last ones, and earlier ones."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import msgspec

from greencrawl.broker.service.shared import logs
from greencrawl.broker.service.shared.crawl_actions import error_parts
from greencrawl.monitor.field_errors import sentence
from greencrawl.monitor.page_request import Data, PageRequest, View
from greencrawl.schema.errors import InvalidConfig

SHOWN = 100
FILTERS = ("level", "node", "crawl", "url", "since")


def part(request: PageRequest) -> Data:
    """Return the lines, the latest first."""
    given = {name: request.asked(name) for name in (*FILTERS, "after")}
    given["level"] = given["level"] or "info"
    try:
        reply = logs.last_lines(request.service, given, SHOWN)
    except (InvalidConfig, msgspec.ValidationError) as error:
        known = error_parts(error)
        wrong = known[1] if known is not None else str(error)
        if isinstance(error, msgspec.ValidationError):
            wrong = sentence(request.words, error)
        return {"wrong": wrong, "lines": [], "next": "", "loggers": (), "silent": (), "first": True}
    more = {name: value for name, value in given.items() if value and name != "after"}
    return {
        "wrong": "",
        "lines": [(one, _fields(one.said)) for one in reversed(reply.items)],
        "next": f"?{urlencode({**more, 'after': reply.next})}" if reply.next else "",
        "loggers": reply.loggers,
        "silent": reply.silent,
        "first": not given["after"],
    }


def frame(request: PageRequest) -> Data:
    """Return the query."""
    given = {name: request.asked(name) for name in FILTERS}
    given["level"] = given["level"] or "info"
    return {"asked": given, "levels": logs.LEVELS, "crawls": request.figures.crawls()}


def _fields(given: dict[str, Any]) -> list[tuple[str, str]]:
    """Return fields of a line as text, without those that have columns of their own."""
    return [
        (name, value if isinstance(value, str) else msgspec.json.encode(value).decode())
        for name, value in given.items()
        if name not in ("event", "level", "timestamp", "process")
    ]


VIEWS = (View(name="logs", path="/monitor/logs", part=part, frame=frame, nav=True),)
