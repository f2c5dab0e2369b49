"""Rests between the steps of long work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from greencrawl.broker.service.service import Service
from greencrawl.broker.tasks import throttle
from greencrawl.broker.tasks.purge import Purging
from greencrawl.broker.tasks.throttle import rested
from greencrawl.schema.records import Commit, CrawlOptions
from greencrawl.store import open_store
from greencrawl.store.sqlite.tables import crawls
from tests.support.queue_double import QueueDouble
from tests.support.store_records import attempt


def test_each_step_of_long_work_is_followed_by_a_rest_of_its_length_up_to_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, course = [0.0], list[Any]()

    def sleep(seconds: float) -> None:
        now[0] += seconds
        course.append(seconds)

    def steps() -> Iterator[str]:
        for name, took in (("a", 0.25), ("b", 0.0), ("c", 4.0)):
            now[0] += took
            yield name

    monkeypatch.setattr(throttle, "gevent", SimpleNamespace(sleep=sleep))  # here alone
    for name in rested(steps(), lambda: now[0]):
        course.append(name)
        now[0] += 10.0  # the work of the caller is no step
    assert course == ["a", 0.25, "b", 0.0, "c", throttle.MOST_SECONDS]


def test_the_deletion_of_a_crawl_rests_between_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(crawls.PURGE_ROWS, "attempts", 10)
    slept: list[float] = []
    monkeypatch.setattr(throttle, "gevent", SimpleNamespace(sleep=slept.append))  # here alone
    store = open_store(f"sqlite:///{tmp_path / 'content.sqlite'}")
    service = Service(QueueDouble(), store)
    crawl = store.put_crawl("test", CrawlOptions(), [])
    store.commit(Commit(attempts=[attempt(crawl.id, n) for n in range(45)]))
    service.purge(crawl)
    Purging(service).work()
    service.duties.stop()
    assert store.purges() == []
    assert store.crawls() == []
    store.close()
    assert len(slept) >= 5
    assert all(one > 0 for one in slept)
