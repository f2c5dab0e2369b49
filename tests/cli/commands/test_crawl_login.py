"""``greencrawl crawl`` of a site with a login form: the output for a person when the login
fails."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands.test_crawl import Command, command, end, summary
from tests.support.effort import by_night
from tests.support.login_site import NAME, PASSWORD, LoginSite

__all__ = ["command"]  # a fixture


@pytest.fixture
def site() -> Iterator[LoginSite]:
    with LoginSite() as serving:
        yield serving


def described(folder: Path, site: LoginSite) -> str:
    """Return a file that describes the crawl."""
    file = folder / "shop.toml"
    file.write_text(
        f"""seeds = ["{site.url("/in/a")}", "{site.url("/in/b")}"]
        delay = 0
        [[auth]]
        kind = "form"
        name = "shop"
        hosts = ["{site.origin}"]
        login_url = "{site.url("/login")}"
        """
    )
    return str(file)


def test_secrets_that_are_missing_are_named_before_anything_starts(
    command: Command, site: LoginSite
) -> None:
    code, _, err = command.run("crawl", described(command.folder, site))
    assert code == 2
    assert "GREENCRAWL_AUTH_SHOP_USERNAME" in err
    assert "GREENCRAWL_AUTH_SHOP_PASSWORD" in err
    assert "credentials.toml" in err
    assert not site.log
    assert not (command.folder / "data" / "redis").exists()


def test_an_auth_entry_is_named_if_no_seed_is_on_its_hosts(
    command: Command, site: LoginSite
) -> None:
    file = Path(described(command.folder, site))
    bare = site.origin.removeprefix("http://")
    file.write_text(file.read_text().replace(f'hosts = ["{site.origin}"]', f'hosts = ["{bare}"]'))
    text = file.read_text().replace(f'"{site.url("/login")}"', f'"https://{bare}/login"')
    file.write_text(text)
    secrets = {"auth_shop_username": NAME, "auth_shop_password": PASSWORD}
    code, _, err = command.run("crawl", str(file), "--processes", "1", **secrets)
    assert code == 0
    assert f"auth shop: no seed is on its hosts ({bare})" in err


@by_night
def test_a_crawl_reports_a_wrong_password_and_resumes_with_the_right_one(
    command: Command, site: LoginSite
) -> None:
    # The site answers every request with a page, also for /sitemap.xml.
    given = ("--processes", "1", "--sitemaps", "off")
    arguments = ("crawl", described(command.folder, site), *given)
    process = command.start(
        *arguments, auth_shop_username=NAME, auth_shop_password="not the right one"
    )
    assert process.stderr is not None
    said = ""
    while "correct that" not in said:
        line = process.stderr.readline()
        assert line, f"it ended: {said}"
        said += line
    process.send_signal(signal.SIGINT)
    assert end(process)[0] == 130
    assert "127.0.0.1" in said
    assert "auth shop" in said
    assert "that is wrong" in said, "what the page said"
    assert "not the right one" not in said
    told = command.run("explain", site.url("/in/a"))[1]
    assert "Not fetched: the login auth shop was refused at 2" in told, told
    assert "that is wrong" in told
    assert "`greencrawl login shop`" in told
    posts = [asked for asked in site.log if asked.method == "POST"]
    assert len(posts) == 1
    assert not [asked for asked in site.log if asked.path.startswith("/in/")]

    again = command.run(
        *arguments, "--summary", "s.json", auth_shop_username=NAME, auth_shop_password=PASSWORD
    )
    assert again[0] == 0, again[2]
    assert summary(command.folder / "s.json")["pages"] == 2
    assert site.logins == 1
