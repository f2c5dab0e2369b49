"""Calendar months (UTC) of Unix milliseconds, also for years beyond 1 to 9999."""

from __future__ import annotations

from datetime import UTC, datetime


def month_of(epoch_ms: int) -> int:
    """Return the months since January of the year 0, so that the next month is one more."""
    first, last = -62_135_596_800_000, 253_370_764_800_000  # years 1 and 9999
    moment = datetime.fromtimestamp(min(max(epoch_ms, first), last) / 1000, UTC)
    return moment.year * 12 + moment.month - 1


def start_ms(month: int) -> int:
    """Return the first millisecond of a month of :func:`month_of`."""
    year = min(max(month // 12, 1), 9999)
    return int(datetime(year, month % 12 + 1, 1, tzinfo=UTC).timestamp() * 1000)
