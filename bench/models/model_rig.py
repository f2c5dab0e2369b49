"""The environment of the three experiments: a broker with its Redis, a web and model processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from bench.rig.web import Spec, Web
from bench.rig.web import host as host_of
from tests.support.checkout import ROOT
from tests.support.system import System

MODELS = ("greenlets", "threads")


class Rig:
    """A broker with its Redis and a crawl, for model processes that share its data folder."""

    def __init__(self, folder: Path, spec: Spec) -> None:
        self.folder = folder
        self.web = Web(folder / "web", spec)
        self._system = System(folder / "system", log_level="warning")
        self._begun = 0

    def __enter__(self) -> Rig:
        self.web.__enter__()
        try:
            self._system.start_broker()
            self._system.crawl([self.web.url(0)], name="bench", scope="any")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._system.stop()
        finally:
            self.web.__exit__()

    def begin(self, model: str, what: str, **task: Any) -> subprocess.Popen[str]:
        """Start a model process; :func:`results` tells it when to begin."""
        addresses = [host_of(self.web.spec, n).name for n in range(self.web.spec.hosts)]
        self._begun += 1
        task |= {"what": what, "number": self._begun}
        task |= {"addresses": addresses, "port": self.web.port}
        path = self.folder / f"{self._begun}.json"
        path.write_text(json.dumps(task))
        variables = {
            "GREENCRAWL_DATA": str(self._system.folder / "data"),
            "GREENCRAWL_ALLOW_NETWORKS": "127.0.0.0/8",
            "GREENCRAWL_GREENLETS": str(self.web.spec.hosts),
        }
        return subprocess.Popen(
            [sys.executable, "-m", "bench.models.model_process", model, str(path)],
            cwd=ROOT,
            env=_clean_environment() | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


def _clean_environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("GREENCRAWL_")}


def results(
    processes: Sequence[subprocess.Popen[str]], *, wait: float = 0.0, apart: float = 0.0
) -> list[dict[str, Any]]:
    """Return the results of model processes that begin ``wait`` seconds after all are built.

    The second begins ``apart`` seconds after the first, and so on. Raises RuntimeError if one
    failed.
    """
    try:
        for process in processes:
            if _out(process).readline() != "ready\n":
                raise RuntimeError(f"{process.args!r} did not come up")
        at = time.time() + wait
        for number, process in enumerate(processes):
            assert process.stdin is not None
            process.stdin.write(f"{at + number * apart}\n")
            process.stdin.flush()
        found = []
        for process in processes:
            output = _out(process).read()
            if process.wait(10):
                raise RuntimeError(f"{process.args!r} failed")
            found.append(json.loads(output))
        return found
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _out(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def page_of(web: Web) -> bytes:
    """Return the first page of the first host."""
    with urllib.request.urlopen(web.url(0), timeout=10) as answer:
        content: bytes = answer.read()
        return content
