"""Deletions that wait for a node: how long a broker keeps the duty, and what is reported."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from greencrawl.broker.api.handlers import crawls as handlers
from greencrawl.broker.frontier.coordination.duties import PURGE
from greencrawl.broker.tasks.duty_timeout import FIRST_SECONDS, MOST_SECONDS
from greencrawl.broker.tasks.purge import Purging
from greencrawl.schema.records import Crawl, CrawlOptions
from tests.support.queue_double import Parts


class Rig(Parts):
    """Purging with its parts; ``given_up`` is when the broker gave the duty up."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.purging = Purging(self.service)
        self.given_up: list[float] = []

    def crawl(self, name: str) -> Crawl:
        return self.store.put_crawl(name, CrawlOptions(), ["a.example"])

    def look(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += self.purging.step()


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    made = Rig(tmp_path)
    give_up = made.service.duties.give_up

    def noted(name: str, seconds: float) -> None:
        made.given_up.append(made.now)
        give_up(name, seconds)

    monkeypatch.setattr("greencrawl.broker.frontier.coordination.duties.ASK_SECONDS", 0.0)
    monkeypatch.setattr(
        "greencrawl.broker.tasks.duty_task.CUT_SECONDS", 0.0
    )  # and no other broker takes it
    monkeypatch.setattr(made.service.duties, "give_up", noted)
    yield made
    made.service.duties.stop()
    made.store.close()


def test_the_purge_duty_is_given_up_less_and_less_often_while_nobody_reaches_a_node(
    rig: Rig,
) -> None:
    rig.service.purge(rig.crawl("a"))
    rig.queue.away = True
    rig.look(500.0)
    between = [after - before for before, after in pairwise(rig.given_up)]
    assert 5 <= len(between) + 1 <= 12, "each broker kept it for a minute in the end"
    assert between[0] < between[1] < between[2]
    assert MOST_SECONDS <= between[-1] < MOST_SECONDS + 5

    rig.queue.away = False
    rig.look(1.0)
    assert rig.store.purges() == [], "at once"
    rig.look(1.0)
    rig.queue.away, back = True, rig.now
    rig.service.purge(rig.crawl("b"))
    rig.look(4 * FIRST_SECONDS)
    again = [at for at in rig.given_up if at > back]
    assert FIRST_SECONDS <= again[0] - back < FIRST_SECONDS + 3, "it is as patient as at first"


def test_the_purge_duty_is_kept_and_other_deletions_go_on_while_a_node_is_away(rig: Rig) -> None:
    crawl = rig.crawl("a")
    rig.queue.put_crawl(crawl)
    rig.queue.lost_node = "away"
    rig.queue.lost = {rig.queue.partition_of("h.a.example")}
    rig.service.purge(crawl, "h.a.example")
    rig.purging.step()
    assert rig.service.duties.get(PURGE)
    rig.service.purge(rig.crawl("b"))
    rig.purging.step()
    assert [one.host for one in handlers.list_purges(rig.service)] == ["h.a.example"]


def test_a_deletion_names_the_nodes_that_it_waits_for(rig: Rig) -> None:
    crawl = rig.crawl("a")
    for host in ("h.a.example", "h.b.example"):
        rig.service.purge(crawl, host)
    rig.service.purge(rig.crawl("b"))
    assert [one.away for one in handlers.list_purges(rig.service)] == [(), (), ()]
    rig.queue.lost_node = "away"
    rig.queue.lost = {rig.queue.partition_of("h.a.example")}
    first, second, whole = handlers.list_purges(rig.service)
    assert [node.node for node in first.away] == ["redis://b"]
    assert second.away == ()
    assert whole.away == first.away
