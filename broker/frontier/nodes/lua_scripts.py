"""The Lua scripts of the frontier, as Redis gets them."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

LUA = Path(__file__).parents[1] / "lua"
SHARED = LUA / "shared"
"""Lua that comes before a script, or that some scripts include; a script's folder is its
subject."""
WRITES_AT_LIMIT = frozenset({"admit", "mark", "robots_put"})
"""Scripts that do not begin with DEL: at the memory limit Redis refuses only them."""
UNTIMED = WRITES_AT_LIMIT | {
    "login_claim", "login_put", "login_drop", "errand_put", "errand_take", "errand_answer",
}  # fmt: skip
"""Scripts that expect no time."""
NO_SIGN = UNTIMED | {"shares"}
"""Scripts that workers call, too, so they are no sign that a broker lives.

Shares must not be given at a wrong time, when the shares of others seem to have ended.
"""
_INCLUDE = re.compile(r"^-- include ([\w ]+)\n")


class Script(NamedTuple):
    """A script in pieces: shared text is in memory once, which saves a megabyte."""

    pieces: tuple[str, ...]
    sha: str
    """SHA1 of the text, by which it is called."""

    @property
    def text(self) -> str:
        """Return the whole text."""
        return "".join(self.pieces)


@cache
def _shared(name: str) -> str:
    return (SHARED / f"{name}.lua").read_text()


CLOCK = _shared("clock")
"""Logical time, for scripts that are not in :data:`SCRIPTS`."""


def _scripts() -> dict[str, Script]:
    found = {}
    for path in sorted(LUA.glob("*/*.lua")):
        if path.parent == SHARED:
            continue
        first = "false" if path.stem in WRITES_AT_LIMIT else "true"
        heartbeat = "false" if path.stem in NO_SIGN else "true"
        body = path.read_text()
        included = _INCLUDE.match(body)
        pieces = (
            f"local DEL_FIRST, HEARTBEAT = {first}, {heartbeat}\n",
            CLOCK,
            _shared("common"),
            *(_shared(name) for name in (included[1].split() if included else ())),
            body,
        )
        sha = hashlib.sha1("".join(pieces).encode()).hexdigest()
        found[path.stem] = Script(pieces, sha)
    return found


SCRIPTS = _scripts()
"""Scripts by name."""
