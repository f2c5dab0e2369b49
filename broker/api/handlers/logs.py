"""The logs of all processes, as the loggers have them."""

from __future__ import annotations

from greencrawl.broker.service.service import Service
from greencrawl.broker.service.shared import logs
from greencrawl.schema.logs.records import LogsQuery, LogsReply


def list_logs(service: Service, query: LogsQuery) -> LogsReply:
    """List log lines of all processes, by time; a line that several loggers have comes once.

    Ask again with `next` as `after` until it is ""; an answer may have few lines or none. `silent`
    names loggers that did not answer: their lines are missing.
    """
    return logs.lines(service, query)
