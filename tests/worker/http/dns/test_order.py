"""The order in which addresses are tried."""

from __future__ import annotations

import pytest

from greencrawl.worker.http.dns.order import best_first, source_of

FOUR, SIX, LOCAL_SIX, TUNNEL = "8.8.8.8", "2001:4860:4860::8888", "fd00::5", "2002:808:808::1"
OWN = {FOUR: "192.168.1.5", SIX: "2a00:1450::5", LOCAL_SIX: "fd00::1", TUNNEL: "2002:101:101::1"}


def test_addresses_of_one_ip_version_keep_their_order() -> None:
    given = ["127.0.0.3", "127.0.0.1", "127.0.0.2", "127.0.0.1"]
    assert best_first(given) == ["127.0.0.3", "127.0.0.1", "127.0.0.2"]


@pytest.mark.parametrize(
    ("own", "order"),
    [
        (OWN, [SIX, FOUR, TUNNEL, LOCAL_SIX]),
        ({FOUR: "192.168.1.5"}, [FOUR, SIX, TUNNEL, LOCAL_SIX]),
        ({SIX: "2a00:1450::5"}, [SIX, FOUR, TUNNEL, LOCAL_SIX]),
        ({**OWN, SIX: "fd00::1"}, [FOUR, TUNNEL, LOCAL_SIX, SIX]),
    ],
)
def test_addresses_reachable_from_an_own_address_of_their_kind_come_first(
    own: dict[str, str], order: list[str]
) -> None:
    assert best_first([TUNNEL, LOCAL_SIX, FOUR, SIX], own.get) == order


def test_loopback_is_reached_from_itself() -> None:
    assert source_of("127.0.0.1") == "127.0.0.1"
    assert source_of("255.255.255.255") is None
