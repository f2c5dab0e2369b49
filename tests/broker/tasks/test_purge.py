"""Deletions that wait for a node: how long the duty is kept, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from greencrawl.broker.api.handlers import crawls as handlers
from greencrawl.broker.frontier.coordination.duties import PURGE
from greencrawl.broker.tasks.patience import FIRST_SECONDS, MOST_SECONDS
from greencrawl.broker.tasks.purge import Purging
from greencrawl.schema.records import Crawl, CrawlOptions
from tests.support.queue_double import Parts


class House(Parts):
    """Purging with its parts; ``given_up`` is when the duty was left."""

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
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    made = House(tmp_path)
    give_up = made.service.duties.give_up

    def noted(name: str, seconds: float) -> None:
        made.given_up.append(made.now)
        give_up(name, seconds)

    monkeypatch.setattr("greencrawl.broker.frontier.coordination.duties.ASK_SECONDS", 0.0)
    monkeypatch.setattr(
        "greencrawl.broker.tasks.purge.CUT_SECONDS", 0.0
    )  # and nobody else takes it
    monkeypatch.setattr(made.service.duties, "give_up", noted)
    yield made
    made.service.duties.stop()
    made.store.close()


def test_a_node_that_nobody_reaches_is_no_reason_to_pass_the_duty_on_all_the_time(
    house: House,
) -> None:
    house.service.purge(house.crawl("a"))
    house.queue.away = True
    house.look(500.0)
    between = [after - before for before, after in pairwise(house.given_up)]
    assert 5 <= len(between) + 1 <= 12, "each broker kept it for a minute in the end"
    assert between[0] < between[1] < between[2]
    assert MOST_SECONDS <= between[-1] < MOST_SECONDS + 5

    house.queue.away = False
    house.look(1.0)
    assert house.store.purges() == [], "at once"
    house.look(1.0)
    house.queue.away, back = True, house.now
    house.service.purge(house.crawl("b"))
    house.look(4 * FIRST_SECONDS)
    again = [at for at in house.given_up if at > back]
    assert FIRST_SECONDS <= again[0] - back < FIRST_SECONDS + 3, "it is as patient as at first"


def test_the_duty_is_kept_meanwhile_and_other_deletions_go_on(house: House) -> None:
    crawl = house.crawl("a")
    house.queue.put_crawl(crawl)
    house.queue.lost_node = "away"
    house.queue.lost = {house.queue.partition_of("h.a.example")}
    house.service.purge(crawl, "h.a.example")
    house.purging.step()
    assert house.service.duties.get(PURGE)
    house.service.purge(house.crawl("b"))
    house.purging.step()
    assert [one.host for one in handlers.list_purges(house.service)] == ["h.a.example"]


def test_a_deletion_names_the_nodes_that_it_waits_for(house: House) -> None:
    crawl = house.crawl("a")
    for host in ("h.a.example", "h.b.example"):
        house.service.purge(crawl, host)
    house.service.purge(house.crawl("b"))
    assert [one.away for one in handlers.list_purges(house.service)] == [(), (), ()]
    house.queue.lost_node = "away"
    house.queue.lost = {house.queue.partition_of("h.a.example")}
    first, second, whole = handlers.list_purges(house.service)
    assert [node.node for node in first.away] == ["redis://b"]
    assert second.away == ()
    assert whole.away == first.away
