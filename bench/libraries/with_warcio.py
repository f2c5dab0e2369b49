"""A module of hooks that changes nothing, but whose import has warcio make a worker's records."""

from __future__ import annotations

from bench.libraries import records
from bench.libraries.with_ours import request

__all__ = ["request"]

records.ours.response = records.response
records.ours.revisit = records.revisit
records.ours.asked = records.request
