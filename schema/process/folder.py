"""The message about a data folder that cannot be used."""

from __future__ import annotations

from pathlib import Path

from greencrawl.schema.errors import NO_ROOM


def folder_text(error: OSError, data: Path) -> str:
    """Say that a file of the folder ``data`` cannot be used; "" if the error is about another file.

    An error that names no file is about that folder if its disk is full.
    """
    named = str(error.filename or (data if error.errno in NO_ROOM else ""))
    if not named or not (Path(named).is_relative_to(data) or data.is_relative_to(named)):
        return ""
    mend = "make room" if error.errno in NO_ROOM else "GREENCRAWL_DATA may name another folder"
    return f"cannot use {named[:200]}: {error.strerror}; {mend}"
