"""Shares of addresses: their sum is never above the cap, and nobody waits for ever."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from greencrawl.broker.frontier import Frontier
from greencrawl.broker.frontier.addresses import SHARE_SECONDS, Share, ShareRequest
from greencrawl.broker.frontier.nodes import keys
from greencrawl.schema.errors import Unavailable
from greencrawl.store import open_store
from tests.broker.frontier.nodes.test_clock import jump
from tests.broker.frontier.test_frontier import pass_time, until
from tests.support.effort import cases
from tests.support.redis_server import RedisServer

NAME = "4:203.0.113.7"


@pytest.fixture
def frontier(redis_server: RedisServer, tmp_path: Path) -> Iterator[Frontier]:
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    frontier = Frontier([redis_server.url], store, partitions=8, create=True)
    yield frontier
    frontier.stop()
    store.close()


def ask(
    frontier: Frontier,
    holder: str,
    cap: int,
    want: int,
    used: int = 0,
    *,
    connections: int = 100,
    name: str = NAME,
    window: float = 1.0,
) -> Share:
    wanted = ShareRequest(name, window, cap, used, want, connections, used, want)
    (share,) = frontier.shares(holder, [wanted])
    assert share is not None
    return share


def test_a_process_alone_at_an_address_gets_what_it_wants_up_to_the_cap(frontier: Frontier) -> None:
    assert ask(frontier, "a", 10, 3) == Share(3, 3, 0.0)
    assert ask(frontier, "a", 10, 30)[:2] == (10, 30)
    assert ask(frontier, "a", 10, 30, connections=4)[:2] == (10, 4)
    assert ask(frontier, "a", 10, 30, name="4:203.0.113.8")[:2] == (10, 30), "another address"


def test_a_share_of_an_address_is_not_given_to_another_until_it_ends(frontier: Frontier) -> None:
    assert ask(frontier, "a", 10, 10).starts == 10
    share = ask(frontier, "b", 10, 10)
    assert share.starts == 0
    assert SHARE_SECONDS < share.retry_seconds < SHARE_SECONDS + 3
    pass_time(frontier, SHARE_SECONDS)
    assert ask(frontier, "b", 10, 10).starts == 0, "requests of the last moment are in the window"
    pass_time(frontier, 2.1)
    assert ask(frontier, "b", 10, 10).starts == 10


def test_no_share_ends_because_the_clock_jumps_ahead(
    redis_server: RedisServer, frontier: Frontier, tmp_path: Path
) -> None:
    frontier.start()
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    workers = [Frontier([redis_server.url], store) for _ in range(2)]
    assert ask(workers[0], "a", 10, 10).starts == 10
    assert ask(workers[1], "b", 10, 10).starts == 0
    jump(redis_server, 60_000)
    assert ask(workers[1], "b", 10, 10).starts == 0, "the broker sets the clock first"
    assert ask(workers[0], "a", 10, 10).starts > 0, "it has its own still"
    for worker in workers:
        worker.stop()
    store.close()


def test_a_holder_of_too_large_a_share_gives_back_what_it_does_not_use(frontier: Frontier) -> None:
    assert ask(frontier, "a", 10, 10).starts == 10
    assert ask(frontier, "b", 10, 10).starts == 0
    share = ask(frontier, "a", 10, 10, used=7, connections=10)
    assert share[:2] == (5, 7), "requests end; connections that are open stay"
    assert ask(frontier, "b", 10, 10).starts == 0, "requests under the old share are in the window"
    pass_time(frontier, SHARE_SECONDS + 2.1)
    assert ask(frontier, "a", 10, 10, used=2).starts <= 5
    pass_time(frontier, 2.1)
    assert ask(frontier, "b", 10, 10).starts == 5


def test_a_holder_may_take_the_share_that_others_do_not_want(frontier: Frontier) -> None:
    assert ask(frontier, "a", 10, 2).starts == 2
    assert ask(frontier, "b", 10, 10).starts == 8
    assert ask(frontier, "b", 10, 10).starts == 8


def test_the_only_share_of_an_address_goes_round_all_holders(frontier: Frontier) -> None:
    holders, had = ("a", "b", "c"), set()
    for _ in range(60):
        found = [holder for holder in holders if ask(frontier, holder, 1, 4).starts]
        assert len(found) <= 1
        had |= {*found}
        if had == {*holders}:
            return
        pass_time(frontier, 1.0)
    raise AssertionError(f"only {had} had it")


def test_shares_that_a_redis_forgot_are_not_given_again_at_once(
    frontier: Frontier, redis_server: RedisServer
) -> None:
    assert ask(frontier, "a", 10, 10).starts == 10
    redis_server.client.hset(keys.OWNER, "lost", round(frontier.nodes[0].now_ms()))
    redis_server.client.delete(*redis_server.client.keys("gc:{*}:ad:*"))
    share = ask(frontier, "b", 10, 10)
    assert (share.starts, share.connections) == (0, 0)
    pass_time(frontier, share.retry_seconds + 0.1)
    assert ask(frontier, "b", 10, 10).starts == 10


def test_a_reopened_redis_notes_when_it_was_emptied(
    frontier: Frontier, redis_server: RedisServer
) -> None:
    redis_server.kill()
    for file in redis_server.folder.rglob("*"):
        if file.is_file() and file.suffix in (".aof", ".rdb", ".manifest"):
            file.unlink()
    redis_server.start()

    def opened() -> bool:
        with suppress(Unavailable):
            frontier.recovery.reopen(frontier.nodes[0])
            return True
        return False

    until(opened)
    assert float(redis_server.client.hget(keys.OWNER, "lost")) > 0
    assert ask(frontier, "a", 10, 10).starts == 0


def test_records_of_addresses_are_dropped_when_their_shares_have_ended(
    frontier: Frontier, redis_server: RedisServer
) -> None:
    ask(frontier, "a", 10, 10)
    (key,) = redis_server.client.keys("gc:{*}:ad:*")
    (ends,) = redis_server.client.keys("gc:{*}:ade")
    ((_, end),) = redis_server.client.zrange(ends, 0, -1, withscores=True)
    now = frontier.nodes[0].now_ms()
    assert SHARE_SECONDS * 1000 < end - now < 1000 * (SHARE_SECONDS + 10)
    redis_server.client.rename(key, key + "-of-another")  # no holder asks for it any more
    redis_server.client.zadd(ends, {f"{NAME}-of-another": now - 1})
    ask(frontier, "a", 10, 10)
    assert redis_server.client.keys("gc:{*}:ad:*") == [key]
    assert redis_server.client.zcard(ends) == 1


@pytest.mark.parametrize("seed", cases(range(3), range(3, 60)))
def test_requests_of_all_holders_in_a_window_never_exceed_the_cap(
    frontier: Frontier, seed: int
) -> None:
    """Holders come, pause and die; each counts the time of its share from before it asked."""
    draw = random.Random(seed)
    cap, window = draw.choice([1, 2, 5, 10]), draw.choice([0.5, 1.0, 4.0])
    now, starts_of = 0.0, defaultdict(list)
    held: dict[str, tuple[int, float]] = {}
    granted = set()
    for _ in range(300):
        holder = draw.choice("abcd")
        mine = starts_of[holder] = [t for t in starts_of[holder] if t > now - window]
        share = ask(
            frontier, holder, cap, draw.randint(0, cap + 2), len(mine), window=window
        ).starts
        held[holder] = (share, now + SHARE_SECONDS)
        if share:
            granted.add(holder)
        for name, (most, ends) in held.items():
            mine = [t for t in starts_of[name] if t > now - window]
            while now < ends and len(mine) < most and draw.random() < 0.7:
                mine.append(now)
            starts_of[name] = mine
        assert sum(len(mine) for mine in starts_of.values()) <= cap
        step = draw.choice([0.0, 0.05, 0.3, 1.0, 2.5])
        now += step
        pass_time(frontier, step)
        for name in starts_of:
            starts_of[name] = [t for t in starts_of[name] if t > now - window]
    assert granted == set("abcd")


@pytest.mark.parametrize("seed", cases(range(3), range(3, 60)))
def test_open_connections_of_all_holders_never_exceed_the_cap(
    frontier: Frontier, seed: int
) -> None:
    """Holders open as many connections as they may, close idle ones beyond their share, and report
    those in use. A holder that stops calling closes its connections when its share ends."""
    draw = random.Random(seed)
    cap = draw.choice([1, 3, 10])
    now, most = 0.0, 0
    connected, held = dict.fromkeys("abcd", 0), dict.fromkeys("abcd", (0, 0.0))
    granted = set()
    for _ in range(300):
        holder = draw.choice("abcd")
        busy = draw.randint(0, connected[holder])
        wish = ShareRequest(NAME, 1.0, 10, 0, 10, cap, busy, draw.randint(busy, cap) + 1)
        (share,) = frontier.shares(holder, [wish])
        assert share is not None
        assert share.connections >= busy
        held[holder] = (share.connections, now + SHARE_SECONDS)
        connected[holder] = min(connected[holder], share.connections)
        if share.connections:
            granted.add(holder)
        for name, (share_of, ends) in held.items():
            if now < ends and draw.random() < 0.5:
                connected[name] = draw.randint(connected[name], max(share_of, connected[name]))
        most = max(most, sum(connected.values()))
        assert most <= cap
        step = draw.choice([0.0, 0.05, 0.3, 1.0, 2.5])
        now += step
        pass_time(frontier, step)
        for name, (_, ends) in held.items():
            if now >= ends:
                connected[name] = 0
    assert most > cap // 2
    assert granted == set("abcd")


@pytest.mark.parametrize("processes", [2, 3, 4, 7])
def test_the_whole_cap_is_divided_evenly_even_among_late_holders(
    frontier: Frontier, processes: int
) -> None:
    shares: dict[str, Share] = {}
    for step in range(40):
        for holder in "abcdefg"[: processes if step > 4 else 1]:
            busy = min(1, shares[holder].connections) if holder in shares else 0
            wish = ShareRequest(NAME, 1.0, 10, 0, 10, 10, busy, 10 - step % 2)
            (share,) = frontier.shares(holder, [wish])
            assert share is not None
            shares[holder] = share
        pass_time(frontier, 0.5)
    for kind in ("starts", "connections"):
        found = [getattr(share, kind) for share in shares.values()]
        assert sum(found) == 10
        assert max(found) - min(found) <= 1, found
