"""Options that choose pages: a host, a status, a time."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from schema.errors import InvalidConfig, InvalidUrl
from schema.urls import canonicalise, host_of

_AGO = re.compile(r"(\d{1,6})\s*([smhdw])")
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_STATUS = re.compile(r"([1-9])xx|(\d{3})(?:-(\d{3}))?", re.IGNORECASE)


def since(text: str, now_ms: int) -> int:
    """Epoch milliseconds of an ISO 8601 date or time (UTC unless it says so), or of ``3d`` ago.

    Raises InvalidConfig.
    """
    ago = _AGO.fullmatch(text.strip().lower())
    if ago:
        return max(0, now_ms - int(ago[1]) * _UNITS_MS[ago[2]])
    try:
        moment = datetime.fromisoformat(text.strip())
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(0, round(moment.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise InvalidConfig(
            [("--since", f"{text!r} is no time: 2026-03-01, 2026-03-01T12:00:00Z, 2h, 3d")]
        ) from None


def status(text: str) -> tuple[int, int]:
    """A range of statuses, both ends included, of ``404``, ``2xx`` or ``200-299``.

    Raises InvalidConfig.
    """
    found = _STATUS.fullmatch(text.strip())
    if found and found[1]:
        return int(found[1]) * 100, int(found[1]) * 100 + 99
    if found:
        low, high = int(found[2]), int(found[3] or found[2])
        if low <= high:
            return low, high
    raise InvalidConfig([("--status", f"{text!r} is no status: 404, 2xx, 200-299")])


def host(text: str) -> str:
    """A host as the store names it, of ``Example.org`` or ``example.org:8080``.

    Raises InvalidConfig.
    """
    try:
        if any(mark in text for mark in "/?#@"):
            raise ValueError
        return host_of(canonicalise(f"http://{text.strip()}/"))
    except (InvalidUrl, ValueError):
        raise InvalidConfig([("--host", f"{text!r} is no host")]) from None
