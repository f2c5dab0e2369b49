"""The values of a worker's process that are read each second, beside its counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from greencrawl.worker.metrics.meter import Meter
from greencrawl.worker.metrics.tallies import Tallies
from greencrawl.worker.process.blocked import blocked

if TYPE_CHECKING:
    from greencrawl.worker.delivery.writer import Writer
    from greencrawl.worker.engine import Engine
    from greencrawl.worker.http.client import Downloader
    from greencrawl.worker.session.held import Sessions
    from greencrawl.worker.session.memory_budget import MemoryBudget


def meter_of(
    tallies: Tallies,
    engine: Engine,
    sessions: Sessions,
    writer: Writer,
    memory_budget: MemoryBudget,
    downloader: Downloader,
) -> Meter:
    """Make a meter that notes them among ``tallies``; sizes in bytes."""
    return Meter(
        tallies,
        {
            "sessions_held": lambda: len(sessions),
            "greenlets_busy": lambda: sessions.fetching,
            "greenlets_allowed": lambda: engine.greenlets,
            "writer_queue_bytes": lambda: writer.backlog_bytes,
            "writer_queue_results": lambda: writer.queue_results,
            "in_hand_bytes": lambda: memory_budget.bytes,
            "idle_connections": lambda: downloader.idle_connections,
        },
        {"hub_blocked_seconds": lambda: blocked().seconds},
    )
