"""Brokers in a test's own time: their modules take time and greenlets from a ``Pace``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from greencrawl.broker.frontier import crawls as crawls_module
from greencrawl.broker.frontier import hosts as hosts_module
from greencrawl.broker.frontier import sessions as sessions_module
from greencrawl.broker.frontier.coordination import duties as duties_module
from greencrawl.broker.frontier.coordination import fence as word_module
from greencrawl.broker.frontier.nodes import clock as clock_module
from greencrawl.broker.frontier.nodes import memory as memory_module
from greencrawl.broker.frontier.nodes import node as node_module
from greencrawl.broker.frontier.recovery import debts as debts_module
from greencrawl.broker.frontier.recovery import opening as recovery_module
from greencrawl.broker.frontier.recovery import replay as replay_module
from greencrawl.store import common as common_module
from greencrawl.store.sqlite import store as sqlite_module
from tests.support.paced import Pace


@contextmanager
def turned(pace: Pace, *more: tuple[Any, str, Any]) -> Iterator[None]:
    """Let the modules that read time and begin greenlets take them from ``pace``.

    ``more`` are other attributes to set meanwhile: (module, name, value).
    """
    changes: list[tuple[Any, str, Any]] = [
        (sessions_module, "epoch_ms", pace.epoch_ms),
        (hosts_module, "epoch_ms", pace.epoch_ms),
        (replay_module, "epoch_ms", pace.epoch_ms),
        (recovery_module, "gevent", pace.gevent()),
        (clock_module, "gevent", pace.gevent()),
        (sqlite_module, "epoch_ms", pace.epoch_ms),
        (common_module, "epoch_ms", pace.epoch_ms),
        *(
            (m, "monotonic", pace.monotonic)
            for m in (
                crawls_module,
                memory_module,
                recovery_module,
                node_module,
                clock_module,
                debts_module,
                duties_module,
                word_module,
            )
        ),
        *more,
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    for module, name, value in changes:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
