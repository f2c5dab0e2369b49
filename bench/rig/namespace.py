"""A network namespace of our own: ports 80, 443 and 53, a resolver, and a link with a set rate.

It needs no root if user namespaces are allowed. A benchmark calls itself again behind
:func:`prefix` and sets the namespace up from inside.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

STOP_SECONDS = 30.0
"""After this time an interrupted process is killed."""


@lru_cache
def prefix() -> tuple[str, ...] | None:
    """Return the prefix of a command so that it runs in a namespace; None if that is forbidden."""
    ways = [("unshare", "--mount", "--net")]
    if os.geteuid() != 0:
        ways = [("unshare", "--user", "--map-root-user", "--mount", "--net")]
    for way in ways:
        try:
            subprocess.run([*way, "true"], check=True, capture_output=True, timeout=10)
        except (OSError, subprocess.SubprocessError):
            continue
        return way
    return None


def bring_up() -> None:
    """Inside: set up loopback with all of 127.0.0.0/8, and ::1."""
    _run("ip link set lo up")


def resolve_by(folder: Path) -> None:
    """Inside: let 127.0.0.1, port 53, resolve names; write its resolv.conf to ``folder``."""
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:5 attempts:2\n")
    _run(f"mount --bind {folder}/resolv.conf /etc/resolv.conf")


def shape(bits_per_second: int) -> None:
    """Inside: give loopback this rate, for both directions together."""
    _run("ip link set lo mtu 1500")
    _run(f"tc qdisc add dev lo root tbf rate {bits_per_second}bit burst 32kb latency 400ms")


def may_shape() -> bool:
    """Return whether :func:`shape` works in a namespace here."""
    before = prefix()
    if before is None:
        return False
    line = "ip link set lo up && tc qdisc add dev lo root tbf rate 10mbit burst 32kb latency 400ms"
    done = subprocess.run([*before, "sh", "-c", line], capture_output=True, timeout=10, check=False)
    return done.returncode == 0


def run_inside(command: list[str], say: Callable[[str], object] = print) -> str:
    """Run a command in a namespace, echo its output, and return its last line.

    Raises SystemExit if it fails, or if namespaces are forbidden.
    """
    before = prefix()
    if before is None:
        raise SystemExit("network namespaces are not allowed here (unshare --user --net)")
    process = subprocess.Popen(  # Ctrl-C is for us, and we pass it on once
        [*before, *command], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    last = ""
    try:
        for line in process.stdout:
            if last:
                say(last)
            last = line.rstrip("\n")
    except BaseException:  # it was interrupted and has to stop what it started
        _stop(process)
        raise
    if process.wait():
        raise SystemExit(f"{' '.join(command)} failed: {process.returncode}\n{last}")
    return last


def _stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _run(line: str) -> None:
    command = line.split()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise SystemExit(f"{command[0]} is missing: as root, apt-get install iproute2") from None
    if done.returncode:
        raise SystemExit(f"{line}: {done.stderr.strip()}")
