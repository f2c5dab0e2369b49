"""Files with the grants of one machine, one file for each login; all its processes use them.

A file is not used if it is damaged, not ours, was readable by others or belongs to another entry.
The log says this once, and what to do; the next login replaces the file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from greencrawl.schema.log import logger
from greencrawl.worker.auth.base import Grant
from greencrawl.worker.auth.state.late_grants import mark
from greencrawl.worker.auth.state.private_files import (
    InsecureFile,
    locked,
    private_folder,
    read_private,
    write_private,
)

log = logger("worker")

MAX_BYTES = 1024 * 1024
"""A file may have this many bytes; a larger one is not used."""

UNUSED = "kept_login_not_used"
"""Event of the log: a stored grant cannot be used."""
_UNKEPT = "login_not_kept"
_NEW = "the next login replaces it; `greencrawl login NAME` makes one now"
_APIECE = "every process logs in by itself until the folder can be written"
_VERSION = 1


class _Kept(Struct, frozen=True):
    """The content of a file. ``name`` is the name of the file; it shows if the file was moved or
    copied."""

    version: int
    name: str
    grant: Grant


class GrantFiles:
    """The files in ``folder``, as one process uses them.

    If they cannot be read or written, nothing is raised: the log says so.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._told: set[tuple[str, str]] = set()

    def path(self, name: str) -> Path:
        """Return where a grant is kept."""
        return self.folder / f"{name}.json"

    def read(self, name: str) -> Grant | None:
        """Return the grant, valid or refused; None if there is none that can be used."""
        try:
            data = read_private(self.path(name), MAX_BYTES)
            return None if data is None else decoded(name, data)
        except InsecureFile as error:
            self.tell(name, UNUSED, str(error), _NEW)
        except OSError as error:
            self.tell(name, UNUSED, error.strerror or str(error), _NEW)
        return None

    def save(self, name: str, grant: Grant, *, late: bool = False) -> None:
        """Write a grant to the file, unless a newer one is there, and mark it if it is ``late``."""

        def write() -> None:
            if late:
                write_private(mark(self.folder, name), b"")
            there = self.read(name)
            if there is None or there.generation < grant.generation:
                write_private(self.path(name), encoded(name, grant))
                self._told = {told for told in self._told if told[0] != name}

        self._write(name, write)

    def unmark(self, name: str, generation: int) -> None:
        """Remove the mark of a late grant: the frontier now has this generation.

        If the grant in the file is newer, it is still late, and the mark stays.
        """

        def unmark() -> None:
            there = self.read(name)
            if there is None or there.generation <= generation:
                mark(self.folder, name).unlink(missing_ok=True)

        if mark(self.folder, name).exists():
            self._write(name, unmark)

    def remove(self, name: str) -> None:
        """Remove the file, if there is one."""
        self._write(name, lambda: self.path(name).unlink(missing_ok=True))

    def tell(self, name: str, event: str, reason: str, advice: str) -> None:
        """Log a warning once for each reason; log it again after a file of that name was
        written."""
        if (name, reason) not in self._told:
            self._told.add((name, reason))
            log.warning(event, file=str(self.path(name)), reason=reason, advice=advice)

    def _write(self, name: str, action: Callable[[], None]) -> None:
        """Act on the file under the folder's lock; log it if that fails."""
        try:
            private_folder(self.folder)
            with locked(self.folder):
                action()
        except InsecureFile as error:
            self.tell(name, _UNKEPT, f"{self.folder} {error}", _APIECE)
        except OSError as error:
            self.tell(name, _UNKEPT, error.strerror or str(error), _APIECE)


def encoded(name: str, grant: Grant) -> bytes:
    """Encode a grant and its name as JSON, for a file or, once it is sealed, for the frontier."""
    return msgspec.json.encode(_Kept(_VERSION, name, grant))


def decoded(name: str, data: bytes) -> Grant:
    """Return the grant from the result of :func:`encoded`. Raises InsecureFile, whose message
    quotes nothing of ``data``."""
    try:
        kept = msgspec.json.decode(data, type=_Kept)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InsecureFile("is damaged") from None
    if kept.version != _VERSION:
        raise InsecureFile("is of another version of Greencrawl")
    if kept.name != name:
        raise InsecureFile("belongs to another login")
    return kept.grant
