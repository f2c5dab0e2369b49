"""A user's hook that kills, hangs, ends or freezes the process on certain pages, as a broken
library would.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from schema.records import Fetched, Page


def on_page(page: Page, fetched: Fetched) -> None:
    if "kill" in page.title:
        os.kill(os.getpid(), signal.SIGKILL)
    while "hang" in page.title:
        continue
    while "wait" in page.title:
        time.sleep(1)  # gevent's: the hub goes on turning
    if "exit" in page.title:
        sys.exit("a library that takes itself for a program")
