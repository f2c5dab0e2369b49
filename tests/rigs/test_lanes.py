"""The tests run side by side: each once, and errors are reported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.checkout import ROOT
from tests.support.effort import by_night
from tests.support.lane import WEIGHTS, by_weight
from tests.support.ports import free_ports
from tests.support.system import wait_until
from tests.support.worker_process import alive

NOT_GIVEN = ("CI", "BUILD_NUMBER", "TESTS_LONG")
"""With CI or BUILD_NUMBER pytest shows whole messages; with TESTS_LONG every failure counts."""


class Checkout:
    """A folder of tests, each of which notes that it ran."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes = folder / "notes"
        (folder / "noted.py").write_text(
            f"def note(text):\n    with open({str(self.notes)!r}, 'a') as file:\n"
            "        file.write(text + '\\n')\n"
        )
        (folder / "pytest.ini").write_text("[pytest]\naddopts = -q -p no:cacheprovider\n")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text("import pytest\nfrom noted import note\n" + dedent(text))

    def start(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.lanes", *arguments],
            cwd=self.folder,
            env={name: text for name, text in os.environ.items() if name not in NOT_GIVEN}
            | more
            | {
                "PYTHONPATH": f"{ROOT}{os.pathsep}{self.folder}",
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # loading them takes a second
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, **more: str) -> tuple[int, str]:
        process = self.start(*arguments, **more)
        said, _ = process.communicate(timeout=60)
        return process.returncode, said

    def noted(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_each_test_runs_once_and_in_one_process_with_its_module_fixtures(
    checkout: Checkout,
) -> None:
    for n in range(6):
        checkout.write(
            f"test_{n}.py",
            f"""
            @pytest.fixture(scope="module")
            def server():
                note("{n} up")
                yield
                note("{n} down")

            @pytest.mark.parametrize("m", [1, 2])
            def test_it(server, m):
                note(f"{n} test {{m}}")
            """,
        )
    code, said = checkout.run("--lanes", "3")
    assert code == 0, said
    assert "12 passed in " in said
    for n in range(6):
        mine = [line for line in checkout.noted() if line.startswith(f"{n} ")]
        assert mine == [f"{n} up", f"{n} test 1", f"{n} test 2", f"{n} down"]


def test_test_processes_run_in_parallel_and_quiet_tests_run_last(checkout: Checkout) -> None:
    for one, other in (("a", "b"), ("b", "a")):
        checkout.write(
            f"test_{one}.py",
            f"""
            import pathlib, time

            @pytest.mark.quiet("measures")
            def test_quiet():
                note("quiet")

            def test_meets_the_other():
                pathlib.Path("{one}").touch()
                limit = time.monotonic() + 20
                while not pathlib.Path("{other}").exists():
                    assert time.monotonic() < limit
                    time.sleep(0.01)
                note("met")
            """,
        )
    code, said = checkout.run("--lanes", "2")
    assert code == 0, said
    assert checkout.noted() == ["met", "met", "quiet", "quiet"]


def test_failed_tests_are_shown_with_their_output_and_fail_the_run(checkout: Checkout) -> None:
    checkout.write(
        "test_a.py",
        """
        def test_bad():
            print("said before")
            assert [1, 2] == [1, 3], "this"

        @pytest.fixture
        def broken():
            yield
            raise ValueError("tear-down")

        def test_left_behind(broken):
            pass

        def test_skipped():
            pytest.skip("no")
        """,
    )
    checkout.write("test_b.py", "def test_good():\n    pass\n")
    code, said = checkout.run("--lanes", "2")
    assert code == 1
    assert "== FAILED test_a.py::test_bad (call)" in said
    assert "AssertionError: this" in said
    assert "said before" in said
    assert "FAILED test_a.py::test_bad (call)\n  AssertionError: this\n" in said
    assert "== FAILED test_a.py::test_left_behind (teardown)" in said
    assert "1 error, 1 failed, 2 passed, 1 skipped in " in said


def test_a_dead_process_is_reported_with_the_tests_that_it_did_not_run(checkout: Checkout) -> None:
    checkout.write(
        "test_a.py",
        """
        import os

        def test_dies():
            os._exit(0)

        def test_never():
            pass
        """,
    )
    checkout.write("test_b.py", "def test_good():\n    pass\n")
    code, said = checkout.run("--lanes", "2")
    assert code == 1
    assert "2 ran nowhere: test_a.py::test_dies test_a.py::test_never" in said
    assert "1 passed in " in said


def test_a_stuck_test_is_ended_and_reported_with_its_stacks(checkout: Checkout) -> None:
    checkout.write(
        "test_a.py",
        """
        import os
        import time

        import gevent.util  # as the tests' own conftest does before all

        def waits_for_nobody():
            gevent.sleep(300)

        def test_stuck():
            if os.fork() == 0:  # it has the pipe, too
                time.sleep(300)
            waits_for_nobody()
        """,
    )
    checkout.write("test_b.py", "def test_good():\n    pass\n")
    code, said = checkout.run("--lanes", "2", "--seconds", "5")
    assert code == 1
    assert "== STUCK test_a.py::test_stuck" in said
    assert " ended with -6, stuck test_a.py::test_stuck" in said
    assert "in waits_for_nobody" in said
    assert "1 passed in " in said


@by_night
def test_a_process_that_died_is_not_reported_as_stuck(checkout: Checkout) -> None:
    checkout.write("test_a.py", "import os\n\ndef test_dies():\n    os._exit(3)\n")
    checkout.write("test_b.py", "import time\n\ndef test_good():\n    time.sleep(3)\n")
    code, said = checkout.run("--lanes", "2", "--seconds", "1")
    assert code == 1
    assert "STUCK test_a" not in said
    assert "ended with 3 test_a.py::test_dies" in said


FAILS_AT_FIRST = """
import pathlib

def test_fails_the_first_time():
    note("ran")
    seen = pathlib.Path("seen")
    if not seen.exists():
        seen.touch()
        assert not "in the way"

def test_good():
    pass
"""


def test_a_test_that_passes_when_it_runs_alone_is_reported_as_unstable(checkout: Checkout) -> None:
    checkout.write("test_a.py", FAILS_AT_FIRST)
    code, said = checkout.run("--lanes", "2")
    assert code == 0, said
    assert checkout.noted() == ["ran"] * 4
    assert "UNSTABLE test_a.py::test_fails_the_first_time\n  AssertionError" in said
    assert "1 passed, 1 unstable in " in said


def test_a_failed_test_is_not_tried_again_by_night(checkout: Checkout) -> None:
    checkout.write("test_a.py", FAILS_AT_FIRST)
    code, said = checkout.run("--lanes", "2", TESTS_LONG="1")
    assert code == 1
    assert checkout.noted() == ["ran"]
    assert "1 failed, 1 passed in " in said


@pytest.mark.parametrize("later", ["assert False", "pytest.skip('no')"])
def test_a_test_that_fails_again_or_is_then_skipped_counts_as_failed(
    checkout: Checkout, later: str
) -> None:
    checkout.write(
        "test_a.py",
        f"""
        import pathlib

        def test_runs_otherwise_later():
            if pathlib.Path("seen").exists():
                {later}
            pathlib.Path("seen").touch()
            assert False
        """,
    )
    code, said = checkout.run("--lanes", "2")
    assert code == 1, said
    assert said.count("== once more, alone") == 1
    assert "1 failed in " in said


@by_night
def test_no_test_is_tried_again_if_many_have_failed(checkout: Checkout) -> None:
    checkout.write(
        "test_a.py",
        """
        @pytest.mark.parametrize("n", range(3))
        def test_bad(n):
            assert False
        """,
    )
    code, said = checkout.run("--lanes", "2")
    assert code == 1
    assert "once more" not in said
    assert "3 failed in " in said


@by_night
def test_a_module_that_cannot_be_collected_fails_the_run(checkout: Checkout) -> None:
    checkout.write("test_a.py", "import no_such_module\n")
    checkout.write("test_b.py", "def test_good():\n    pass\n")
    code, said = checkout.run("--lanes", "2")
    assert code == 1
    assert said.count("== FAILED test_a.py (collect)") == 1
    assert "No module named 'no_such_module'" in said
    assert "1 ran nowhere: test_b.py::test_good" in said


def test_tests_are_collected_once_and_each_process_prints_to_its_own_file(
    checkout: Checkout,
) -> None:
    for one, other in (("a", "b"), ("b", "a")):
        checkout.write(
            f"test_{one}.py",
            f"""
            import os
            import pathlib
            import random
            import time

            note("collected")

            def test_meets_the_other():
                print("printed by {one}")
                os.write(2, b"written by {one}")
                note(f"{{os.getpid()}} {{random.random()}}")
                pathlib.Path("{one}").touch()
                limit = time.monotonic() + 20
                while not pathlib.Path("{other}").exists():
                    assert time.monotonic() < limit
                    time.sleep(0.01)
                assert not "{one}"
            """,
        )
    code, said = checkout.run("--lanes", "2")
    assert code == 1
    said, _, _ = said.partition("\n== once more, alone")
    collected, met = checkout.noted()[:2], [line.split() for line in checkout.noted()[2:4]]
    assert collected == ["collected"] * 2
    assert all(len(set(column)) == 2 for column in zip(*met, strict=True)), met
    for name in ("a", "b"):
        _, _, shown = said.partition(f"== FAILED test_{name}.py")
        shown, _, _ = shown.partition("seconds, ")
        shown, _, _ = shown.partition("\n== FAILED")
        assert f"printed by {name}" in shown
        assert f"written by {name}" in shown
        assert said.count(f"written by {name}") == 1 + shown.count("os.write")


@by_night
def test_an_interrupted_collection_ends_at_once(checkout: Checkout) -> None:
    checkout.write("test_a.py", "import time\nnote('began')\ntime.sleep(60)\n")
    process = checkout.start("--lanes", "2")
    wait_until(lambda: "began" in checkout.noted(), 30, "it collects")
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 2, said
    assert "stopped in the collection" in said


@by_night
def test_a_second_interrupt_of_the_collection_ends_it_without_a_traceback(
    checkout: Checkout,
) -> None:
    checkout.write(
        "test_a.py",
        """
        import signal
        import time

        signal.signal(signal.SIGINT, lambda *_: note("heard"))
        note("began")
        while True:
            time.sleep(60)
        """,
    )
    process = checkout.start("--lanes", "2")
    wait_until(lambda: "began" in checkout.noted(), 30, "it collects")
    process.send_signal(signal.SIGINT)
    wait_until(lambda: "heard" in checkout.noted(), 30, "it was told")
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 2, said
    assert "WRONG interrupted" in said
    assert "Traceback" not in said, said


def test_an_interrupted_run_stops_all_processes_and_they_clean_up(checkout: Checkout) -> None:
    for n in range(2):
        checkout.write(
            f"test_{n}.py",
            """
            import subprocess
            import time

            @pytest.fixture
            def server():
                for apart in (False, True):
                    left = subprocess.Popen(["sleep", "300"], start_new_session=apart)
                    note(str(left.pid))
                yield
                note("down")

            def test_long(server):
                note("began")
                time.sleep(60)
            """,
        )
    process = checkout.start("--lanes", "2")
    wait_until(lambda: checkout.noted().count("began") == 2, 30, "both run")
    left = [int(line) for line in checkout.noted() if line.isdigit()]
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 2, said
    assert checkout.noted()[6:] == ["down"] * 2
    assert len(left) == 4
    assert not alive(left), "what they left behind has ended, be it in a session of its own"
    assert "stopped in test_0.py::test_long" in said
    assert "stopped in test_1.py::test_long" in said


@by_night
def test_a_second_interrupt_kills_the_programs_that_tests_left_running(checkout: Checkout) -> None:
    checkout.write(
        "test_a.py",
        """
        import subprocess
        import time

        def test_stubborn():
            left = subprocess.Popen(["sh", "-c", "sleep 300 & sleep 300"], start_new_session=True)
            note(str(left.pid))
            note("began")
            while True:
                try:
                    time.sleep(60)
                except KeyboardInterrupt:
                    note("heard")
        """,
    )
    process = checkout.start("--lanes", "1")
    wait_until(lambda: "began" in checkout.noted(), 30, "it runs")
    left = [int(line) for line in checkout.noted() if line.isdigit()]
    process.send_signal(signal.SIGINT)
    wait_until(lambda: "heard" in checkout.noted(), 30, "it was told")
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 2, said
    assert not alive(left)
    assert said.count("killed what was left: s") >= 2, said


@by_night
def test_an_orphan_process_that_ended_is_reaped_while_tests_still_run(checkout: Checkout) -> None:
    checkout.write(
        "test_a.py",
        """
        import os
        import pathlib
        import subprocess
        import time

        def test_it():
            said = subprocess.run(["sh", "-c", "sleep 0.1 & echo $!"], stdout=subprocess.PIPE)
            limit = time.monotonic() + 10
            while pathlib.Path(f"/proc/{int(said.stdout)}").exists():
                assert time.monotonic() < limit
                time.sleep(0.01)
        """,
    )
    code, said = checkout.run("--lanes", "1")
    assert code == 0, said


@by_night
def test_weights_are_written_and_the_longest_module_runs_first(checkout: Checkout) -> None:
    (checkout.folder / WEIGHTS).parent.mkdir()
    for name, seconds in (("a", 0.0), ("b", 0.3)):
        checkout.write(
            f"test_{name}.py",
            f"""
            import time

            def test_it():
                note("{name}")
                time.sleep({seconds})
            """,
        )
    assert checkout.run("--lanes", "1", "--weigh")[0] == 0
    assert json.loads((checkout.folder / WEIGHTS).read_text())["test_b.py"] >= 0.3
    assert checkout.run("--lanes", "1")[0] == 0
    assert checkout.noted() == ["a", "b", "b", "a"]


def test_a_module_without_a_weight_comes_in_the_middle() -> None:
    weights = {"long": 90.0, "short": 1.0, "shorter": 0.5}
    assert by_weight(["shorter", "new", "short", "long"], weights) == [
        "long", "new", "short", "shorter",
    ]  # fmt: skip


def test_no_two_processes_are_given_the_same_port() -> None:
    ours = free_ports(50)
    script = f"""
from greencrawl.schema.errors import Unavailable
from tests.support import ports

ports.PORTS = {ours}
try:
    print(ports.free_ports(1))
except Unavailable:
    print("none")
"""
    said = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (said.stdout, said.stderr) == ("none\n", "")
