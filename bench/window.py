"""Pages a second and CPU by process between two moments, with what others took of the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psutil

from bench.web import Web

QUIET_CORES = 0.1
"""More than this taken by others, and a figure says nothing."""


class Window:
    """Opened when made. ``cpu`` gives the CPU seconds of each part so far."""

    def __init__(self, web: Web, cpu: Callable[[], dict[str, float]]) -> None:
        self._web, self._cpu = web, cpu
        self._first = self._now()

    def _now(self) -> tuple[dict[str, float], dict[str, float]]:
        counts = self._web.counts()
        machine = psutil.cpu_times()
        spent = {"machine": sum(machine) - machine.idle - machine.iowait}
        return counts, {**spent, **self._cpu(), "server": counts["cpu"]}

    def close(self) -> dict[str, Any]:
        """``pages_s``, ``pages``, ``seconds``, and ``busy``: cores' worth of CPU by part.

        ``foreign`` are the cores that went to processes which are not ours.
        """
        (before, spent), (after, now) = self._first, self._now()
        seconds = after["at"] - before["at"]
        pages = after["pages"] - before["pages"]
        busy = {part: (now[part] - spent.get(part, 0.0)) / seconds for part in now}
        machine = busy.pop("machine")
        return {
            "pages_s": round(pages / seconds, 1),
            "pages": round(pages),
            "seconds": round(seconds, 2),
            "busy": {part: round(share, 4) for part, share in busy.items()},
            "foreign": round(max(0.0, machine - sum(busy.values())), 3),
        }


def unquiet(windows: list[dict[str, Any]]) -> str:
    """A sentence about windows in which others used the machine, or ""."""
    loud = [one["foreign"] for one in windows if one["foreign"] > QUIET_CORES]
    if not loud:
        return ""
    return (
        f"The machine was not quiet: in {len(loud)} of {len(windows)} measurements other processes"
        f" took up to {max(loud):.1f} cores, so these figures count for nothing."
    )
