"""Texts for people about what a page says of itself."""

from __future__ import annotations

from datetime import UTC, datetime

from greencrawl.schema.records import Directives

MAX_POLICY_CHARS = 1000
"""A longer ``tdm-policy`` is not kept."""
NOT_KEPT = "title, text and body are not kept"


def declared_text(url: str, canonical: str, said: Directives | None) -> str:
    """Say what the page at ``url`` declares, and what followed from it; "" for nothing of note.

    ``canonical`` is the URL that it names, "" for none.
    """
    parts = []
    if said is not None:
        if said.withheld:
            parts.append(f"{said.withheld}: {NOT_KEPT}")
        others = [word for word in said.robots if word != said.withheld]
        if others:
            parts.append(f"it says {', '.join(others)}")
        if said.unavailable_after_ms is not None:
            parts.append(f"it says unavailable_after {_moment(said.unavailable_after_ms)}")
        if said.tdm:
            policy = f", policy {said.tdm_policy}" if said.tdm_policy else ""
            rights = "reserved" if said.tdm == "reserved" else "not reserved"
            parts.append(f"rights of text and data mining are {rights}{policy}")
    if canonical and canonical != url:
        parts.append(f"its canonical URL is {canonical}")
    return "; ".join(parts)


def policy_url(text: str) -> str:
    """Return the URL in a ``tdm-policy``, "" if it is too long, or if there is none."""
    text = text.strip()
    return text if len(text) <= MAX_POLICY_CHARS and text.isascii() and text.isprintable() else ""


def withheld_text(said: Directives | None) -> str:
    """Say in few words why content is withheld, in place of a title; "" if it is kept."""
    return f"({said.withheld}: not kept)" if said is not None and said.withheld else ""


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
