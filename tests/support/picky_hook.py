"""A user's hook that fails on pages whose text says that they are broken."""

from __future__ import annotations

from greencrawl.schema.records import Fetched, Page


def on_page(page: Page, fetched: Fetched) -> dict[str, str]:
    if "broken" in page.title:
        raise ValueError("it is broken")
    return {"state": "whole"}
