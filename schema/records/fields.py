"""Types of single fields that several records share."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Url = Annotated[str, Meta(min_length=1, max_length=8192)]
Pattern = Annotated[str, Meta(min_length=1, max_length=1024)]
CRAWL_NAME = r"^[a-z0-9][a-z0-9._-]{0,63}$"
TOKEN = r"^[0-9a-f]{16}$"
SESSION_ID = r"^[0-9]{1,5}/.{1,300}$"
WORKER_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
KIND = r"^[a-z_]+$"
"""Patterns; ``greencrawl.broker.api.problems`` has the messages about them for people."""
CrawlName = Annotated[str, Meta(pattern=CRAWL_NAME, description="Name of a crawl")]
Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Token = Annotated[str, Meta(pattern=TOKEN, description="Fencing token of a session")]
SessionId = Annotated[str, Meta(pattern=SESSION_ID, description="partition/host")]
WorkerId = Annotated[str, Meta(pattern=WORKER_ID)]
