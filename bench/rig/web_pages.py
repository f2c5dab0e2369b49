"""The pages of :mod:`bench.rig.web`: each is different, since equal bodies would be stored once.

Pages are cut from some forty pages that are made at the start, so that the server spends little CPU
on a page compared with the crawler.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable

from bench.rig.web import Spec

BODIES = 40
LINK_BYTES = 500
MAX_LINKS = 200


class Pages:
    """Bodies of pages, by host and path."""

    def __init__(self, spec: Spec, origin: Callable[[int], str]) -> None:
        self._fresh = spec.fresh
        chance = random.Random(spec.seed)
        letters = "abcdefghijklmnopqrstuvwxyz"
        words = ["".join(chance.choices(letters, k=chance.randint(2, 10))) for _ in range(2000)]
        least, most = spec.page_bytes
        abroad = spec.abroad or range(spec.hosts)
        self._tails: list[bytes] = []
        for i in range(BODIES):
            size = round(least * (most / least) ** (i / (BODIES - 1)))
            links = min(MAX_LINKS, size // LINK_BYTES)
            parts = []
            for link in range(links):
                if spec.fresh:
                    target = "/p/%d" if link < spec.fresh else f"/p/{link - spec.fresh}"
                else:
                    target = f"/p/{chance.randrange(spec.pages)}"
                if spec.foreign and chance.random() < spec.foreign:
                    target = origin(chance.choice(abroad)) + target
                text = " ".join(chance.choices(words, k=max(1, (size // links - 55) // 7)))
                parts.append(f'<p>{text} <a href="{target}">{chance.choice(words)}</a></p>\n')
            self._tails.append("".join(parts).encode() + b"</body></html>")
            self._menu = max(1, links - spec.fresh)

    def body(self, name: str, path: str) -> bytes:
        """Return the page at ``path`` of the host ``name``."""
        head = (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{path} of {name}'
            f"</title></head><body><h1>{path}</h1><p>This is {path} of {name}.</p>"
        ).encode()
        tail = self._tails[zlib.crc32(f"{name}{path}".encode()) % BODIES]
        if self._fresh:  # page n leads to its own children in a tree, whose root is the menu
            first = self._menu + self._fresh * int(path.rpartition("/")[2])
            tail %= tuple(range(first, first + self._fresh))
        return head + tail
