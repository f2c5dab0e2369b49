"""The commands in docs/operations.md copy the embedded Redis and put the copy back."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.coordination.fence import StoreContact
from greencrawl.broker.frontier.nodes.embedded import EmbeddedRedis
from greencrawl.store.base import MARGIN
from tests.broker.frontier.recovery.test_recovery import Rig
from tests.broker.frontier.test_frontier import until
from tests.support.checkout import ROOT

BEGIN, END = "**The embedded Redis**", "**A Redis of your own.**"


class Own(Rig):
    """A rig on the embedded Redis of a data folder."""

    def __init__(self, folder: Path) -> None:
        self.embedded = self.redis(folder)
        super().__init__(folder)

    @staticmethod
    def redis(folder: Path) -> EmbeddedRedis:
        """Start the embedded Redis, as a broker does."""
        started = EmbeddedRedis(folder / "data" / "redis")
        started.start()
        return started

    def broker(self, *addresses: str, **options: Any) -> Frontier:
        return super().broker(f"unix://{self.embedded.socket}", **options)

    def stop(self) -> None:
        super().stop()
        self.embedded.stop()


def commands() -> list[str]:
    """Return the shell blocks of the section in their order."""
    text = (ROOT / "docs/operations.md").read_text()
    section = text[text.index(BEGIN) : text.index(END)]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


def shell(folder: Path, script: str) -> str:
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=folder, text=True, timeout=30, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Own]:
    monkeypatch.setattr(StoreContact, "margin_ms", 0)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    made = Own(tmp_path)
    made.frontier.start()
    yield made
    made.stop()


@pytest.mark.parametrize("alone", [False, True], ids=["by the broker", "alone first"])
def test_a_copy_of_the_embedded_redis_is_put_back_and_the_crawl_goes_on(
    rig: Own, tmp_path: Path, alone: bool
) -> None:
    copy, put_back, start_alone = commands()
    names = [f"h{n}.example/" for n in range(20)]
    rig.seed(*names)
    rig.store_page(names[0], "early.example/")
    rig.tick(MARGIN + 3)
    shell(tmp_path, copy)
    rig.tick(2)
    rig.seed("seed.example/")
    rig.store_page(names[1], "late.example/")
    rig.frontier.stop()
    rig.embedded.stop()
    (tmp_path / "data/redis/appendonly.aof").write_bytes(b"broken")

    shell(tmp_path, put_back)
    if alone:
        assert "db0:keys=" in shell(tmp_path, start_alone)
    rig.embedded = rig.redis(tmp_path)
    rig.frontier = rig.broker()
    rig.frontier.start()
    totals = rig.refilled()
    until(lambda: rig.frontier.repairs()[0].phase == "done")
    report = rig.frontier.repairs()[0]
    assert not report.everything, "the copy was read"
    assert report.total == 2 + 1, "what was stored since: a page, its links, a batch"
    assert totals.admitted == len(names) + 3
    waiting = {"early.example/", "late.example/", "seed.example/", *names}
    assert set(rig.waiting()) == waiting, "what waited in the copy is at worst fetched once more"
