"""pywb, which plays WARC files on loopback."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.support.ports import free_port
from tests.support.system import wait_until

COLLECTION = "site"


class Player:
    """Plays ``archives`` in ``folder``, by the pywb of the environment of ``python``."""

    def __init__(self, python: Path, folder: Path, archives: Sequence[Path]) -> None:
        self._bin, self._folder = python.parent, folder
        self.port = free_port()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._manage("init", COLLECTION)
        self._manage("add", COLLECTION, *(str(path) for path in archives))

    def __enter__(self) -> Player:
        self._log = (self._folder / "pywb.log").open("wb")
        self._process = subprocess.Popen(
            [str(self._bin / "wayback"), "-p", str(self.port), "-b", "127.0.0.1"],
            cwd=self._folder, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
        )  # fmt: skip
        try:
            wait_until(self._answers, 60, "pywb answers", every=0.2)
        except AssertionError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)
        self._log.close()

    @property
    def origin(self) -> str:
        """Where it is reached."""
        return f"http://127.0.0.1:{self.port}"

    def url(self, page: str) -> str:
        """where a page is played, without the frame that pywb puts around it."""
        return f"{self.origin}/{COLLECTION}/mp_/{page}"

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._folder / "pywb.log").read_text()[-2000:]
        try:
            with urlopen(f"{self.origin}/{COLLECTION}/", timeout=5):
                return True
        except URLError:
            return False

    def _manage(self, *arguments: str) -> None:
        command = [str(self._bin / "wb-manager"), *arguments]
        subprocess.run(command, cwd=self._folder, check=True, capture_output=True)
