"""OAuth 1.0a: a server checks each signed request; the three legs; refusals."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from urllib.parse import quote

import pytest
import requests
from oauthlib.oauth1 import Client

from greencrawl.schema.net import providers
from greencrawl.schema.net.urls import canonicalise
from greencrawl.schema.records import Fetched
from greencrawl.schema.records.auth import OAuth1, Source
from greencrawl.worker.auth.base import Grant, LoginFailed, LoginRefused
from greencrawl.worker.auth.kinds.oauth1 import OUT_OF_BAND, OAuth1Kind
from greencrawl.worker.extract.listing import Listing
from tests.support.api import Reply, reply
from tests.support.twitter import PROTECTED, USER, Twitter, entry_secrets

AGENT = {"user-agent": "t/1"}


@pytest.fixture
def twitter() -> Iterator[Twitter]:
    with Twitter() as api:
        yield api


def entry(twitter: Twitter, **given: Any) -> OAuth1:
    made = {"name": "tw", "hosts": (twitter.origin,), "provider": "twitter", "base": twitter.origin}
    return OAuth1(**{**made, **given})


def client_only(twitter: Twitter) -> dict[str, str]:
    return {"client_key": twitter.key, "client_secret": twitter.key_secret}


def ask(kind: OAuth1Kind, url: str, grant: Grant | None = None) -> requests.Response:
    url, headers = kind.prove(canonicalise(url), AGENT, grant)
    assert headers["user-agent"] == "t/1"
    session = requests.Session()
    prepared = session.prepare_request(requests.Request("GET", url, headers=headers))
    prepared.url = url  # byte for byte, as our download sends it
    return session.send(prepared)


def fetched(response: requests.Response) -> Fetched:
    return Fetched(response.url, response.status_code, {}, response.content)


def browser(url: str) -> requests.Response:
    return requests.get(url, allow_redirects=False, timeout=10)


@pytest.mark.parametrize("signature", ["HMAC-SHA1", "HMAC-SHA256", "PLAINTEXT"])
@pytest.mark.parametrize(
    "query",
    [
        f"user_id={USER}&count=5",
        f"user_id={USER}&count=5&exclude_replies=a+b%20c%2Bd%26&trim_user=",
        f"user_id={USER}&screen_name=%E5%BE%AE%E5%8D%9A&max_id=1700000000000000000",
        f"user_id={USER}&screen_name=a[0]|{{b}}^`",
        f"user_id={USER}&screen_name=100%&since_id=%zz",
        f"user_id={USER}&screen_name='(*)!~;/?:@,$",
    ],
)
def test_signature_of_any_query_is_what_the_server_expects(
    twitter: Twitter, signature: Any, query: str
) -> None:
    kind = OAuth1Kind(entry(twitter, signature=signature), entry_secrets(twitter))
    answer = ask(kind, twitter.url(f"/1.1/statuses/user_timeline.json?{query}"))
    assert answer.status_code == 200, answer.text
    assert kind.judge(fetched(answer), None) == "in"
    assert not twitter.complaints


def test_each_request_has_a_signature_of_its_own(twitter: Twitter) -> None:
    kind = OAuth1Kind(entry(twitter), entry_secrets(twitter))
    url = twitter.url(f"/2/users/{USER}/tweets")
    assert [ask(kind, url).status_code for _ in range(3)] == [200, 200, 200]
    assert len({call.authorization for call in twitter.asked(f"/2/users/{USER}/tweets")}) == 3


def test_verdict_is_out_for_a_wrong_secret_but_not_for_protected_tweets(twitter: Twitter) -> None:
    kind = OAuth1Kind(entry(twitter), entry_secrets(twitter) | {"token_secret": "wrong"})
    url = twitter.url("/1.1/statuses/user_timeline.json?user_id=")
    answer = ask(kind, url + USER)
    assert answer.status_code == 401
    assert kind.judge(fetched(answer), None) == "out"
    kind = OAuth1Kind(entry(twitter), entry_secrets(twitter))
    answer = ask(kind, url + PROTECTED)
    assert answer.status_code == 401
    assert kind.judge(fetched(answer), None) == "in"


def test_timeline_without_a_cursor_of_its_own_is_read_to_its_end(twitter: Twitter) -> None:
    """In version 1.1 (docs/sources.md) the next page begins with the last tweet of this one."""
    kind = OAuth1Kind(entry(twitter), entry_secrets(twitter))
    url = twitter.url(f"/1.1/statuses/user_timeline.json?user_id={USER}&count=10")
    items = "[*].join('', ['/1.1/statuses/show.json?id=', id_str])"
    timeline = Listing(Source(url=url, items=items, next="[-1].id_str", cursor="max_id"))
    pages, found = 0, set()
    while url:
        listed = timeline.read(ask(kind, url).content, url)
        found |= {item.rpartition("=")[2] for item in listed.items}
        pages, url = pages + 1, listed.next
    assert found == set(twitter.tweets)
    assert pages == 4
    assert not twitter.complaints


def test_existing_authorization_header_is_replaced(twitter: Twitter) -> None:
    kind = OAuth1Kind(entry(twitter), entry_secrets(twitter))
    _, headers = kind.prove(twitter.url(), {"Authorization": "Basic x"}, None)
    assert [name for name in headers if name.lower() == "authorization"] == ["authorization"]
    assert headers["authorization"].startswith("OAuth ")


@pytest.mark.parametrize("way", ["callback", "pin"])
def test_three_legs_of_oauth1_bring_a_token_that_signs_requests(twitter: Twitter, way: str) -> None:
    kind = OAuth1Kind(entry(twitter), client_only(twitter))
    assert kind.logs_in
    session = requests.Session()
    redirect = OUT_OF_BAND if way == "pin" else "http://127.0.0.1:9/back"
    asked = kind.authorize(session, redirect)
    came = browser(asked.url)
    answer = came.text if way == "pin" else came.headers["Location"]
    grant = kind.exchange(session, asked, answer)
    assert grant.account == twitter.key
    assert grant.token["screen_name"] == "somebody"
    assert ask(kind, twitter.url(f"/2/users/{USER}/tweets"), grant).status_code == 200
    assert not twitter.complaints


def test_answer_to_another_request_for_consent_is_refused(twitter: Twitter) -> None:
    kind = OAuth1Kind(entry(twitter), client_only(twitter))
    session = requests.Session()
    asked = kind.authorize(session, "http://127.0.0.1:9/back")
    for answer in ("http://127.0.0.1:9/back?oauth_token=other&oauth_verifier=1234567", "", "1234"):
        with pytest.raises(LoginRefused, match="not to this question"):
            kind.exchange(session, asked, answer)
    with pytest.raises(LoginRefused, match="no oauth_verifier"):
        kind.exchange(session, asked, f"http://127.0.0.1:9/back?oauth_token={asked.state}")
    with pytest.raises(LoginRefused, match="consent was not given"):
        kind.exchange(session, asked, f"http://127.0.0.1:9/back?denied={asked.state}")
    assert not twitter.asked("/oauth/access_token")


def test_wrong_pin_and_wrong_client_are_refused_without_showing_secrets(twitter: Twitter) -> None:
    session = requests.Session()
    kind = OAuth1Kind(entry(twitter), client_only(twitter))
    asked = kind.authorize(session, OUT_OF_BAND)
    browser(asked.url)
    with pytest.raises(LoginRefused, match="access_token_url answered HTTP 401"):
        kind.exchange(session, asked, "0000000")
    wrong = OAuth1Kind(entry(twitter), {"client_key": twitter.key, "client_secret": "wrong-one"})
    with pytest.raises(LoginRefused) as caught:
        wrong.authorize(session, OUT_OF_BAND)
    assert "Could not authenticate you" in str(caught.value)
    assert "wrong-one" not in str(caught.value)
    assert twitter.key not in str(caught.value)


def test_refusal_names_the_difference_between_the_clocks(twitter: Twitter) -> None:
    late = {"Date": "Sat, 01 Jan 2000 00:00:00 GMT"}
    twitter.instead = [Reply(401, b"timestamp refused", late)]
    kind = OAuth1Kind(entry(twitter), client_only(twitter))
    with pytest.raises(
        LoginRefused, match=r"clocks of this machine and the provider's differ by \d+"
    ):
        kind.authorize(requests.Session(), OUT_OF_BAND)
    near = {"Date": format_datetime(datetime.now(UTC) - timedelta(seconds=60))}
    twitter.instead = [Reply(401, b"timestamp refused", near)]
    with pytest.raises(LoginRefused, match="are client_key and client_secret right"):
        kind.authorize(requests.Session(), OUT_OF_BAND)


def test_older_protocol_without_confirmed_callback_is_refused(twitter: Twitter) -> None:
    twitter.instead = [Reply(200, b"oauth_token=abcdefgh&oauth_token_secret=abcdefgh")]
    kind = OAuth1Kind(entry(twitter), client_only(twitter))
    with pytest.raises(LoginRefused, match="did not confirm"):
        kind.authorize(requests.Session(), OUT_OF_BAND)


def test_authorization_is_refused_after_a_redirect_and_fails_for_now_after_a_503(
    twitter: Twitter,
) -> None:
    kind = OAuth1Kind(entry(twitter), client_only(twitter))
    twitter.instead = [Reply(302, headers={"Location": "http://elsewhere.example/token?x=1"})]
    with pytest.raises(LoginRefused, match=r"redirects to http://elsewhere\.example: write"):
        kind.authorize(requests.Session(), OUT_OF_BAND)
    twitter.instead = [Reply(503, headers={"Retry-After": "7"})]
    with pytest.raises(LoginFailed) as caught:
        kind.authorize(requests.Session(), OUT_OF_BAND)
    assert caught.value.failure.retry_after == 7
    assert len(twitter.calls) == 2


def test_oauth1_token_can_be_renewed_only_by_a_person(twitter: Twitter) -> None:
    kind = OAuth1Kind(entry(twitter), client_only(twitter))
    with pytest.raises(LoginRefused, match=r"nobody has given consent.*`greencrawl login tw`"):
        kind.log_in(requests.Session(), None)
    old = Grant(account="x", generation=1, made_ms=1, token={"oauth_token": "t"})
    with pytest.raises(LoginRefused, match=r"no longer accepted.*`greencrawl login tw`"):
        kind.log_in(requests.Session(), old)
    assert not twitter.calls


def test_plain_http_is_refused_unless_hosts_names_it(twitter: Twitter) -> None:
    kind = OAuth1Kind(entry(twitter, hosts=("127.0.0.7",)), client_only(twitter))
    with pytest.raises(LoginRefused, match="without TLS"):
        kind.authorize(requests.Session(), OUT_OF_BAND)
    none = OAuth1Kind(OAuth1(name="x", hosts=("a.example",)), client_only(twitter))
    with pytest.raises(LoginRefused, match="authorize_url is missing"):
        none.authorize(requests.Session(), OUT_OF_BAND)
    assert not twitter.calls


def test_endpoints_of_twitter_are_those_that_it_documents() -> None:
    at = providers.oauth1(OAuth1(name="tw", hosts=("api.x.com",), provider="twitter"))
    assert at.request_token_url == "https://api.x.com/oauth/request_token"
    assert at.authorize_url == "https://api.x.com/oauth/authorize"
    assert at.access_token_url == "https://api.x.com/oauth/access_token"
    old = OAuth1(name="tw", hosts=("api.twitter.com",), provider="twitter", base="api.twitter.com")
    assert providers.oauth1(old).access_token_url == "https://api.twitter.com/oauth/access_token"


def test_signing_follows_the_specification() -> None:
    """Compare with oauthlib; its authors test it with RFC 5849's own examples."""
    kind = OAuth1Kind(
        OAuth1(name="x", hosts=("a.example",)),
        {"client_key": "k", "client_secret": "s", "token": "t", "token_secret": "u"},
    )
    _, headers = kind.prove("https://a.example/?q=[x]&p=100%", {}, None)
    parts = dict(p.split("=", 1) for p in headers["authorization"][6:].split(", "))
    client = Client(
        "k",
        "s",
        "t",
        "u",
        nonce=parts["oauth_nonce"].strip('"'),
        timestamp=parts["oauth_timestamp"].strip('"'),
    )
    query = f"q={quote('[x]')}&p={quote('100%')}"
    _, made, _ = client.sign(f"https://a.example/?{query}")
    assert made["Authorization"] == headers["authorization"]


def test_answer_that_holds_no_token_is_refused(twitter: Twitter) -> None:
    kind = OAuth1Kind(entry(twitter), client_only(twitter))
    for body in (
        b"oauth_callback_confirmed=true",
        b"oauth_callback_confirmed=true&oauth_token=%0A",
    ):
        twitter.instead = [Reply(200, body)]
        with pytest.raises(LoginRefused, match="no token that a header can carry"):
            kind.authorize(requests.Session(), OUT_OF_BAND)
    twitter.instead = [reply(403, {"errors": [{"message": "Callback not approved", "code": 415}]})]
    with pytest.raises(LoginRefused, match=r"HTTP 403 \(Callback not approved\)"):
        kind.authorize(requests.Session(), OUT_OF_BAND)
