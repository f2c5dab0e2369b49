"""The parts of a worker process."""

from __future__ import annotations

from time import monotonic

import pytest

from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import ExtendItem, ExtendRequest
from greencrawl.schema.settings import load
from greencrawl.worker.child import broker_of
from tests.broker.test_client import Peer, answer, hang

LEASE_SECONDS = 3.0
EXTEND = ExtendRequest((ExtendItem(session="s", token="t"),), LEASE_SECONDS)


def test_a_worker_leaves_a_silent_broker_for_the_next_before_its_leases_end() -> None:
    silent, other = Peer(hang), Peer(answer("200 OK", b'{"results":["ok"]}'))
    both = f"{silent.url},{other.url}"
    client = broker_of(load({}, broker=both, lease_seconds=str(LEASE_SECONDS)))
    began = monotonic()
    try:
        with pytest.raises(Unavailable, match="timed out"):
            client.extend(EXTEND)
        assert client.extend(EXTEND).results == ("ok",)
        # It is sent when a third of the lease is over.
        assert monotonic() - began < LEASE_SECONDS * 2 / 3
    finally:
        client.disconnect()
        for peer in (silent, other):
            peer.server.stop(timeout=0.1)
