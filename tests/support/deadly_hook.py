"""A user's hook that kills, hangs or freezes its process on certain pages."""

from __future__ import annotations

import os
import signal
import time

from schema.records import Fetched, Page


def on_page(page: Page, fetched: Fetched) -> None:
    if "kill" in page.title:
        os.kill(os.getpid(), signal.SIGKILL)
    while "hang" in page.title:
        continue
    while "wait" in page.title:
        time.sleep(1)  # gevent's: the hub goes on turning
