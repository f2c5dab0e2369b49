"""On which addresses a broker may listen, and with which tokens."""

from __future__ import annotations

import pytest

from greencrawl.broker.api.security import check_settings
from greencrawl.schema.bearer import is_loopback
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.settings import load

BOTH = {"worker_token": "w", "admin_token": "a"}


@pytest.mark.parametrize("bind", ["0.0.0.0:8765", "[::]:8765", "192.0.2.1:1", "broker.example:1"])
def test_a_bind_beyond_loopback_needs_both_tokens(bind: str) -> None:
    for tokens in ({}, {"worker_token": "w"}, {"admin_token": "a"}):
        with pytest.raises(InvalidConfig, match="is not loopback: set GREENCRAWL_WORKER_TOKEN"):
            check_settings(load({}, bind=bind, **tokens))
    check_settings(load({}, bind=bind, **BOTH))


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "127.8.8.8:1", "[::1]:1", "localhost:1"])
def test_a_broker_on_loopback_needs_no_tokens(bind: str) -> None:
    check_settings(load({}, bind=bind))
    check_settings(load({}, bind=bind, **BOTH))


def test_tokens_that_do_not_tell_roles_apart_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="both tokens"):
        check_settings(load({}, worker_token="w"))
    with pytest.raises(InvalidConfig, match="must differ"):
        check_settings(load({}, worker_token="same", admin_token="same"))


def test_a_view_token_must_differ_from_the_other_tokens_and_needs_them() -> None:
    check_settings(load({}, **BOTH, view_token="v"))
    with pytest.raises(InvalidConfig, match="VIEW_TOKEN: must differ"):
        check_settings(load({}, **BOTH, view_token="a"))
    with pytest.raises(InvalidConfig, match="everybody may do all"):
        check_settings(load({}, view_token="v"))


@pytest.mark.parametrize("host", ["", "127.0.0.1.example.org", "localhost.example.org", "10.0.0.1"])
def test_host_names_that_only_look_like_loopback_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)
