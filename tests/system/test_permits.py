"""A broker without tokens: crawls of strangers cannot use the operator's modules and secrets.

The tests run whole processes. Broker and worker get different settings where a test shows that the
worker does not rely on the broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from greencrawl.broker.client import BrokerClient
from greencrawl.schema.errors import Refused
from greencrawl.schema.records import CreateCrawl
from tests.support.login_site import NAME, PASSWORD, LoginSite
from tests.support.system import System, wait_until

SECRETS = {"auth_shop_username": NAME, "auth_shop_password": PASSWORD}


@pytest.fixture
def site() -> Iterator[LoginSite]:
    with LoginSite() as serving:
        yield serving


@pytest.fixture
def evil() -> Iterator[LoginSite]:
    with LoginSite() as serving:
        yield serving


def entry(site: LoginSite) -> dict[str, Any]:
    return {
        "kind": "form",
        "name": "shop",
        "hosts": [site.origin],
        "login_url": site.url("/login"),
    }


def problem(system: System, body: dict[str, Any]) -> str:
    """Return why the broker refuses to create a crawl."""
    broker = BrokerClient((system.variables["BROKER"],))
    with pytest.raises(Refused) as refused:
        broker.put_crawl(msgspec.convert(body, CreateCrawl))
    assert refused.value.status == 400
    return str(refused.value.problem)


def test_the_broker_refuses_modules_and_hosts_that_the_operator_does_not_name(
    tmp_path: Path, site: LoginSite, evil: LoginSite
) -> None:
    settings = {"hooks": "mine", "auth_shop_hosts": site.origin}
    with System(tmp_path, **settings) as system:
        system.start_broker()
        found = problem(system, {"name": "a", "hook": "antigravity"})
        assert "GREENCRAWL_HOOKS" in found
        found = problem(system, {"name": "a", "auth": [entry(evil)]})
        assert "GREENCRAWL_AUTH_SHOP_HOSTS" in found
        found = problem(system, {"name": "a", "auth": [{**entry(site), "name": "bank"}]})
        assert "GREENCRAWL_AUTH_BANK_HOSTS" in found
        assert system.call("GET", "/v1/crawls") == []
        system.crawl([site.url("/")], auth=[entry(site)], hook="mine")


def test_a_worker_uses_only_modules_and_hosts_that_its_own_operator_names(
    tmp_path: Path, site: LoginSite, evil: LoginSite
) -> None:
    """For example, the broker was deceived or belongs to somebody else."""
    permissive = System(tmp_path, hooks="*", auth_shop_hosts="*")
    strict = {"HOOKS": "mine", "AUTH_SHOP_HOSTS": site.origin}
    with permissive as system:
        system.start_broker()
        system.variables |= strict
        system.secrets = {name.upper(): value for name, value in SECRETS.items()}
        system.start_worker()
        system.crawl([evil.url("/in/a")], "evil", auth=[entry(evil)], delay=0)
        system.crawl([site.url("/")], "odd", hook="tests.support.deadly_hook", delay=0)
        host = evil.origin.partition("://")[2]
        wait_until(lambda: system.call("GET", f"/v1/hosts/{host}")["why"], 20, "it is blocked")
        assert "AUTH_SHOP_HOSTS" in system.call("GET", f"/v1/hosts/{host}")["why"]
        wait_until(lambda: system.stats("odd")["refused"], 20, "the hook is refused")
        assert "GREENCRAWL_HOOKS" in system.stats("odd")["refused"][0]["reason"]
        assert not any(asked.method == "POST" for asked in evil.log)
        system.crawl([site.url("/in/a")], "fine", auth=[entry(site)], delay=0)
        system.wait_done(20, "fine")
        assert [asked.method for asked in site.log].count("POST") == 1
