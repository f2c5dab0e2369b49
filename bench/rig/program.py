"""A foreign program that answers over HTTP on loopback while a benchmark runs."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from tests.support.system import wait_until

START_SECONDS = 60.0
STOP_SECONDS = 20.0
_TOLD = 2000


class Program:
    """Runs ``command`` in ``folder`` until the block ends; its output goes to ``log``.

    The block begins once ``url`` is answered, with any status. Raises AssertionError with the end
    of the log if the program ends before that, or does not answer within ``seconds``.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        log: Path,
        url: str,
        seconds: float = START_SECONDS,
    ) -> None:
        self.log = log
        self._command, self._folder = list(command), folder
        self._url, self._seconds = url, seconds

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            wait_until(self._answers, self._seconds, f"{self._url} is answered", every=0.2)
        except BaseException:
            self.__exit__()
            raise
        return self

    @property
    def code(self) -> int | None:
        """Return the program's exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        code = self._process.poll()
        assert code is None, f"{self._command[0]} ended with {code}: {self._end_of_log()}"
        try:
            with urlopen(self._url, timeout=5):
                return True
        except HTTPError:
            return True
        except (URLError, OSError):
            return False

    def _end_of_log(self) -> str:
        return self.log.read_text(errors="replace")[-_TOLD:]
