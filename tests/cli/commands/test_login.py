"""``greencrawl login``: success, or refusal and its reason; consent; what is kept and deleted."""

from __future__ import annotations

import html
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import gevent
import pytest
import requests

from greencrawl.cli.main import main
from tests.support import lighttpd
from tests.support.checkout import ROOT
from tests.support.django_site.rig import USERNAME, DjangoSite
from tests.support.effort import by_night
from tests.support.lighttpd import Lighttpd
from tests.support.oauth1_site import OAuth1Site
from tests.support.redis_server import RedisServer
from tests.support.system import System, wait_until


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DjangoSite]:
    with DjangoSite(tmp_path_factory.mktemp("django") / "site", articles=5) as site:
        yield site


class Terminal:
    """A person's terminal: a data folder, a crawl's file, and an environment."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.file = folder / "crawl.toml"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("GREENCRAWL_")}
        self.environ = {**kept, "GREENCRAWL_DATA": str(self.data), "BROWSER": "false"}
        self.environ["GREENCRAWL_ALLOW_NETWORKS"] = "127.0.0.0/8"
        self.said = ""

    def entry(self, seeds: Sequence[str], **entry: object) -> None:
        """Write the crawl's file, with one entry."""
        lines = [f"seeds = {json.dumps(seeds)}", "[[auth]]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in entry.items()]
        self.file.write_text("\n".join(lines))

    def secret(self, **values: str) -> None:
        for name, value in values.items():
            self.environ[f"GREENCRAWL_AUTH_{name.upper()}"] = value

    def login(self, *arguments: str, typed: str = "") -> int:
        """Run the command in this process; its output is in ``said``."""
        out = io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            gevent.Timeout(60),
            redirect_stdout(out),
            redirect_stderr(out),
        ):
            for name in os.environ.keys() - self.environ.keys():
                patch.delenv(name)
            for name, value in self.environ.items():
                patch.setenv(name, value)
            patch.chdir(ROOT)
            patch.setattr(sys, "stdin", io.StringIO(typed))
            code = main(["login", *arguments])
        self.said = out.getvalue()
        assert "Traceback" not in self.said
        return code

    def begun(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the command; its output and input are pipes."""
        return subprocess.Popen(
            self._command(*arguments),
            cwd=ROOT,
            env=self.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-u", "-m", "greencrawl.cli", "login", *arguments]


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def members(terminal: Terminal, site: DjangoSite) -> None:
    terminal.entry(
        [site.url("/members/")],
        kind="form",
        name="club",
        hosts=[site.origin()],
        login_url=site.url("/members/login"),
    )
    terminal.secret(club_username=USERNAME, club_password=site.password)


def forum(terminal: Terminal, site: DjangoSite) -> None:
    terminal.entry(
        [site.url("/api/items/1")],
        kind="oauth2",
        grant="code",
        name="forum",
        hosts=[site.origin()],
        authorize_url=site.url("/o/authorize/"),
        token_url=site.url("/o/token/"),
        scopes=["read"],
    )
    terminal.secret(forum_client_id=site.person_id, forum_client_secret=site.person_secret)


# -- in, or refused


def test_a_successful_login_is_reported_and_kept_for_the_workers(
    terminal: Terminal, site: DjangoSite
) -> None:
    members(terminal, site)
    assert terminal.login("club", str(terminal.file), "--status") == 0
    assert "nothing is kept" in terminal.said
    assert not terminal.data.exists(), "looking makes nothing"
    before = len(site.logins())
    assert terminal.login("club", str(terminal.file)) == 0
    assert f"in: auth club as {USERNAME}; {site.url('/members/')} answers 200" in terminal.said
    assert len(site.logins()) == before + 1
    (kept,) = (terminal.data / "logins").glob("club-*.json")
    assert kept.stat().st_mode & 0o777 == 0o600
    assert terminal.login("club", str(terminal.file), "--status") == 0
    assert f"logged in as {USERNAME}" in terminal.said
    assert str(kept) in terminal.said
    assert not any(secret in terminal.said for secret in site.secrets())
    assert terminal.login("club", str(terminal.file), "--forget") == 0
    assert not kept.exists()
    assert terminal.login("club", str(terminal.file), "--status") == 0
    assert "nothing is kept" in terminal.said


def test_a_login_with_a_wrong_password_is_refused_and_not_kept(
    terminal: Terminal, site: DjangoSite
) -> None:
    members(terminal, site)
    terminal.secret(club_password="a-wrong-password")
    assert terminal.login("club", str(terminal.file)) == 1
    assert "refused: " in terminal.said
    assert "a-wrong-password" not in terminal.said
    assert not list((terminal.data / "logins").glob("club-*.json"))


def test_a_missing_secret_is_named(terminal: Terminal, site: DjangoSite) -> None:
    members(terminal, site)
    del terminal.environ["GREENCRAWL_AUTH_CLUB_PASSWORD"]
    assert terminal.login("club", str(terminal.file)) == 2
    assert "GREENCRAWL_AUTH_CLUB_PASSWORD" in terminal.said
    assert str(terminal.data / "credentials.toml") in terminal.said
    terminal.data.mkdir(exist_ok=True)
    file = terminal.data / "credentials.toml"
    file.touch(0o600)
    file.write_text(f"[club]\npassword = {json.dumps(site.password)}\n")
    assert terminal.login("club", str(terminal.file)) == 0


def test_a_login_that_does_not_open_the_page_is_refused(
    terminal: Terminal, site: DjangoSite
) -> None:
    terminal.entry([site.url("/api/items/1")], kind="bearer", name="key", hosts=[site.origin()])
    terminal.secret(key_token="no-such-token")
    assert terminal.login("key", str(terminal.file)) == 1
    assert f"refused: {site.url('/api/items/1')} answers 401" in terminal.said
    assert "no-such-token" not in terminal.said
    assert terminal.login("key", str(terminal.file), "--url", site.url("/")) == 0
    assert terminal.login("key", str(terminal.file), "--url", "https://example.org/") == 1
    assert "is not on the hosts of auth key" in terminal.said


def test_a_machine_gets_its_token_without_the_consent_of_a_person(
    terminal: Terminal, site: DjangoSite
) -> None:
    terminal.entry(
        [site.url("/api/items/1")],
        kind="oauth2",
        name="api",
        hosts=[site.origin()],
        token_url=site.url("/o/token/"),
        scopes=["read"],
    )
    terminal.secret(api_client_id=site.machine_id, api_client_secret=site.machine_secret)
    assert terminal.login("api", str(terminal.file)) == 0
    assert f"in: auth api as {site.machine_id}" in terminal.said
    terminal.secret(api_client_secret="another-secret")
    assert terminal.login("api", str(terminal.file)) == 1
    assert "refused: " in terminal.said
    assert not any(secret in terminal.said for secret in site.secrets() | {"another-secret"})


@pytest.mark.parametrize(("kind", "way"), [("basic", "basic"), ("digest", "SHA-256")])
def test_a_kind_of_auth_without_a_login_is_tried_on_a_page(
    terminal: Terminal, tmp_path: Path, kind: str, way: str
) -> None:
    with Lighttpd(tmp_path / "archive") as archive:
        terminal.entry([archive.url(way)], kind=kind, name="old", hosts=[archive.url(way, "")])
        terminal.secret(old_username=lighttpd.USERNAME, old_password=archive.password)
        assert terminal.login("old", str(terminal.file)) == 0, terminal.said
        assert f"{archive.url(way)} answers 200" in terminal.said
        terminal.secret(old_password="not-that-one")
        assert terminal.login("old", str(terminal.file)) == 1
        assert "answers 401" in terminal.said
    assert not list((terminal.data / "logins").glob("old-*"))


def test_a_login_fails_if_no_seed_is_on_the_hosts_of_its_entry(
    terminal: Terminal, site: DjangoSite
) -> None:
    bare = site.origin().removeprefix("http://")  # https, since `hosts` says so
    terminal.entry([site.url("/")], kind="basic", name="old", hosts=[bare])
    terminal.secret(old_username="a-name", old_password="a-password")
    assert terminal.login("old", str(terminal.file)) == 1
    assert f"no seed is on its hosts (https://{bare})" in terminal.said
    assert "--url" in terminal.said


def test_a_login_is_tried_on_a_source_whose_url_has_no_path(
    terminal: Terminal, site: DjangoSite
) -> None:
    terminal.entry([], kind="basic", name="old", hosts=[site.origin()])
    terminal.secret(old_username="a-name", old_password="a-password")
    source = f'\n[[sources]]\nurl = "{site.origin()}"\nitems = "urls"\n'
    terminal.file.write_text(terminal.file.read_text() + source)
    assert terminal.login("old", str(terminal.file)) == 0, terminal.said
    assert f"{site.url('/')} answers 200" in terminal.said


def test_a_page_of_another_host_is_refused_before_a_request_is_sent(
    terminal: Terminal, site: DjangoSite
) -> None:
    members(terminal, site)
    before = len(site.logins())
    assert terminal.login("club", str(terminal.file), "--url", "https://example.org/") == 1
    assert "is not on the hosts of auth club" in terminal.said
    assert len(site.logins()) == before


def test_an_unknown_entry_is_answered_with_the_names_of_the_entries(
    terminal: Terminal, site: DjangoSite
) -> None:
    members(terminal, site)
    assert terminal.login("clup", str(terminal.file)) == 1
    assert "there are: club" in terminal.said
    assert terminal.login("club") == 1
    assert "nothing has been crawled" in terminal.said
    assert "`greencrawl login club FILE.toml --data " in terminal.said
    assert terminal.login("club", str(terminal.file), "--crawl", "x") == 2
    assert terminal.login("club", str(terminal.file), "--status", "--forget") == 2
    assert terminal.login("club", "crawl.conf") == 2


def test_a_site_that_is_away_does_not_count_as_a_refused_login(
    terminal: Terminal, site: DjangoSite
) -> None:
    members(terminal, site)
    text = terminal.file.read_text().replace(str(site.port), "1")
    terminal.file.write_text(text.replace("127.0.0.1:1", "127.0.0.1:61"))
    assert terminal.login("club", str(terminal.file)) == 1
    assert "could not be made" in terminal.said
    assert "refused" in terminal.said  # the connection, not the login
    assert "refused: " not in terminal.said


# -- a person's consent


def consent(site: DjangoSite, url: str, follow: bool = True) -> str:
    """Log in at the provider and give consent; return the URL at which the browser ends."""
    browser = requests.Session()
    page = browser.get(url)
    form = {"username": USERNAME, "password": site.password, **hidden(page.text)}
    page = browser.post(page.url, form)
    answer = browser.post(
        page.url, {**hidden(page.text), "allow": "Authorize"}, allow_redirects=False
    )
    target = answer.headers["Location"]
    if follow:
        answer = browser.get(target)
        assert (answer.status_code, "close this window" in answer.text) == (200, True)
    return target


def hidden(page: str) -> dict[str, str]:
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page)
    return {name: html.unescape(value) for name, value in found}


def asked_url(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Return the address that a person has to open, and everything printed so far."""
    assert process.stdout is not None
    said = ""
    with gevent.Timeout(30):
        while (found := re.search(r"^(http://\S+authorize\S*)$", said, re.MULTILINE)) is None:
            line = process.stdout.readline()
            assert line, said
            said += line
    return found[1], said


def ended(process: subprocess.Popen[str], typed: str = "") -> tuple[int, str]:
    said, _ = process.communicate(typed, timeout=30)
    return process.returncode, said


def test_the_answer_of_consent_arrives_from_the_browser_and_a_forged_one_is_ignored(
    terminal: Terminal, site: DjangoSite
) -> None:
    forum(terminal, site)
    process = terminal.begun("forum", str(terminal.file))
    url, _ = asked_url(process)
    query = parse_qs(urlsplit(url).query)
    assert query["code_challenge_method"] == ["S256"]
    back = query["redirect_uri"][0]
    assert requests.get(back, {"code": "stolen", "state": "guessed"}).status_code == 404
    assert requests.get(back, {"code": "stolen"}).status_code == 404
    consent(site, url)
    code, said = ended(process)
    assert code == 0, said
    assert f"in: auth forum as {site.person_id}" in said
    assert f"{site.url('/api/items/1')} answers 200" in said
    assert not any(secret in said for secret in site.secrets())
    assert terminal.login("forum", str(terminal.file), "--status") == 0
    assert "refreshed without asking" in terminal.said
    assert not any(secret in terminal.said for secret in site.secrets())


def test_a_pasted_answer_is_accepted_only_for_its_own_request(
    terminal: Terminal, site: DjangoSite
) -> None:
    forum(terminal, site)
    given = "http://127.0.0.1:54399/callback"
    process = terminal.begun("forum", str(terminal.file), "--paste", "--redirect-uri", given)
    url, _ = asked_url(process)
    assert parse_qs(urlsplit(url).query)["redirect_uri"] == [given]
    target = consent(site, url, follow=False)
    assert target.startswith(given)
    code, said = ended(process, f"{target}\n")
    assert code == 0, said
    # The same answer is now given to another question.
    before = len(site.tokens())
    process = terminal.begun("forum", str(terminal.file), "--paste", "--redirect-uri", given)
    asked_url(process)
    code, said = ended(process, f"{target}\n")
    assert code == 1
    assert "not to this question" in said
    assert len(site.tokens()) == before


def test_a_login_is_refused_if_the_person_denies_consent(
    terminal: Terminal, site: DjangoSite
) -> None:
    forum(terminal, site)
    process = terminal.begun("forum", str(terminal.file))
    url, _ = asked_url(process)
    query = parse_qs(urlsplit(url).query)
    answer = {"error": "access_denied", "state": query["state"][0]}
    assert requests.get(query["redirect_uri"][0], answer).status_code == 200
    code, said = ended(process)
    assert code == 1
    assert "access_denied" in said


def test_the_command_asks_for_the_answer_if_the_redirect_leads_to_another_machine(
    terminal: Terminal, site: DjangoSite
) -> None:
    forum(terminal, site)
    wanted = "https://crawler.example/back"
    process = terminal.begun("forum", str(terminal.file), "--redirect-uri", wanted)
    asked_url(process)
    code, said = ended(process, "")
    assert "The address that the browser ended at" in said
    assert code == 130


@pytest.mark.parametrize("oob", [False, True])
def test_an_oauth_1_login_gets_its_token_in_three_legs(terminal: Terminal, oob: bool) -> None:
    with OAuth1Site() as provider:
        terminal.entry(
            [provider.url("/p/1")],
            kind="oauth1",
            name="signed",
            hosts=[provider.url("").rstrip("/")],
            request_token_url=provider.url("/request_token"),
            authorize_url=provider.url("/authorize"),
            access_token_url=provider.url("/access_token"),
        )
        terminal.secret(
            signed_client_key=provider.client_key, signed_client_secret=provider.client_secret
        )
        way = ["--redirect-uri", "oob"] if oob else []
        process = terminal.begun("signed", str(terminal.file), *way)
        url, _ = asked_url(process)
        answer = requests.post(url)
        code, said = ended(process, f"{answer.text}\n" if oob else "")
        assert code == 0, said
        assert "in: auth signed" in said
        assert provider.asked[-1].status == 200
        assert not any(secret in said for secret in provider.secrets())


# -- with workers


@by_night
def test_a_successful_login_ends_the_block_of_hosts_whose_login_had_failed(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with DjangoSite(tmp_path / "site", articles=5) as site:
        terminal = Terminal(tmp_path)
        system = System(
            tmp_path / "host",
            [redis_server.url],
            secrets={"auth_club_username": USERNAME, "auth_club_password": "wrong"},
        )
        with system:
            entry = {
                "kind": "form",
                "name": "club",
                "hosts": [site.origin()],
                "login_url": site.url("/members/login"),
            }
            system.start().crawl([site.url("/members/")], delay=0, auth=[entry])
            host = site.url("/").split("/")[2]
            wait_until(
                lambda: system.call("GET", f"/v1/hosts/{host}")["blocked_in"] > 3000,
                30,
                "the refused login parks the host",
            )
            terminal.environ |= {
                "GREENCRAWL_DATA": system.variables["DATA"],
                "GREENCRAWL_REDIS": redis_server.url,
                "GREENCRAWL_BROKER": f"http://127.0.0.1:{system.port}",
            }
            terminal.secret(club_username=USERNAME, club_password="wrong too")
            assert terminal.login("club", "--status") == 0
            assert "refused" in terminal.said
            assert terminal.login("club") == 1  # the operator has not permitted the broker's entry
            assert "GREENCRAWL_AUTH_CLUB_HOSTS" in terminal.said
            terminal.secret(club_hosts=site.origin())
            assert terminal.login("club") == 1
            terminal.secret(club_password=site.password)
            assert terminal.login("club") == 0, terminal.said
            assert f"{host} was blocked because the login failed" in terminal.said
            assert system.call("GET", f"/v1/hosts/{host}")["blocked_in"] == 0
            system.wait_done(60)
        assert [one.status for one in site.logins()] == [200, 200, 302], "workers take what it got"


def test_a_login_fails_if_the_configured_redis_does_not_answer(
    tmp_path: Path, redis_server: RedisServer, site: DjangoSite
) -> None:
    """Otherwise workers of this or another host could log in at the same time."""
    terminal = Terminal(tmp_path)
    members(terminal, site)
    with System(tmp_path / "host", [redis_server.url]) as system:
        system.start()
        terminal.environ |= {
            "GREENCRAWL_DATA": system.variables["DATA"],
            "GREENCRAWL_REDIS": redis_server.url,
        }
        before = len(site.logins())
        assert terminal.login("club", str(terminal.file)) == 0
        redis_server.stop()
        assert terminal.login("club", str(terminal.file)) == 1
        assert "Redis at" in terminal.said
        assert len(site.logins()) == before + 1
