"""Batches of concurrent requests go to the frontier together, and their answers are separated
again."""

from __future__ import annotations

from collections.abc import Sequence

import gevent
import pytest
from gevent.event import Event

from greencrawl.broker.frontier import Admitted
from greencrawl.broker.service import admission_batcher
from greencrawl.broker.service.admission_batcher import PASSES, WORTH, AdmissionBatcher
from greencrawl.schema.errors import Unavailable, UnknownCrawl
from greencrawl.schema.records import Admission


def urls(*names: str) -> list[Admission]:
    return [Admission(f"http://{name}.example/") for name in names]


class Frontier:
    """A frontier that notes its passes in order; each waits for ``gate``, and fails with ``error``
    if that is set."""

    def __init__(self) -> None:
        self.passes: list[tuple[int, list[str]]] = []
        self.seen: set[str] = set()
        self.gate = Event()
        self.error: Exception | None = None

    def admit(self, crawl: int, items: Sequence[Admission]) -> Admitted:
        self.passes.append((crawl, [item.url[7:-9] for item in items]))
        self.gate.wait()
        if self.error is not None:
            raise self.error
        flags = []
        for item in items:
            flags.append(item.url not in self.seen)
            self.seen.add(item.url)
        missed = {i for i, item in enumerate(items) if "away" in item.url}
        return Admitted(flags, len(self.passes), {"node": 3}, {"b"} if missed else (), missed)


@pytest.fixture
def frontier() -> Frontier:
    return Frontier()


def busy(frontier: Frontier, gathered: AdmissionBatcher) -> list[gevent.Greenlet[..., Admitted]]:
    """As many passes under way as are allowed, one batch each."""
    jobs = [gevent.spawn(gathered.admit, 1, urls("first"))]
    gevent.sleep(0.01)
    for number in range(1, PASSES):
        many = [Admission(f"http://many{number}.example/{n}") for n in range(WORTH)]
        jobs.append(gevent.spawn(gathered.admit, 1, many))
        gevent.sleep(0.01)
    assert len(frontier.passes) == PASSES
    return jobs


def test_batches_that_wait_are_admitted_together_and_get_their_own_flags(
    frontier: Frontier,
) -> None:
    gathered = AdmissionBatcher(frontier.admit)
    jobs = busy(frontier, gathered)
    wanted = [urls("a", "b"), urls("b", "first"), urls("c")]
    later = [gevent.spawn(gathered.admit, 1, batch) for batch in wanted]
    gevent.sleep(0.01)
    frontier.gate.set()
    gevent.joinall(jobs + later, timeout=5)
    assert frontier.passes[PASSES:] == [(1, ["a", "b", "b", "first", "c"])]
    found = [job.get() for job in later]
    assert found == [[True, True], [False, False], [True]]
    assert {(one.tick, one.epochs["node"]) for one in found} == {(PASSES + 1, 3)}


def test_a_small_batch_waits_for_the_admission_under_way(frontier: Frontier) -> None:
    gathered = AdmissionBatcher(frontier.admit)
    jobs = []
    for name in "abc":
        jobs.append(gevent.spawn(gathered.admit, 1, urls(name)))
        gevent.sleep(0.01)
    assert frontier.passes == [(1, ["a"])]
    frontier.gate.set()
    gevent.joinall(jobs, timeout=5)
    assert frontier.passes[1:] == [(1, ["b", "c"])]


def test_a_failed_admission_fails_its_batches_and_no_later_ones(frontier: Frontier) -> None:
    gathered = AdmissionBatcher(frontier.admit)
    jobs = busy(frontier, gathered)
    jobs += [gevent.spawn(gathered.admit, 1, urls(name)) for name in "ab"]
    frontier.error = Unavailable("away")
    frontier.gate.set()
    gevent.joinall(jobs, timeout=5)
    assert [type(job.exception) for job in jobs] == [Unavailable] * len(jobs)
    frontier.error = None
    assert gathered.admit(1, urls("a")) == [True]


def test_batches_of_two_crawls_are_admitted_separately_and_do_not_wait_for_each_other(
    frontier: Frontier,
) -> None:
    gathered = AdmissionBatcher(frontier.admit)
    jobs = busy(frontier, gathered)
    jobs.append(gevent.spawn(gathered.admit, 2, urls("other")))
    gevent.sleep(0.01)
    assert frontier.passes[-1] == (2, ["other"])
    frontier.gate.set()
    gevent.joinall(jobs, timeout=5)
    assert all(job.successful() for job in jobs)


def test_an_admission_has_a_limit_and_a_larger_batch_is_admitted_alone(
    frontier: Frontier, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = AdmissionBatcher(frontier.admit)
    jobs = busy(frontier, gathered)
    monkeypatch.setattr(admission_batcher, "BATCH", 3)
    for names in ("ab", "cd", "efgh", "i"):
        jobs.append(gevent.spawn(gathered.admit, 1, urls(*names)))
        gevent.sleep(0)
    frontier.gate.set()
    gevent.joinall(jobs, timeout=5)
    assert sorted(names for _, names in frontier.passes[PASSES:]) == [
        ["a", "b"],
        ["c", "d"],
        ["e", "f", "g", "h"],
        ["i"],
    ]


def test_a_killed_caller_does_not_stop_the_admission_of_other_batches(frontier: Frontier) -> None:
    gathered = AdmissionBatcher(frontier.admit)
    jobs = busy(frontier, gathered)
    killed = jobs[0]
    later = gevent.spawn(gathered.admit, 1, urls("a"))
    gevent.sleep(0.01)
    killed.kill()
    frontier.gate.set()
    assert later.get(timeout=5) == [True]
    assert all(jobs[1].get(timeout=5))


def test_an_admission_to_a_deleted_crawl_is_refused(frontier: Frontier) -> None:
    frontier.error = UnknownCrawl("crawl 1 was deleted")
    frontier.gate.set()
    with pytest.raises(UnknownCrawl):
        AdmissionBatcher(frontier.admit).admit(1, urls("a"))


def test_only_a_batch_with_urls_of_a_node_that_is_away_reports_missed_urls() -> None:
    frontier = Frontier()
    together = AdmissionBatcher(frontier.admit)
    first = gevent.spawn(together.admit, 1, urls("first"))
    gevent.sleep(0)
    both = [gevent.spawn(together.admit, 1, urls(*names)) for names in (("a",), ("b", "away"))]
    gevent.sleep(0)
    frontier.gate.set()
    gevent.joinall([first, *both], raise_error=True)
    assert len(frontier.passes) == 2, "both in one pass"
    whole, part = (job.value for job in both)
    assert (whole.away, whole.missed) == (frozenset(), frozenset())
    assert (part.away, part.missed) == ({"b"}, {1})
