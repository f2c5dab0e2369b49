"""Pages a second and CPU by process between two times, and the machine's use by others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psutil

from bench.rig.web import Web

QUIET_CORES = 0.1
"""If others use more than this, a measurement counts as disturbed, even if cores are left."""


class Window:
    """A window that opens when it is made.

    ``cpu`` returns the CPU seconds of each part so far, ``count`` how often something has happened.
    """

    def __init__(
        self,
        web: Web,
        cpu: Callable[[], dict[str, float]],
        count: Callable[[], dict[str, float]] = dict,
    ) -> None:
        self._web, self._cpu, self._count = web, cpu, count
        self._first = self._now()

    def _now(self) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
        counts, others = self._web.counts(), self._count()
        machine = psutil.cpu_times()
        spent = {"machine": sum(machine) - machine.idle - machine.iowait}
        return counts, {**spent, **self._cpu(), "server": counts["cpu"]}, others

    def close(self) -> dict[str, Any]:
        """Return ``pages_s``, ``pages``, ``seconds``, and ``busy``: cores' worth of CPU by part.

        ``foreign`` are the cores that were used by processes which are not ours; ``counted`` says
        how often a second each thing happened.
        """
        (before, spent, first), (after, now, last) = self._first, self._now()
        seconds = after["at"] - before["at"]
        pages = after["pages"] - before["pages"]
        busy = {part: (now[part] - spent.get(part, 0.0)) / seconds for part in now}
        machine = busy.pop("machine")
        return {
            "pages_s": round(pages / seconds, 1),
            "pages": round(pages),
            "seconds": round(seconds, 2),
            "busy": {part: round(share, 4) for part, share in busy.items()},
            "counted": {what: round((last[what] - first[what]) / seconds, 2) for what in last},
            "foreign": round(max(0.0, machine - sum(busy.values())), 3),
        }


class Patience:
    """Repeats disturbed measurements, as long as there are ``seconds`` left for that."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    def measure(self, opened: Callable[[], Window], seconds: float) -> dict[str, Any]:
        """Return a window of this many seconds, the quietest of all tries."""
        best: dict[str, Any] | None = None
        while True:
            window = opened()
            time.sleep(seconds)
            found = window.close()
            if best is None or found["foreign"] < best["foreign"]:
                best = found
            if best["foreign"] <= QUIET_CORES or self._left < seconds:
                return best
            self._left -= seconds


def unquiet(windows: list[dict[str, Any]]) -> str:
    """Return a sentence about windows in which others used the machine, or ""."""
    loud = [one["foreign"] for one in windows if one["foreign"] > QUIET_CORES]
    if not loud:
        return ""
    return (
        f"The machine was not quiet: in {len(loud)} of {len(windows)} measurements other processes"
        f" took up to {max(loud):.1f} cores, so these figures count for nothing: rates are lower,"
        " CPU a page is higher, and shares of one another may be off either way."
    )
