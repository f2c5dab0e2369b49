"""The modules and secrets that a command permits to its own processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from greencrawl.cli.local import permits
from greencrawl.schema import settings
from greencrawl.schema.net.permits import Permits
from greencrawl.schema.records import CrawlOptions
from greencrawl.schema.records.auth import Basic, Form, Own
from greencrawl.schema.settings import Settings

MINE = CrawlOptions(
    hook="mine",
    auth=(
        Form(name="shop", hosts=("a.org",), login_url="https://id.b.org/login"),
        Own(name="own", hosts=("c.org",), login="logins:Mine"),
        Basic(name="filed", hosts=("d.org",)),
        Basic(name="set", hosts=("e.org",)),
    ),
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    file = tmp_path / "credentials.toml"
    file.touch(mode=0o600)
    file.write_text(
        '[filed]\nusername="a"\npassword="b"\nhosts="d.org, x.org"\n[set]\nhosts="no.org"\n'
        '["https://z.org"]\nusername="a"\npassword="b"\n'
    )
    monkeypatch.setenv("GREENCRAWL_AUTH_SET_HOSTS", "e.org")
    return settings.load({}, data=str(tmp_path), hooks="given")


def test_a_command_permits_its_own_crawl_and_no_other(here: Settings) -> None:
    variables = permits.of_crawls(here, [MINE])
    assert "b" not in variables.values(), "passwords are not for brokers"
    environ = {"GREENCRAWL_AUTH_SET_HOSTS": "e.org", **variables}
    given = Permits.of(settings.load(environ), environ)
    assert list(given.problems(MINE)) == []
    for elsewhere in (
        CrawlOptions(hook="os"),
        CrawlOptions(auth=(Basic(name="shop", hosts=("evil.org",)),)),
        CrawlOptions(auth=(Basic(name="filed", hosts=("evil.org",)),)),
        CrawlOptions(auth=(Basic(name="other", hosts=("a.org",)),)),
    ):
        assert list(given.problems(elsewhere))
    assert given.module("given") == ""


def test_a_command_sets_no_permits_if_there_are_tokens(here: Settings) -> None:
    guarded = settings.load({}, data=str(here.data), worker_token="w", admin_token="a")
    assert permits.of_crawls(guarded, [MINE]) == {}


def test_up_passes_the_hosts_of_the_credentials_file_to_its_broker(here: Settings) -> None:
    assert permits.of_file(here) == {"GREENCRAWL_AUTH_FILED_HOSTS": "d.org, x.org"}
