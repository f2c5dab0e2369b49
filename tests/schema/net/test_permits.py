"""What crawls may use of the operator: modules and secrets."""

from __future__ import annotations

import pytest

from greencrawl.schema import settings
from greencrawl.schema.net.permits import OWN, Permits, permitted_hosts
from greencrawl.schema.net.providers import login_urls
from greencrawl.schema.records import CrawlOptions, KernelRule
from greencrawl.schema.records.auth import Auth, Basic, Form, OAuth2, Own

OPEN = Permits.of(settings.load({}), {})
TOKENS = {"worker_token": "w", "admin_token": "a"}


@pytest.mark.parametrize(
    ("listed", "named", "allowed"),
    [
        ("", "own", False),
        ("", "", True),
        ("other", "own", False),
        ("own", "own", True),
        ("own", "own:Login", True),
        ("own", "own.more", False),
        ("own", "owner", False),
        ("own:Login", "own:Login", True),
        ("own:Login", "own:Other", False),
        ("own:Login", "own", False),
        ("own.*", "own.more", True),
        ("own.*", "own.more:Login", True),
        ("own.*", "owner.more", False),
        ("own.*", "own", False),
        ("other, own", "own", True),
        ("*", "os", True),
    ],
)
def test_a_crawl_may_name_only_permitted_modules(listed: str, named: str, allowed: bool) -> None:
    found = Permits.of(settings.load({"GREENCRAWL_HOOKS": listed}), {}).module(named)
    assert (found == "") is allowed
    assert allowed or ("GREENCRAWL_HOOKS" in found and named in found)


def test_every_module_is_permitted_with_tokens_unless_some_are_listed() -> None:
    assert Permits.of(settings.load({}, **TOKENS), {}).module("own") == ""
    assert Permits.of(settings.load({}, hooks="other", **TOKENS), {}).module("own") != ""
    assert Permits.of(settings.load({}, worker_token="w"), {}).module("own") == ""


def test_a_hook_setting_that_is_no_module_name_is_refused_at_the_start() -> None:
    for wrong in ("own/x", "own:", "own.*:Login", "-m", "own ."):
        with pytest.raises(settings.InvalidConfig, match="GREENCRAWL_HOOKS"):
            settings.load({"GREENCRAWL_HOOKS": wrong})


FORM = Form(name="shop", hosts=("a.org", "*.a.org"), login_url="https://id.b.org/login")


def test_secrets_without_permitted_hosts_are_not_sent_if_there_are_no_tokens() -> None:
    why = OPEN.secrets(FORM, "", login_urls(FORM))
    assert "GREENCRAWL_AUTH_SHOP_HOSTS=a.org,*.a.org,https://id.b.org " in why
    assert Permits.of(settings.load({}, **TOKENS), {}).secrets(FORM, "", login_urls(FORM)) == ""
    assert OWN.secrets(FORM, "", login_urls(FORM)) == ""


@pytest.mark.parametrize(
    "entry",
    [
        FORM,
        Basic(name="shop", hosts=("http://a.org:81", "a.org:8443")),
        Own(name="shop", hosts=("a.org",), login="own:Login", login_url="http://a.org/x"),
        OAuth2(name="shop", hosts=("a.org",), provider="twitter"),
        OAuth2(name="shop", hosts=("a.org",), token_url="https://b.org/t"),
    ],
)
def test_permitting_the_hosts_that_a_problem_names_solves_it(entry: Auth) -> None:
    hosts = ",".join(permitted_hosts(entry, login_urls(entry)))
    assert OPEN.secrets(entry, hosts, login_urls(entry)) == ""


def test_a_problem_also_names_the_endpoints_of_the_provider() -> None:
    entry = OAuth2(name="x", hosts=("a.org",), provider="twitter")
    ((_, why),) = OPEN.problems(CrawlOptions(auth=(entry,)))
    assert "GREENCRAWL_AUTH_X_HOSTS=a.org,https://api.x.com " in why


def test_every_problem_of_a_crawl_names_its_field() -> None:
    entries = (
        FORM,
        Own(name="own", hosts=("c.org",), login="own:Login"),
        Basic(name="fine", hosts=("d.org",)),
        Basic(name="any", hosts=("e.org",)),
        Basic(name="plain", hosts=("http://f.org",)),
        OAuth2(name="token", hosts=("g.org",), token_url="https://evil.org/t"),
        OAuth2(name="base", hosts=("g.org",), provider="twitter", base="https://evil.org"),
    )
    said = {
        "OWN": "c.org",
        "FINE": "d.org",
        "ANY": "*",
        "PLAIN": "f.org",
        "TOKEN": "g.org",
        "BASE": "g.org",
        "SHOP": " ",
    }
    environ = {f"GREENCRAWL_AUTH_{name}_HOSTS": hosts for name, hosts in said.items()}
    permits = Permits.of(settings.load({}), environ)
    kernels = (KernelRule(match="*", kernel="http"), KernelRule(match="*", kernel="a:B"))
    options = CrawlOptions(hook="mine", kernels=kernels, auth=entries)
    found = dict(permits.problems(options))
    assert list(found) == [
        "hook",
        "kernels[1].kernel",
        "auth[0].hosts",
        "auth[1].login",
        "auth[4].hosts",
        "auth[5].hosts",
        "auth[6].hosts",
    ]
    assert "https://evil.org/t" in found["auth[5].hosts"]
    assert "GREENCRAWL_AUTH_PLAIN_HOSTS" in found["auth[4].hosts"]
