"""Links of known software that lead to views of a page, forms and lists: ``known.toml``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from zlib import crc32

_FILE = Path(__file__).with_name("known.toml")
_HEAD = 8192
"""Bytes of a page that are searched for the software that made it."""
_GENERATOR = re.compile(
    rb"<meta\b[^>]{0,200}?\bname\s*=\s*[\"']?generator\b[^>]{0,200}?\bcontent\s*=\s*[\"']?([^\"'>]{1,80})"
    rb"|<meta\b[^>]{0,200}?\bcontent\s*=\s*[\"']([^\"'>]{1,80})[\"'][^>]{0,200}?\bname\s*=\s*[\"']?generator\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Software:
    """One entry. ``number`` (16 bits) stands for it in records that workers hand on."""

    name: str
    number: int
    generators: tuple[bytes, ...]
    marks: tuple[bytes, ...]
    layout: tuple[bytes, ...]
    source: str
    params: Mapping[str, frozenset[str]]
    url: re.Pattern[str] | None


@dataclass(frozen=True)
class Known:
    """All entries, by number; ``by_name``: by the name of a parameter."""

    software: Mapping[int, Software]
    by_name: Mapping[str, tuple[Software, ...]] = field(default_factory=dict)

    def names(self, params: Mapping[str, str] | None, url: str, software: int) -> str:
        """Return the parameter, or the part of a URL, that marks such a link; "" if nothing does.

        ``software`` is what the host runs, 0 if unknown: then a link of any software counts.
        """
        if software:
            entry = self.software[software]
            for name, value in params.items() if params else ():
                values = entry.params.get(name)
                if values is not None and (not values or value in values):
                    return f"{name}={value}" if values else name
            if entry.url is not None:
                found = entry.url.search(url[url.index("/", 8) :])
                if found:
                    return found[0][:60]
            return ""
        for name, value in params.items() if params else ():
            for entry in self.by_name.get(name, ()):
                values = entry.params[name]
                if value in values:  # a name alone is not enough
                    return f"{name}={value}"
        return ""

    def made_by(self, body: bytes) -> int:
        """Return the number of the software that a page names as its maker, 0 if it names none."""
        head = body[:_HEAD]
        if b"enerator" not in head:
            return 0
        for found in _GENERATOR.finditer(head):
            name = (found[1] or found[2]).strip().lower()
            for entry in self.software.values():
                if name.startswith(entry.generators):
                    return entry.number
        return 0

    def laid_out(self, body: bytes) -> int:
        """Return the number of the software of which a page has all typical links; 0 if there is
        none."""
        for entry in self.software.values():
            if entry.layout and all(text in body for text in entry.layout):
                return entry.number
        return 0

    def marked(self, body: bytes) -> int:
        """Return the number of the software that has left a mark in a page; 0 if none has, or
        several."""
        found = [
            entry.number
            for entry in self.software.values()
            if any(mark in body for mark in entry.marks)
        ]
        return found[0] if len(found) == 1 else 0


@cache
def known() -> Known:
    """Return the contents of the file."""
    software: dict[int, Software] = {}
    by_name: dict[str, tuple[Software, ...]] = {}
    for name, row in tomllib.loads(_FILE.read_text(encoding="utf-8")).items():
        number = crc32(name.encode()) % 65_535 + 1
        params = {key: frozenset(values) for key, values in row.get("params", {}).items()}
        entry = Software(
            name=name,
            number=number,
            generators=tuple(text.lower().encode() for text in row["generators"]),
            marks=tuple(text.encode() for text in row["marks"]),
            layout=tuple(text.encode() for text in row.get("layout", ())),
            source=row["source"],
            params=params,
            url=re.compile(row["url"]) if "url" in row else None,
        )
        assert number not in software, name
        software[number] = entry
        for key in params:
            by_name[key] = (*by_name.get(key, ()), entry)
    return Known(software, by_name)
