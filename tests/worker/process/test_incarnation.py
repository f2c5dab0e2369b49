"""Numbers of incarnations rise, and the deaths of earlier ones are known."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from greencrawl.worker.process.incarnation import Incarnation, boot_id, next_incarnation


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "worker" / "w-0.incarnation"


def test_incarnations_rise_over_starts_and_over_a_lost_folder(path: Path) -> None:
    first = next_incarnation(path).number
    later = [next_incarnation(path).number for _ in range(3)]
    assert [first, *later] == sorted({first, *later})
    path.unlink()
    assert next_incarnation(path).number // 100_000 >= first // 100_000
    assert len(str(first)) <= 14, "Lua would round it"


@pytest.mark.parametrize(
    "content",
    [
        "damaged", "{}", "[1]", "[" * 10_000, '{"incarnations": 7, "at": 1}',
        '{"incarnations": ["x"]}', '{"incarnations": [1e999], "at": 1}',
    ],
)  # fmt: skip
def test_a_damaged_file_of_incarnations_names_no_dead_ones(path: Path, content: str) -> None:
    before = next_incarnation(path).number
    path.write_text(content)
    found = next_incarnation(path)
    assert found.number // 100_000 >= before // 100_000
    assert found.dead == ()


def test_an_incarnation_of_an_earlier_version_is_below_all_later_ones(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(str(int(time.time()) + 10**6))
    found = next_incarnation(path)
    assert found.number > 10**10
    assert found.dead == (), "the version that wrote it did not say where"


def test_starts_from_copies_of_one_folder_differ(tmp_path: Path) -> None:
    """For example, a machine was cloned, or two processes start in the same second."""
    found = set()
    for number in range(5):
        path = tmp_path / f"{number}" / "w-0.incarnation"
        path.parent.mkdir()
        path.write_text("179535843099999")  # the clock was set back
        found.add(next_incarnation(path).number)
    assert len(found) >= 4  # two are the same by chance once in ten thousand runs
    assert min(found) > 179535843099999


@pytest.mark.skipif(not boot_id(), reason="the kernel names no boot")
def test_earlier_incarnations_in_the_same_folder_are_dead(path: Path) -> None:
    lives = [next_incarnation(path) for _ in range(20)]
    numbers = [life.number for life in lives]
    assert lives[0].dead == ()
    assert list(lives[3].dead) == numbers[2::-1], "the latest first"
    assert list(lives[-1].dead) == numbers[-2:-18:-1], "no more than sixteen"


def test_incarnations_in_the_original_of_a_copied_folder_are_not_called_dead(
    path: Path, tmp_path: Path
) -> None:
    """They may be at work where the folder was copied from."""
    first = next_incarnation(path, boot="b")
    copy = tmp_path / "copy"
    shutil.copytree(path.parent, copy)
    twin = next_incarnation(copy / path.name, boot="b")
    assert (twin.dead, twin.number > first.number) == ((), True)
    assert next_incarnation(copy / path.name, boot="b").dead == (twin.number,)
    assert next_incarnation(path, boot="b").dead == (first.number,)


@pytest.mark.parametrize("boot", ["another", ""])
def test_incarnations_of_another_or_an_unknown_boot_are_not_called_dead(
    path: Path, boot: str
) -> None:
    """A cloned machine has the same folder, but its own boot id."""
    next_incarnation(path, boot="one" if boot else "")
    assert next_incarnation(path, boot=boot).dead == ()


BEGINS = """
import sys
from pathlib import Path
from greencrawl.worker.process.incarnation import begin
life = begin(Path(sys.argv[1]))
print(life.number, *life.dead, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def start(path: Path) -> Iterator[Callable[[], tuple[list[int], subprocess.Popen[str]]]]:
    """Return a function that starts a process in the folder: (its number and the dead, the
    process)."""
    with ExitStack() as stack:

        def started() -> tuple[list[int], subprocess.Popen[str]]:
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", BEGINS, str(path)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                )
            )  # fmt: skip
            stack.callback(process.kill)
            assert process.stdout is not None
            return [int(number) for number in process.stdout.readline().split()], process

        yield started


@pytest.mark.skipif(not boot_id(), reason="the kernel names no boot")
def test_a_living_incarnation_is_not_called_dead_if_others_begin_in_its_folder(
    start: Callable[[], tuple[list[int], subprocess.Popen[str]]],
) -> None:
    """The supervisor's lock was removed by hand, or a child was started by itself."""
    (first,), lives = start()
    (second, *dead), another = start()
    assert dead == []
    lives.kill()
    lives.wait()
    (third, *dead), last = start()
    assert dead == [], "the one before it lives, and does not hold the lock"
    for process in (another, last):
        process.kill()
        process.wait()
    assert start()[0][1:] == [third]
    assert first < second < third


def test_a_start_fails_if_its_incarnation_cannot_be_written(path: Path) -> None:
    path.parent.mkdir()
    path.with_suffix(".new").mkdir()
    with pytest.raises(IsADirectoryError):
        next_incarnation(path)


def test_the_file_of_incarnations_is_readable_json(path: Path) -> None:
    assert isinstance(life := next_incarnation(path), Incarnation)
    assert json.loads(path.read_text())["incarnations"] == [life.number]
