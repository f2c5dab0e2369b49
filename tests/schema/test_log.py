"""Logs, where they cannot be written."""

from __future__ import annotations

import subprocess
import sys

from tests.support.checkout import ROOT


def test_who_logs_goes_on_though_the_disk_be_full() -> None:
    code = (
        "from greencrawl.schema import log\n"
        "log.configure('broker')\n"
        "for number in range(3):\n"
        "    log.logger('duties').info('not_renewed', number=number)\n"
        "print('goes on', flush=True)\n"
    )
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, stderr=full, text=True,
            env={"PYTHONPATH": str(ROOT / "src")}, check=False,
        )  # fmt: skip
    assert done.stdout == "goes on\n"
