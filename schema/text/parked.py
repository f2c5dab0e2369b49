"""Texts for people about a parked URL, and the command that releases it."""

from __future__ import annotations

import shlex

from greencrawl.schema.records import EVERY_SHAPE, Final


def release_command(crawl: str, shape: str) -> str:
    """Return the command that releases what is parked by a shape."""
    which = f"--release {shlex.quote(shape)}" if shape not in ("", EVERY_SHAPE) else "--all"
    return f"greencrawl traps {crawl} {which}"


def parked_text(crawl: str, final: Final, at: str) -> str:
    """Say why a URL is parked since ``at``; ``crawl`` is the name of its crawl."""
    shape = f", of the shape {final.shape}" if final.shape else ""
    command = release_command(crawl, final.shape)
    return f"parked at {at}: {final.detail or final.kind}{shape}; `{command}` releases it"
