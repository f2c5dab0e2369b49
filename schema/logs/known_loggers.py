"""The loggers that a node knows, even when no broker answers: noted in its spool's folder.

Once a broker has named a logger, the node keeps lines for it, even while it is away. If none was
named for a day, no logger is expected any more: the lines are dropped, and nothing is kept until
one is named again.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

FORGET_SECONDS = 86_400.0
_AGAIN_SECONDS = 600.0
"""While loggers are named, the note is renewed at least this often."""


class KnownLoggers:
    """The known loggers: ``loggers`` were named last, and are empty if none is known."""

    def __init__(self, folder: Path, forget_seconds: float = FORGET_SECONDS) -> None:
        self._folder = folder
        self._file = folder / "loggers"
        self._forget_seconds = forget_seconds
        self._noted = 0.0
        self.loggers: tuple[str, ...] = ()
        with suppress(OSError):
            self._noted = self._file.stat().st_mtime
            self.loggers = tuple(self._file.read_text().split())
        self._expire()

    def tell(self, loggers: tuple[str, ...]) -> bool:
        """Note the loggers that a broker names now; return whether lines are to be kept."""
        if not loggers:
            self._expire()
        elif loggers != self.loggers or time.time() - self._noted > _AGAIN_SECONDS:
            self.loggers = loggers
            self._note()
        return bool(self.loggers)

    def _expire(self) -> None:
        if self.loggers and time.time() - self._noted > self._forget_seconds:
            self.loggers = ()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _note(self) -> None:
        self._noted = time.time()
        fresh = self._file.with_suffix(f".{os.getpid()}")
        with suppress(OSError):  # this process knows them even without the note
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh.write_text("\n".join(self.loggers))
            fresh.replace(self._file)
