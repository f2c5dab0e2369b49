"""The forms in which people write a moment or a range of statuses, as the store's filters take
them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from greencrawl.schema.clock import epoch_ms

_AGO = re.compile(r"(?P<count>[0-9]{1,9}) ?(?P<unit>[smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_STATUS = re.compile(  # some sites answer with a status over 599, such as 999
    r"(?P<low>[1-9][0-9]{2})(?:-(?P<high>[1-9][0-9]{2}))?|(?P<digit>[1-5])xx", re.IGNORECASE
)

SINCE = (
    "a date (2026-03-01), a date and time (2026-03-01T12:00, UTC unless it says otherwise), or how "
    "long ago (90s, 15m, 2h, 3d, 1w)"
)
STATUS = "a status (200), a class from 1xx to 5xx, or a range (300-399)"


def since_ms(text: str, now_ms: int | None = None) -> int:
    """Return the moment that :data:`SINCE` describes, in Unix milliseconds. Raises ValueError.

    "ago" is counted from ``now_ms``, by default the clock's time.
    """
    given = text.strip()
    if ago := _AGO.fullmatch(given):
        now = epoch_ms() if now_ms is None else now_ms
        return max(0, now - int(ago["count"]) * _UNITS[ago["unit"]] * 1000)
    try:
        moment = datetime.fromisoformat(given)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(0, round(moment.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:60]!r} is neither {SINCE}") from None


def status_range(text: str) -> tuple[int, int]:
    """Return the statuses that :data:`STATUS` describes; both ends count. Raises ValueError."""
    found = _STATUS.fullmatch(text.strip())
    if found and found["digit"]:
        low = int(found["digit"]) * 100
        return low, low + 99
    if found:
        low, high = int(found["low"]), int(found["high"] or found["low"])
        if low <= high:
            return low, high
    raise ValueError(f"{text[:60]!r} is not {STATUS}")
