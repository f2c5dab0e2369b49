"""Types of single fields that several records share."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Url = Annotated[str, Meta(min_length=1, max_length=8192)]
Pattern = Annotated[str, Meta(min_length=1, max_length=1024)]
