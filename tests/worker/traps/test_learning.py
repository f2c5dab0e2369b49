"""What pages and redirects tell about their shapes, for every kind of task."""

from __future__ import annotations

import pytest

from greencrawl.schema.records import (
    Admission,
    Crawl,
    CrawlOptions,
    StoredPage,
    Task,
    TaskKind,
)
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.link_checker import redirected
from greencrawl.worker.traps.hosts import HostTraps
from greencrawl.worker.traps.novelty import Novelty, samples_of
from greencrawl.worker.traps.traps import Traps
from tests.worker.traps.pages import prose

HOST = "h.example"
AT = f"https://{HOST}"
CRAWL = Crawl(id=1, name="c", state="active", options=CrawlOptions(traps="on"))


class World:
    """A judge of one host."""

    def __init__(self) -> None:
        self.traps = Traps(Novelty(None, 1 << 12, 1 << 12))
        state = self.traps.open(CRAWL, HOST, b"")
        assert state is not None
        self.state: HostTraps = state

    def redirect(self, path: str, to: str, kind: TaskKind) -> None:
        """Let a redirect answer a task of ``kind``."""
        task = Task(1, AT + path, 1, 1, kind=kind)
        row = StoredPage(
            crawl=1, fingerprint=1, url=task.url, status=301, text="", title="", body=b"",
            links=[redirected(task, AT + to)],
        )  # fmt: skip
        self.traps.note(self.state, CRAWL, task, row)

    def fetch(self, path: str, text: str, *links: str) -> None:
        """Let a page be read."""
        row = StoredPage(
            crawl=1, fingerprint=1, url=AT + path, status=200, text=text, title="", body=b"",
            links=[Admission(AT + link, 2, 2) for link in links],
        )  # fmt: skip
        reading = Reading(text=text, samples=samples_of(text, row.url))
        self.traps.note(self.state, CRAWL, Task(1, row.url, 1, 1), row, reading)

    def against(self, path: str) -> float:
        found = self.state.yields.sum_of(self.state.shape(AT + path).name)
        assert found is not None
        return found.score


@pytest.mark.parametrize("kind", [TaskKind.PAGE, TaskKind.CANONICAL])
def test_a_redirect_counts_against_its_shape_only_if_its_target_is_known(
    kind: TaskKind,
) -> None:
    world = World()
    for n in range(20):
        world.redirect(f"/old/{n}", f"/pages/{n}", kind)
    assert world.against("/old/1") == 0
    for n in range(20, 40):
        world.redirect(f"/old/{n}", "/pages/1", kind)
    assert world.against("/old/1") > 6


@pytest.mark.parametrize(("words", "apart"), [(200, True), (40, False)])
def test_pages_with_the_same_long_text_count_against_their_section_if_they_link_each_other(
    words: int, apart: bool
) -> None:
    """A short text belongs to an index, which only says where it leads."""
    worlds = World(), World()
    names = [f"/go/{chr(97 + n // 2) * 2}-{n}" for n in range(30)]
    text = "\n".join(prose("tip", words))
    for world, found in zip(worlds, (True, False), strict=True):
        for n, name in enumerate(names[:-1]):
            world.fetch(name, text, names[n + 1] if found else f"/elsewhere/{n}/", f"/x{n}/")
    section = f"{AT}/go"
    bred, alone = (world.state.yields.against(section) for world in worlds)
    assert (bred > 6 > alone) == apart, (bred, alone)
