"""Greencrawl, a distributed web crawler: what programs may use of it. See docs/library.md."""

from __future__ import annotations

__version__ = "0.1.0"
