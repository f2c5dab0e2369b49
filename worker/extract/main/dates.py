"""Dates, as pages, texts and URLs write them."""

from __future__ import annotations

import re
from datetime import date

_MONTHS = {
    month: number
    for number, names in enumerate(
        (
            "january jan januar janvier enero gennaio janeiro januari styczeń stycznia",
            "february feb februar février fevrier febrero febbraio fevereiro februari luty lutego",
            "march mar märz maerz mars marzo março maart marzec marca",
            "april apr avril abril aprile kwiecień kwietnia",
            "may mai mayo maggio maio mei maj maja",
            "june jun juni juin junio giugno junho czerwiec czerwca",
            "july jul juli juillet julio luglio julho lipiec lipca",
            "august aug août aout agosto augustus sierpień sierpnia",
            "september sep sept septembre septiembre settembre setembro wrzesień września",
            "october oct oktober okt octobre octubre ottobre outubro październik października",
            "november nov novembre noviembre novembro listopad listopada",
            "december dec dezember dez décembre decembre diciembre dicembre dezembro grudnia",
        ),
        1,
    )
    for month in names.split()
}
_NAMES = "|".join(sorted(_MONTHS, key=len, reverse=True))
_ISO = re.compile(r"\s*((?:19|20)\d\d)-?(\d\d)-?(\d\d)(?!\d)")
_IN_URL = re.compile(r"/((?:19|20)\d\d)[/-](\d\d?)(?:[/-](\d\d?))?(?=[/-]|$)")
_NAMED = re.compile(
    rf"\b(?:(?P<d1>\d{{1,2}})(?:st|nd|rd|th|\.|º)?\s+(?:de\s+|of\s+)?(?P<m1>{_NAMES})\b\.?,?\s+"
    rf"(?:de\s+)?(?P<y1>(?:19|20)\d\d)|(?P<m2>{_NAMES})\b\.?\s+(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?,?\s+"
    rf"(?P<y2>(?:19|20)\d\d))\b",
    re.IGNORECASE,
)
_NUMBERS = re.compile(
    r"\b(?:(?P<y1>(?:19|20)\d\d)[-/.](?P<m1>\d\d?)[-/.](?P<d1>\d\d?)"
    r"|(?P<d2>\d\d?)\.\s?(?P<m2>\d\d?)\.\s?(?P<y2>(?:19|20)\d\d)"
    r"|(?P<a3>\d\d?)/(?P<b3>\d\d?)/(?P<y3>(?:19|20)\d\d)"
    r"|(?P<y4>(?:19|20)\d\d)\s?年\s?(?P<m4>\d\d?)\s?月\s?(?P<d4>\d\d?)\s?日)"
)


def iso_date(value: str) -> str:
    """Return the day of a moment in ISO 8601, "" if it is invalid."""
    found = _ISO.match(value)
    return _day(*found.groups()) if found else ""


def date_in_url(url: str) -> str:
    """Return the day in a path such as ``/2024/05/31/``; "" without one, or with a month only."""
    found = _IN_URL.search(url)
    return _day(*found.groups()) if found and found[3] else ""


def date_in_text(text: str) -> str:
    """Return the first date in a text, "" if there is none.

    If day and month cannot be distinguished, as in 5/6/2024, the month comes first.
    """
    first = [found for pattern in (_NAMED, _NUMBERS) if (found := pattern.search(text))]
    for found in sorted(first, key=lambda one: one.start()):
        parts = found.groupdict()
        if parts.get("a3"):
            month, day = int(parts["a3"]), int(parts["b3"])
            if month > 12:
                month, day = day, month
            return _day(parts["y3"], str(month), str(day))
        for number in "124":
            if parts.get(f"y{number}"):
                month_said = parts[f"m{number}"].lower()
                month_number = _MONTHS.get(month_said, month_said)
                return _day(parts[f"y{number}"], str(month_number), parts[f"d{number}"])
    return ""


def _day(year: str, month: str, day: str) -> str:
    try:
        return date(int(year), int(month), int(day)).isoformat()
    except ValueError:
        return ""
