"""Every metric of a worker's processes: its name, its meaning, its labels, and where it is counted.

The names follow Prometheus' conventions: base units, ``_total`` on counters (added when they are
served), and labels of a few values that are known beforehand. docs/metrics.md has the table; a test
compares it with what is served.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from greencrawl.schema.records import FailureKind

PREFIX = "greencrawl_worker_"

RESPONSE_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
COMMIT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Family:
    """One metric. ``values`` are the values of its ``label``; ``buckets`` are upper bounds in
    seconds.

    Without a label, and unless it is a histogram, it is served for each process; otherwise as the
    sum of all.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    label: str = ""
    values: tuple[str, ...] = ("",)
    buckets: tuple[float, ...] = ()

    @property
    def slots(self) -> int:
        """Return how many numbers it takes.

        A histogram has a count for each bucket, one for larger values, and the sum.
        """
        return len(self.buckets) + 2 if self.kind == "histogram" else len(self.values)


FAMILIES = (
    Family("requests", "counter", "Requests that were sent to hosts, robots.txt and logins too"),
    Family("received_bytes", "counter", "Bytes of bodies, as they were transferred"),
    Family(
        "response_seconds", "histogram",
        "Time from the first byte of a request to the last of its answer",
        buckets=RESPONSE_BUCKETS,
    ),
    Family("connections", "counter", "Connections to hosts that were opened"),
    Family("tls_handshakes", "counter", "TLS handshakes that succeeded"),
    Family("tls_handshake_seconds", "counter", "Time of TLS handshakes, waits included"),
    Family("dns_lookups", "counter", "Names that were looked up, without cached ones"),
    Family("dns_lookup_seconds", "counter", "Time of look-ups of names, also of failed ones"),
    Family("pages", "counter", "Pages that were stored"),
    Family(
        "tasks", "counter", "Tasks that came to an outcome, with what they brought in the store",
        label="outcome", values=("done", "retry", "dead"),
    ),
    Family(
        "failures", "counter", "Tries that failed, and what else the journal notes, by kind",
        label="kind", values=tuple(str(kind) for kind in FailureKind),
    ),
    Family(
        "commit_seconds", "histogram",
        "Time that the store took to commit a batch of results, failed commits not counted",
        buckets=COMMIT_BUCKETS,
    ),
    Family("cpu_seconds", "counter", "CPU that the process took, of user and system"),
    Family(
        "hub_blocked_seconds", "counter",
        "Time in which all else waited for the parse of one page (20 ms or more)",
    ),
    Family("sessions_held", "gauge", "Hosts that are leased, until all their results are settled"),
    Family("greenlets_busy", "gauge", "Sessions that fetch"),
    Family("greenlets_allowed", "gauge", "Sessions that may fetch at once: GREENCRAWL_GREENLETS"),
    Family("writer_queue_bytes", "gauge", "Results that wait for the store, or are on their way"),
    Family("writer_queue_results", "gauge", "Results that wait for a batch"),
    Family("in_hand_bytes", "gauge", "Bodies being received, read and stored, and their results"),
    Family("idle_connections", "gauge", "Connections that are kept for a next request"),
    Family("process_starts", "counter", "Starts of the process, the first one too"),
    Family(
        "process_deaths", "counter", "Processes that died or were killed, by cause",
        label="cause", values=(str(FailureKind.PROCESS_DEATH), str(FailureKind.STALLED)),
    ),
    Family("process_id", "gauge", "Process id of the live process, 0 without one"),
)  # fmt: skip
"""In the order of their numbers in shared memory."""

SLOTS = sum(family.slots for family in FAMILIES)
LAYOUT = "\n".join(f"{f.name} {f.kind} {f.values} {f.buckets}" for f in FAMILIES)
"""Two processes that share the numbers must agree on this."""


def _first_slots() -> Iterator[tuple[str, int]]:
    at = 0
    for family in FAMILIES:
        yield family.name, at
        at += family.slots


SLOT = dict(_first_slots())
"""Name of a family → the index of its first number."""

GAUGES = tuple(SLOT[family.name] for family in FAMILIES if family.kind == "gauge")


def by_label(name: str) -> dict[str, int]:
    """Return value of a family's label → the index of its counter."""
    family = next(one for one in FAMILIES if one.name == name)
    return {value: SLOT[name] + at for at, value in enumerate(family.values)}
