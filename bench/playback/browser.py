"""The requests of Chromium while it shows a page, from its own log of the network."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 120.0
_OWN = ("google.com/", "googleapis.com/", "gvt1.com/")
"""Hosts that Chromium asks for by itself."""
_BUDGET_MS = 10_000
"""Virtual time that a page has to load everything."""


@dataclass(frozen=True)
class Exchange:
    """A request of a page, and the status of its answer; 0 for none."""

    url: str
    status: int


class Browser:
    """Chromium without a window; ``command`` and ``variables`` are for its start."""

    def __init__(self, command: list[str], variables: dict[str, str], folder: Path) -> None:
        self._command, self._variables, self._folder = command, variables, folder
        folder.mkdir(parents=True, exist_ok=True)

    def show(self, url: str, number: int) -> list[Exchange]:
        """Load a page to its end, with its scripts; return its requests on the network."""
        log = self._folder / f"{number}.json"
        command = [
            *self._command, "--headless=new", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run",
            "--disable-component-update", "--disable-sync", "--disable-default-apps",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            f"--user-data-dir={self._folder / str(number)}", f"--log-net-log={log}",
            "--net-log-capture-mode=Everything", "--window-size=1200,4000",
            f"--virtual-time-budget={_BUDGET_MS}", "--dump-dom", url,
        ]  # fmt: skip
        done = subprocess.run(
            command, env=self._variables, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=SECONDS, check=False,
        )  # fmt: skip
        if done.returncode or b"</html>" not in done.stdout:
            said = done.stderr.decode(errors="replace")[-1500:]
            raise RuntimeError(f"{url} was not shown ({done.returncode}): {said}")
        return requests(json.loads(log.read_text()))


def requests(log: Mapping[str, Any]) -> list[Exchange]:
    """Return the URLs of a log of the network, without those that the browser asks for by itself.

    If there are several requests for one URL the best counts: browsers cancel some and repeat them.
    """
    types = {number: name for name, number in log["constants"]["logEventTypes"].items()}
    urls: dict[int, str] = {}
    statuses: dict[int, int] = {}
    for event in log["events"]:
        name, source = types[event["type"]], event["source"]["id"]
        given = event.get("params") or {}
        if name == "URL_REQUEST_START_JOB" and given.get("url", "").startswith("http"):
            urls[source] = given["url"]
        elif name == "HTTP_TRANSACTION_READ_RESPONSE_HEADERS":
            statuses[source] = int(given["headers"][0].split(" ")[1])
    found: dict[str, int] = {}
    for source, url in urls.items():
        status, known = statuses.get(source, 0), found.get(url, 0)
        if not any(one in url for one in _OWN):
            found[url] = min(status, known) if status and known else status or known
    return [Exchange(url, status) for url, status in found.items()]
