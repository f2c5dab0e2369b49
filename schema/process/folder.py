"""The message about a data folder that cannot be used."""

from __future__ import annotations

from pathlib import Path


def folder_text(error: OSError, data: Path) -> str:
    """Say that a file of the folder ``data`` cannot be used; "" if the error is about another."""
    named = str(error.filename or "")
    if not named or not (Path(named).is_relative_to(data) or data.is_relative_to(named)):
        return ""
    return f"cannot use {named[:200]}: {error.strerror}; GREENCRAWL_DATA may name another folder"
