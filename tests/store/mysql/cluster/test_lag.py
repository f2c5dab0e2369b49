"""How far a replica is behind, by the notes of the writer's position."""

from __future__ import annotations

import math

from greencrawl.store.mysql.cluster.lag import LagHistory


def test_a_replica_lags_by_the_age_of_the_newest_note_that_it_covers() -> None:
    now = 100.0
    history = LagHistory(clock=lambda: now)
    assert (history.age_seconds(), history.lag_seconds({1: 5})) == (math.inf, None)
    history.add({1: 5})
    now = 103.0
    history.add({1: 9})
    now = 104.0
    assert history.age_seconds() == 1.0
    assert [history.lag_seconds({1: n}) for n in (4, 5, 8, 9)] == [None, 4.0, 4.0, 1.0]
