"""The registry makes a kind from an entry and its secrets."""

from __future__ import annotations

import pytest

from greencrawl.schema.records.auth import Auth, Basic, Form, OAuth2
from greencrawl.worker.auth.base import LoginRefused
from greencrawl.worker.auth.kinds.registry import make

SECRETS = {"username": "ann", "password": "1", "client_id": "c", "client_secret": "s"}


def form(hosts: tuple[str, ...], login_url: str = "https://a.org/login") -> Form:
    return Form(name="shop", hosts=hosts, login_url=login_url)


def oauth2(token_url: str) -> OAuth2:
    return OAuth2(name="shop", hosts=("a.org",), token_url=token_url)


@pytest.mark.parametrize(
    "entry",
    [
        Basic(name="shop", hosts=("a.org", "*.a.org")),
        Basic(name="shop", hosts=("www.a.org",)),
        form(("a.org",)),
        form(("a.org",), "https://id.a.org/login"),
        oauth2("https://login.a.org/token"),
    ],
)
def test_entry_is_accepted_if_its_urls_are_at_the_hosts_of_the_secrets(entry: Auth) -> None:
    assert make(entry, {**SECRETS, "hosts": "a.org, *.a.org"}).entry == entry


@pytest.mark.parametrize(
    ("entry", "where"),
    [
        (Basic(name="shop", hosts=("a.org", "evil.org")), "evil.org"),
        (Basic(name="shop", hosts=("http://a.org",)), "http://a.org"),
        (Basic(name="shop", hosts=("*.org.evil",)), "org.evil"),
        (form(("a.org",), "https://evil.org/login"), "https://evil.org/login"),
        (oauth2("https://evil.org/token"), "https://evil.org/token"),
    ],
)
def test_an_entry_that_would_take_secrets_elsewhere_is_refused(entry: Auth, where: str) -> None:
    make(entry, SECRETS)
    with pytest.raises(LoginRefused, match=r"its secrets are for a\.org") as refused:
        make(entry, {**SECRETS, "hosts": "a.org, *.a.org"})
    assert where in str(refused.value)
    assert "ann" not in str(refused.value)


def test_refusal_names_an_invalid_host_of_the_secrets() -> None:
    with pytest.raises(LoginRefused, match=r"hosts of the secrets: 'a\.org/x' is no origin"):
        make(form(("a.org",)), {**SECRETS, "hosts": "a.org/x"})
