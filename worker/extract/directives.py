"""What a page says to robots: ``<meta name="robots">`` and the X-Robots-Tag header."""

from __future__ import annotations

from collections.abc import Iterable

_NO_INDEX = frozenset({"noindex", "none"})
_NO_FOLLOW = frozenset({"nofollow", "none"})
_WITH_VALUE = frozenset(
    {"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"}
)


def index_and_follow(directives: Iterable[str]) -> tuple[bool, bool]:
    """Whether a page may be indexed, and its links followed; the strictest directive counts."""
    words = {word.strip().lower() for text in directives for word in text.split(",")}
    return words.isdisjoint(_NO_INDEX), words.isdisjoint(_NO_FOLLOW)


def of_header(value: str, token: str) -> str:
    """The directives of an X-Robots-Tag that are for everybody or for ``token``.

    ``token`` is a lower-case product token. A name before a colon holds for what follows it:
    ``noindex, otherbot: noindex, nofollow``.
    """
    kept: list[str] = []
    ours = True
    for part in value.split(","):
        name, colon, rest = part.partition(":")
        name = name.strip().lower()
        if colon and name not in _WITH_VALUE:
            ours = name in ("*", token)
            part = rest
        if ours:
            kept.append(part)
    return ",".join(kept)
