"""pywb, which replays WARC files on loopback."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.rig.program import Program
from tests.support.ports import free_port

COLLECTION = "site"


class Player(Program):
    """Replays ``archives`` in ``folder``, by the pywb of the environment of ``python``."""

    def __init__(self, python: Path, folder: Path, archives: Sequence[Path]) -> None:
        self._bin = python.parent
        self.port = free_port()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._manage(folder, "init", COLLECTION)
        self._manage(folder, "add", COLLECTION, *(str(path) for path in archives))
        command = [str(self._bin / "wayback"), "-p", str(self.port), "-b", "127.0.0.1"]
        super().__init__(command, folder, folder / "pywb.log", f"{self.origin}/{COLLECTION}/")

    @property
    def origin(self) -> str:
        """Return the player's origin."""
        return f"http://127.0.0.1:{self.port}"

    def url(self, page: str) -> str:
        """Return the URL at which a page is replayed, without the frame that pywb adds."""
        return f"{self.origin}/{COLLECTION}/mp_/{page}"

    def _manage(self, folder: Path, *arguments: str) -> None:
        command = [str(self._bin / "wb-manager"), *arguments]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
