"""Brokers look after the cluster, also if it is away when they start."""

from __future__ import annotations

from pathlib import Path

import gevent

from greencrawl.schema.errors import Unavailable
from greencrawl.store.mysql.cluster.steward import by_hand
from greencrawl.store.mysql.cluster.steward.steward import Steward
from greencrawl.store.steward import steward_of
from tests.support.mariadb import local_cluster
from tests.support.redis_server import RedisServer
from tests.support.system import System, wait_until


def test_a_broker_that_starts_before_the_masters_waits_and_opens_one(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    cluster = local_cluster(tmp_path / "c")
    try:
        cluster.start()
        steward = steward_of(cluster.url(), cluster.steward)
        assert steward is not None
        by_hand.form(steward)
        for name in ("m1", "m2"):
            cluster.servers[name].kill()
        starting = gevent.spawn_later(4.0, cluster.start, ["m1", "m2"])
        settings = {"store": cluster.url(), "store_steward": cluster.steward}
        with System(tmp_path, [redis_server.url], **settings) as system:
            system.start_broker()
            starting.get()
            assert '"what": "store"' in system.tail("broker", 50)
            wait_until(lambda: _whole(steward), 40, "the other master acknowledges", every=0.2)
        steward.close()
    finally:
        cluster.stop()


def _whole(steward: Steward) -> bool:
    try:
        term = steward.look().term
    except Unavailable:
        return False
    return term is not None and bool(term.partner)
