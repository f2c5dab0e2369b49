"""A user's hook that kills or hangs the process on certain pages, as a broken library would."""

from __future__ import annotations

import os
import signal

from schema.records import Fetched, Page


def on_page(page: Page, fetched: Fetched) -> None:
    if "kill" in page.title:
        os.kill(os.getpid(), signal.SIGKILL)
    while "hang" in page.title:
        continue
