"""Which of several brokers a command asks."""

from __future__ import annotations

import pytest

from greencrawl.cli import connecting
from greencrawl.schema.settings import load
from tests.support.raw_server import RawServer, answer, send_then_stall


def test_a_broker_that_is_frozen_is_asked_after_those_that_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connecting, "FROZEN_SECONDS", 0.2)
    with RawServer(send_then_stall(b"")) as frozen, RawServer(answer(b"[]")) as there:
        brokers = connecting.client(load(None), frozen.url(""), there.url(""))
        assert not brokers.trouble()
        assert (frozen.paths, there.paths) == (["/healthz"], ["/healthz", "/readyz"])
        assert not connecting.client(load(None), there.url("")).trouble()
        assert there.paths[2:] == ["/readyz"], "one broker is not tried before"
