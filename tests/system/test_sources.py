"""Whole crawls of JSON APIs by the command: the shipped examples with local providers."""

from __future__ import annotations

import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from greencrawl.schema.records import StoredPage
from greencrawl.store import open_store
from tests.cli.commands.test_crawl import Command, command, end, summary, until
from tests.support.api import ApiServer, Call, Reply, reply
from tests.support.checkout import ROOT
from tests.support.effort import by_night
from tests.support.twitter import USER, Twitter, too_fast
from tests.support.weibo import Weibo

__all__ = ["command"]
EXAMPLES = ROOT / "examples"
TIMELINE = "/2/statuses/user_timeline.json"


@pytest.fixture
def twitter() -> Iterator[Twitter]:
    with Twitter(tweets=23) as api:
        yield api


@pytest.fixture
def weibo() -> Iterator[Weibo]:
    with Weibo(statuses=23) as api:
        yield api


def example(command: Command, name: str, origin: str, *changes: tuple[str, str]) -> str:
    """Return the shipped file, with a local provider instead of the real one and with shorter
    pages."""
    text = (EXAMPLES / f"{name}.toml").read_text()
    host = re.search(r'hosts = \["(.*)"\]', text)
    assert host is not None
    for old, new in (
        (f'"{host[1]}"', f'"{origin}"'),
        (f"https://{host[1]}/", f"{origin}/"),
        (f'provider = "{name}"\n', f'provider = "{name}"\nbase = "{origin}"\n'),
        ("=100&", "=5&"),
        *changes,
    ):
        assert old in text, old
        text = text.replace(old, new)
    text = re.sub("delay = .*", "delay = 0", text)
    file = command.folder / f"{name}.toml"
    file.write_text(text)
    return str(file)


def crawl(command: Command, file: str, processes: int = 1, **settings: str) -> dict[str, Any]:
    """Crawl to the end; return the summary."""
    arguments = ("crawl", file, "--processes", str(processes), "--summary", "s.json")
    code, out, err = command.run(*arguments, **settings)
    assert code == 0, err
    told = {**summary(command.folder / "s.json"), "said": out + err}
    assert told["dead"] == 0, told
    return told


def stored(command: Command, name: str) -> list[StoredPage]:
    store = open_store(f"sqlite:///{command.folder / 'data' / 'content.sqlite'}")
    try:
        return [page for _, page in store.pages(store.crawl(name).id, detail="body")]
    finally:
        store.close()


def consent(command: Command, *arguments: str, answer: bool, **settings: str) -> None:
    """Run ``greencrawl login``: open the address that it prints, and bring the answer back."""
    process: subprocess.Popen[str] = command.start("login", *arguments, **settings)
    assert process.stdout is not None
    line = ""
    while not line.startswith("http"):
        line = process.stdout.readline()
        assert line, process.communicate(timeout=30)
    came = requests.get(line.strip(), allow_redirects=False, timeout=10)
    back = came.headers["Location"]
    if not answer:
        requests.get(back, timeout=10)
    code, out, err = end(process, f"{back}\n" if answer else "")
    assert code == 0, (out, err)
    assert "in: auth" in out


# -- a list, and nothing else


def test_a_json_list_is_followed_to_its_end_and_each_url_is_fetched_once(command: Command) -> None:
    names = [f"/item/{number}" for number in range(30)]

    def page(call: Call) -> Reply:
        start = int(call.given.get("from", "0"))
        more = start + 7 if start + 7 < len(names) else None
        listed = [{"url": name} for name in names[start : start + 7]]
        return reply(200, {"found": listed, "more": more or 7})  # at the end it starts again

    with ApiServer("127.0.0.9") as api:
        item = reply(200, {"a": 1})
        api.routes = [("GET", "/list", page), ("GET", r"/item/\d+", lambda _: item)]
        file = command.folder / "list.toml"
        file.write_text(
            f'delay = 0\n[[sources]]\nurl = "{api.url("/list?n=7")}"\n'
            'items = "found[].url"\nnext = "more"\ncursor = "from"\n'
        )
        told = crawl(command, str(file))
        assert told["pages"] == 30 + 5
        assert set(Counter(call.url for call, _ in api.calls).values()) == {1}
        pages = {page.url: page.depth for page in stored(command, "list")}
    assert {url for url, depth in pages.items() if depth} == {api.url(name) for name in names}
    assert pages[api.url("/list?n=7&from=28")] == 0


# -- Twitter


def fetched_tweets(command: Command, twitter: Twitter) -> None:
    pages = {page.url: page for page in stored(command, "twitter")}
    for number in twitter.tweets:
        assert number.encode() in pages[twitter.url(f"/2/tweets/{number}")].body
    lists = [url for url in pages if f"/users/{USER}/" in url]
    assert len(pages) == len(twitter.tweets) + len(lists)
    assert len(lists) == 5
    assert twitter.complaints == []


def test_all_worker_processes_crawl_twitter_with_one_token(
    command: Command, twitter: Twitter
) -> None:
    secrets = {
        "auth_twitter_client_id": twitter.client_id,
        "auth_twitter_client_secret": twitter.client_secret,
    }
    told = crawl(command, example(command, "twitter", twitter.origin), 2, **secrets)
    fetched_tweets(command, twitter)
    assert len(twitter.asked("/oauth2/token")) == 1
    assert not any(secret in told["said"] for secret in twitter.secrets())


@by_night
def test_twitter_is_crawled_with_a_signature_of_its_own_for_each_request(
    command: Command, twitter: Twitter
) -> None:
    changes = ('kind = "oauth2"', 'kind = "oauth1"')
    file = example(command, "twitter", twitter.origin, changes)
    secrets = {
        "auth_twitter_client_key": twitter.key,
        "auth_twitter_client_secret": twitter.key_secret,
        "auth_twitter_token": twitter.token,
        "auth_twitter_token_secret": twitter.token_secret,
    }
    crawl(command, file, **secrets)
    fetched_tweets(command, twitter)
    signed = [call.authorization for call, _ in twitter.calls if call.path != "/robots.txt"]
    assert len(set(signed)) == len(signed)


@by_night
def test_twitter_is_crawled_with_a_persons_consent_and_expiring_tokens(
    command: Command, twitter: Twitter
) -> None:
    twitter.lasts = 3
    scopes = 'scopes = ["tweet.read", "users.read", "offline.access"]'
    changes = ('kind = "oauth2"', f'kind = "oauth2"\ngrant = "code"\n{scopes}')
    file = example(command, "twitter", twitter.origin, changes)
    secrets = {
        "auth_twitter_client_id": twitter.client_id,
        "auth_twitter_client_secret": twitter.client_secret,
    }
    consent(command, "twitter", file, answer=False, **secrets)
    until(lambda: max(twitter.user_tokens.values()) < time.time(), "the token has expired")
    crawl(command, file, **secrets)
    fetched_tweets(command, twitter)
    used = [call.given["grant_type"] for call in twitter.asked("/2/oauth2/token")]
    assert used[:2] == ["authorization_code", "refresh_token"]
    refused = [call for call, status in twitter.calls if status == 400]
    assert refused == []


@by_night
def test_a_crawl_waits_for_the_rate_limit_of_twitter(command: Command, twitter: Twitter) -> None:
    secrets = {
        "auth_twitter_client_id": twitter.client_id,
        "auth_twitter_client_secret": twitter.client_secret,
    }
    path = f"/2/users/{USER}/tweets"

    def page(call: Call) -> Reply:
        return too_fast(3) if len(twitter.asked(path)) == 1 else twitter.tweets_page(call)

    twitter.routes.insert(0, ("GET", r"/2/users/\d+/tweets", page))
    crawl(command, example(command, "twitter", twitter.origin), **secrets)
    fetched_tweets(command, twitter)
    assert [status for _, status in twitter.calls].count(429) == 1


# -- Weibo


def login_weibo(command: Command, weibo: Weibo, file: str, secrets: dict[str, str]) -> None:
    arguments = ("weibo", file, "--paste", "--redirect-uri", weibo.redirect_uri)
    consent(command, *arguments, answer=True, **secrets)


def weibo_secrets(weibo: Weibo) -> dict[str, str]:
    return {"auth_weibo_client_id": weibo.key, "auth_weibo_client_secret": weibo.secret}


@by_night
def test_weibo_is_crawled_with_a_persons_consent(command: Command, weibo: Weibo) -> None:
    file, secrets = example(command, "weibo", weibo.origin), weibo_secrets(weibo)
    login_weibo(command, weibo, file, secrets)
    told = crawl(command, file, **secrets)
    pages = {page.url: page for page in stored(command, "weibo")}
    for number in weibo.statuses:
        assert str(number).encode() in pages[weibo.url(f"/2/statuses/show.json?id={number}")].body
    assert len(pages) == told["pages"] == 23 + 5
    assert weibo.complaints == []
    assert len(weibo.tokens) == 1
    assert not any(secret in told["said"] for secret in weibo.secrets())
    kept = (command.folder / "data" / "logins").glob("*.json")
    assert [one.stat().st_mode & 0o777 for one in kept] == [0o600]


def test_a_crawl_of_weibo_asks_for_consent_and_goes_on_after_it(
    command: Command, weibo: Weibo
) -> None:
    file, secrets = example(command, "weibo", weibo.origin), weibo_secrets(weibo)
    process = command.start("crawl", file, "--processes", "1", **secrets)
    first = weibo.url(f"{TIMELINE}?uid=1404376560&count=5&trim_user=1")
    told = "run `greencrawl login weibo"
    until(lambda: told in command.here("explain", first)[1], "explain says what to do", 30)
    assert weibo.asked(TIMELINE) == []
    login_weibo(command, weibo, file, secrets)
    code, _, err = end(process)
    assert code == 0, err
    assert len(stored(command, "weibo")) == 23 + 5
