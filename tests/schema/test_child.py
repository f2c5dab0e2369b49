"""Real child processes: what they inherit, and how they end."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
from pathlib import Path

import pytest

from greencrawl.schema.process.child import end, end_of, spawn
from tests.support.system import wait_until
from tests.support.worker_process import alive

TELLS = """
import os, signal, sys
def is_open(text):
    try:
        return bool(os.fstat(int(text)))
    except OSError:
        return False
blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
print(*map(int, blocked), os.getsid(0) == os.getpid(), repr(sys.stdin.read()))
print(*map(is_open, sys.argv[1:]), os.environ.get("TOLD"))
"""


def test_a_child_inherits_only_what_it_is_given() -> None:
    ours, theirs = socket.socketpair()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
    with ours, theirs, tempfile.TemporaryFile() as output:
        os.set_inheritable(ours.fileno(), True)
        try:
            numbers = [str(one.fileno()) for one in (ours, theirs)]
            child = spawn(
                (sys.executable, "-c", TELLS, *numbers),
                environ={"TOLD": "yes"},
                output=output,
                keep=(theirs.fileno(),),
            )
            assert child.wait(20) == 0
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        output.seek(0)
        assert output.read().decode().splitlines() == ["True ''", "False True yes"]


PARENT = """
import signal, sys, time
from greencrawl.schema.process.child import spawn
child = "import signal, sys, time; signal.signal(15, lambda *_: open(sys.argv[1] + '-told', 'w'));"
child += "open(sys.argv[1], 'w').write(str(__import__('os').getpid()) + '.'); time.sleep(60)"
orphaned = signal.Signals[sys.argv[2]]
spawn((sys.executable, "-c", child, sys.argv[1]), orphaned=orphaned)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child")
@pytest.mark.parametrize("orphaned", ["SIGKILL", "SIGTERM"])
def test_a_child_gets_a_signal_when_its_parent_is_killed(tmp_path: Path, orphaned: str) -> None:
    started, told = tmp_path / "child", tmp_path / "child-told"
    parent = spawn((sys.executable, "-c", PARENT, str(started), orphaned))
    try:
        wait_until(lambda: started.exists() and started.read_text().endswith("."), 20, "started")
        pid = int(started.read_text().rstrip("."))
    finally:
        end(parent)
    if orphaned == "SIGKILL":
        wait_until(lambda: not alive([pid]), 5, "it is dead")
        assert not told.exists()
    else:
        wait_until(told.exists, 5, "it is told")
        os.kill(pid, signal.SIGKILL)


def test_the_status_of_a_child_says_how_it_ended() -> None:
    child = spawn(("sleep", "60"))
    end(child)
    end(None)
    assert not alive([child.pid])
    assert end_of(child.returncode) == "SIGKILL"
    assert end_of(spawn(("sh", "-c", "exit 3")).wait(20)) == "status 3"
    assert end_of(-200) == "signal 200"


def test_a_command_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        spawn(("/nowhere/at/all",))
