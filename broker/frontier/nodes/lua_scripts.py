"""The Lua scripts of the frontier, as Redis is given them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

LUA = Path(__file__).parents[1] / "lua"
SHARED = LUA / "shared"
"""What comes before a script, and what some scripts include; a script's folder is its subject."""
WRITES_AT_LIMIT = frozenset({"admit", "mark", "robots_put"})
"""Scripts that do not begin with DEL: at the memory limit Redis refuses them, and only them."""
UNTIMED = WRITES_AT_LIMIT | {
    "login_claim", "login_put", "login_drop", "errand_put", "errand_take", "errand_answer",
    "shares",
}  # fmt: skip
"""Scripts that workers call too: they act on no time, and are no sign that a broker lives."""
_INCLUDE = re.compile(r"^-- include ([\w ]+)\n")

CLOCK = (SHARED / "clock.lua").read_text()
"""Logical time, for scripts that are not in :data:`SCRIPTS`."""


def _scripts() -> dict[str, tuple[str, str]]:
    common = CLOCK + (SHARED / "common.lua").read_text()
    found = {}
    for path in sorted(LUA.glob("*/*.lua")):
        if path.parent == SHARED:
            continue
        first = "false" if path.stem in WRITES_AT_LIMIT else "true"
        beats = "false" if path.stem in UNTIMED else "true"
        body = path.read_text()
        if included := _INCLUDE.match(body):
            parts = [(SHARED / f"{name}.lua").read_text() for name in included[1].split()]
            body = "".join(parts) + body
        text = f"local DEL_FIRST, BEATS = {first}, {beats}\n{common}{body}"
        found[path.stem] = (text, hashlib.sha1(text.encode()).hexdigest())
    return found


SCRIPTS = _scripts()
"""Script name → (text, SHA1)."""
