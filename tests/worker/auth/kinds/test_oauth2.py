"""OAuth 2.0 against providers that check requests: consent, refresh and reported errors."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import requests

from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.net import providers
from greencrawl.schema.records import Failure, FailureKind, Fetched
from greencrawl.schema.records.auth import OAuth2
from greencrawl.worker.auth.base import Grant, LoginFailed, LoginRefused
from greencrawl.worker.auth.kinds.oauth import ConsentRequest
from greencrawl.worker.auth.kinds.oauth2 import OAuth2Kind
from tests.support.api import Reply, reply
from tests.support.twitter import USER, Twitter
from tests.support.weibo import UID, Weibo

BACK = "http://127.0.0.1:9/back"
SCOPES = ("tweet.read", "users.read", "offline.access")


@pytest.fixture
def twitter() -> Iterator[Twitter]:
    with Twitter() as api:
        yield api


@pytest.fixture
def weibo() -> Iterator[Weibo]:
    with Weibo() as api:
        yield api


def of_twitter(api: Twitter, *, public: bool = False, **given: Any) -> OAuth2Kind:
    made: dict[str, Any] = {"name": "tw", "hosts": (api.origin,), "provider": "twitter"}
    made |= {"base": api.origin, "scopes": SCOPES if given.get("grant") == "code" else ()}
    secrets = {"client_id": api.client_id, "client_secret": api.client_secret}
    if public:
        del secrets["client_secret"]
    return OAuth2Kind(OAuth2(**{**made, **given}), secrets)


def of_weibo(api: Weibo, **given: Any) -> OAuth2Kind:
    made: dict[str, Any] = {"name": "wb", "hosts": (api.origin,), "provider": "weibo"}
    made |= {"base": api.origin, "grant": "code"}
    secrets = {"client_id": api.key, "client_secret": api.secret}
    return OAuth2Kind(OAuth2(**{**made, **given}), secrets)


def consent(kind: OAuth2Kind, redirect_uri: str = BACK) -> tuple[ConsentRequest, str]:
    """Let a person say yes; return what was asked, and the URL that the browser is sent to."""
    asked = kind.authorize(requests.Session(), redirect_uri)
    came = requests.get(asked.url, allow_redirects=False, timeout=10)
    assert came.status_code == 302, came.text
    return asked, came.headers["Location"]


def granted(kind: OAuth2Kind, redirect_uri: str = BACK) -> Grant:
    asked, answer = consent(kind, redirect_uri)
    return kind.exchange(requests.Session(), asked, answer)


def ask(kind: OAuth2Kind, url: str, grant: Grant | None) -> Fetched:
    url, headers = kind.prove(url, {"user-agent": "t/1"}, grant)
    assert headers["user-agent"] == "t/1"
    answer = requests.get(url, headers=headers, timeout=10)
    return Fetched(url, answer.status_code, {}, answer.content)


def tweets(api: Twitter) -> str:
    return api.url(f"/2/users/{USER}/tweets")


def timeline(api: Weibo) -> str:
    return api.url(f"/2/statuses/user_timeline.json?uid={UID}")


# -- client credentials


def test_client_credentials_bring_a_token_that_opens_pages(twitter: Twitter) -> None:
    kind = of_twitter(twitter)
    assert ask(kind, tweets(twitter), None).status == 401
    grant = kind.log_in(requests.Session(), None)
    assert (grant.account, grant.expires_ms) == (twitter.client_id, 0)
    answer = ask(kind, tweets(twitter), grant)
    assert answer.status == 200
    assert kind.judge(answer, grant) == "in"
    assert not twitter.complaints
    [call] = twitter.asked("/oauth2/token")
    assert call.basic == (twitter.client_id, twitter.client_secret)
    assert twitter.client_secret not in call.body


def test_refusal_of_a_wrong_client_does_not_show_its_secret(twitter: Twitter) -> None:
    kind = of_twitter(twitter)
    kind._secret = "a-wrong-secret"
    with pytest.raises(LoginRefused) as caught:
        kind.log_in(requests.Session(), None)
    said = str(caught.value)
    assert "HTTP 403, authenticity_token_error (Unable to verify your credentials)" in said
    assert "a-wrong-secret" not in said


def test_client_secret_is_sent_in_the_body_if_configured_and_never_by_a_public_client(
    weibo: Weibo, twitter: Twitter
) -> None:
    twitter.instead = [reply(200, {"access_token": "t"})] * 2
    of_twitter(twitter, client_auth="body").log_in(requests.Session(), None)
    of_twitter(twitter, public=True).log_in(requests.Session(), None)
    body, public = (call.given for call in twitter.asked("/oauth2/token"))
    assert body["client_id"] == public["client_id"] == twitter.client_id
    assert body["client_secret"] == twitter.client_secret
    assert "client_secret" not in public
    assert not any(call.authorization for call in twitter.asked("/oauth2/token"))


def test_oauth_scopes_are_requested_and_kept(twitter: Twitter) -> None:
    twitter.instead = [reply(200, {"access_token": "t", "scope": "a"})]
    grant = of_twitter(twitter, scopes=("a", "b c")).log_in(requests.Session(), None)
    assert twitter.asked("/oauth2/token")[0].given["scope"] == "a b c"
    assert grant.token == {"access_token": "t", "scope": "a"}


def test_malformed_oauth_scope_of_a_provider_can_be_stored(twitter: Twitter) -> None:
    twitter.instead = [reply(200, {"access_token": "t", "scope": "a\ud800"})]
    grant = of_twitter(twitter).log_in(requests.Session(), None)
    assert msgspec.json.encode(grant)
    assert grant.token["scope"] == "a?"


# -- how long it lasts


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (3600, 3600),
        ("3600", 3600),
        (3600.9, 3600),
        (None, 0),
        (0, 0),
        (-5, 0),
        ("soon", 0),
        (True, 0),
        ([1], 0),
        (10**30, 10 * 365 * 86_400),
    ],
)
def test_expiry_is_read_and_odd_values_mean_unknown(
    twitter: Twitter, given: Any, seconds: int
) -> None:
    twitter.instead = [reply(200, {"access_token": "t", "expires_in": given})]
    before = epoch_ms()
    grant = of_twitter(twitter).log_in(requests.Session(), None)
    if seconds:
        assert 0 <= grant.expires_ms - before - 1000 * seconds <= epoch_ms() - before
    else:
        assert grant.expires_ms == 0


# -- consent and refresh


@pytest.mark.parametrize("public", [False, True])
def test_token_of_a_consent_with_pkce_is_refreshed_with_rotation(
    twitter: Twitter, public: bool
) -> None:
    kind = of_twitter(twitter, grant="code", public=public)
    grant = granted(kind)
    assert ask(kind, tweets(twitter), grant).status == 200
    assert grant.expires_ms > epoch_ms() + 7000_000
    newer = kind.log_in(requests.Session(), grant)
    assert newer.token["access_token"] != grant.token["access_token"]
    assert newer.token["refresh_token"] != grant.token["refresh_token"]
    assert ask(kind, tweets(twitter), newer).status == 200
    newest = kind.log_in(requests.Session(), newer)
    assert ask(kind, tweets(twitter), newest).status == 200
    assert not twitter.complaints
    with pytest.raises(LoginRefused, match=r"cannot be refreshed.*`greencrawl login tw`"):
        kind.log_in(requests.Session(), grant)  # a refresh token works only once


def test_refresh_without_a_new_refresh_token_keeps_the_old(twitter: Twitter) -> None:
    kind = of_twitter(twitter, grant="code")
    grant = granted(kind)
    twitter.instead = [reply(200, {"access_token": "new", "expires_in": 60})]
    newer = kind.log_in(requests.Session(), grant)
    assert newer.token["refresh_token"] == grant.token["refresh_token"]
    assert newer.token["access_token"] == "new"


def test_refusal_after_a_revoked_consent_says_what_to_do(twitter: Twitter) -> None:
    kind = of_twitter(twitter, grant="code")
    grant = granted(kind)
    twitter.instead = [reply(400, {"error": "invalid_grant", "error_description": "revoked"})]
    with pytest.raises(LoginRefused) as caught:
        kind.log_in(requests.Session(), grant)
    assert "HTTP 400, invalid_grant (revoked)): run `greencrawl login tw`" in str(caught.value)


def test_no_token_is_requested_without_consent(twitter: Twitter) -> None:
    kind = of_twitter(twitter, grant="code")
    with pytest.raises(LoginRefused, match=r"nobody has given consent.*`greencrawl login tw`"):
        kind.log_in(requests.Session(), None)
    old = Grant(account="c", generation=1, made_ms=1, token={"access_token": "t"})
    with pytest.raises(LoginRefused, match=r"gave none to refresh.*`greencrawl login tw`"):
        kind.log_in(requests.Session(), old)
    assert not twitter.calls


def test_code_is_not_exchanged_if_the_state_does_not_match(twitter: Twitter) -> None:
    kind = of_twitter(twitter, grant="code")
    asked, answer = consent(kind)
    for forged in (answer.replace("state=", "state=x"), f"{BACK}?code=abc", "code", ""):
        with pytest.raises(LoginRefused, match="not to this question"):
            kind.exchange(requests.Session(), asked, forged)
    with pytest.raises(LoginRefused, match="no code"):
        kind.exchange(requests.Session(), asked, f"{BACK}?state={asked.state}")
    said = "error=access_denied&error_description=they+said%0Ano"
    with pytest.raises(LoginRefused, match=r"consent was not given \(they said no\)"):
        kind.exchange(requests.Session(), asked, f"{BACK}?{said}&state={asked.state}")
    assert not twitter.asked("/2/oauth2/token")


def test_code_of_another_verifier_is_refused(twitter: Twitter) -> None:
    kind = of_twitter(twitter, grant="code")
    asked, answer = consent(kind)
    stolen = msgspec.structs.replace(asked, secret="v" * 43)
    with pytest.raises(LoginRefused, match=r"the code was not accepted.*start again"):
        kind.exchange(requests.Session(), stolen, answer)


def test_state_and_secret_differ_between_two_requests_for_consent(twitter: Twitter) -> None:
    kind = of_twitter(twitter, grant="code")
    first, second = (kind.authorize(requests.Session(), BACK) for _ in range(2))
    assert first.state != second.state
    assert first.secret != second.secret
    assert first.secret not in first.url


# -- errors of token endpoints


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (reply(401, {"error": "invalid_client"}), "client_id or client_secret is not accepted"),
        (reply(400, {"error": "unauthorized_client"}), "client_id or client_secret is not"),
        (reply(400, {"error": "invalid_scope"}), r"no token was given \(HTTP 400, invalid_scope"),
        (reply(200, {"error": "bad_verification_code"}), "no token was given"),
        (Reply(404, b"<h1>no</h1>"), r"no token was given \(HTTP 404"),
        (Reply(200, b"<h1>welcome</h1>"), r"holds no token \(HTTP 200\): is token_url right"),
        (Reply(200, b"[" * 100_000), "holds no token"),
        (reply(200, {"access_token": "a\nb"}), "no token that a header can carry"),
        (reply(200, {"access_token": {"a": 1}}), "no token that a header can carry"),
        (Reply(307, headers={"Location": "/other?x=1"}), r"token_url redirects to http://127"),
    ],
)
def test_refusal_says_what_is_wrong(twitter: Twitter, answer: Reply, said: str) -> None:
    twitter.instead = [answer]
    with pytest.raises(LoginRefused, match=said):
        of_twitter(twitter).log_in(requests.Session(), None)
    assert len(twitter.calls) == 1


@pytest.mark.parametrize(
    ("answer", "kind", "after"),
    [
        (Reply(500, b"oops"), FailureKind.SERVER_ERROR, None),
        (Reply(503, headers={"Retry-After": "30"}), FailureKind.UNAVAILABLE, 30),
        (Reply(429, headers={"Retry-After": "9"}), FailureKind.RATE_LIMITED, 9),
        (reply(400, {"error": "temporarily_unavailable"}), FailureKind.UNAVAILABLE, None),
    ],
)
def test_temporary_error_of_a_provider_is_a_failure_and_no_refusal(
    twitter: Twitter, answer: Reply, kind: FailureKind, after: float | None
) -> None:
    twitter.instead = [answer]
    with pytest.raises(LoginFailed) as caught:
        of_twitter(twitter).log_in(requests.Session(), None)
    assert (caught.value.failure.kind, caught.value.failure.retry_after) == (kind, after)


def test_refusal_does_not_show_the_secret_if_the_provider_repeats_it(twitter: Twitter) -> None:
    said = f"secret {twitter.client_secret} of {twitter.client_id} \x1b[31m" + "x" * 10_000
    twitter.instead = [reply(400, {"error": "invalid_client", "error_description": said})]
    with pytest.raises(LoginRefused) as caught:
        of_twitter(twitter).log_in(requests.Session(), None)
    assert twitter.client_secret not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_code_and_refresh_token_are_masked_if_the_provider_repeats_them(twitter: Twitter) -> None:
    kind = of_twitter(twitter, grant="code")
    asked, answer = consent(kind)
    assert asked.secret not in repr(asked)
    code = answer.partition("code=")[2]
    said = f"code {code} verifier {asked.secret} wrong"
    twitter.instead = [reply(400, {"error": "invalid_grant", "error_description": said})]
    with pytest.raises(LoginRefused, match=r"code \*\*\* verifier \*\*\* wrong"):
        kind.exchange(requests.Session(), asked, answer)
    grant = kind.exchange(requests.Session(), asked, answer)
    said = f"token {grant.token['refresh_token']} is unknown"
    twitter.instead = [reply(400, {"error": "invalid_grant", "error_description": said})]
    with pytest.raises(LoginRefused, match=r"token \*\*\* is unknown"):
        kind.log_in(requests.Session(), grant)


def test_libraries_do_not_log_tokens(twitter: Twitter, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        kind = of_twitter(twitter, grant="code")
        kind.log_in(requests.Session(), granted(kind))
    found = [r.getMessage() for r in caplog.records if "oauthlib" in r.name]
    assert found == []
    assert not any(secret in caplog.text for secret in twitter.secrets())


def test_grant_keeps_only_the_needed_fields_of_an_answer(twitter: Twitter) -> None:
    given = {"access_token": "t", "id_token": "e.y.J", "refresh_token": None, "token_type": "mac"}
    twitter.instead = [reply(200, given)]
    grant = of_twitter(twitter).log_in(requests.Session(), None)
    assert grant.token == {"access_token": "t"}


# -- where secrets go


def test_plain_http_is_refused_unless_hosts_names_it(twitter: Twitter) -> None:
    kind = of_twitter(twitter, hosts=("127.0.0.7",), grant="code")
    old = Grant(account="c", generation=1, made_ms=1, token={"refresh_token": "r"})
    with pytest.raises(LoginRefused, match="token_url would get secrets without TLS"):
        kind.log_in(requests.Session(), old)
    with pytest.raises(LoginRefused, match="authorize_url would get secrets without TLS"):
        kind.authorize(requests.Session(), BACK)
    assert not twitter.calls


def test_token_stands_in_one_header_with_its_prefix(twitter: Twitter) -> None:
    kind = of_twitter(twitter, prefix="Token ")
    grant = Grant(account="c", generation=1, made_ms=1, token={"access_token": "abc"})
    url, headers = kind.prove("https://a.example/?x", {"Authorization": "Basic z", "a": "b"}, grant)
    assert (url, headers) == ("https://a.example/?x", {"a": "b", "authorization": "Token abc"})
    assert kind.prove("https://a.example/", {}, None) == ("https://a.example/", {})


# -- Weibo


def test_weibo_gets_what_its_documentation_names_and_nothing_else(weibo: Weibo) -> None:
    kind = of_weibo(weibo, scopes=("email", "follow_app_official_microblog"))
    asked, answer = consent(kind, weibo.redirect_uri)
    assert "scope=email%2Cfollow_app_official_microblog" in asked.url
    grant = kind.exchange(requests.Session(), asked, answer)
    assert grant.token["uid"] == UID
    assert grant.expires_ms > epoch_ms() + 7000_000  # "expires_in" is a text there
    found = ask(kind, timeline(weibo), grant)
    assert found.status == 200
    assert len(found.body) < providers.ERROR_BYTES
    assert kind.judge(found, grant) == "in"  # although a status names error codes
    assert not weibo.complaints
    assert weibo.asked("/2/statuses/user_timeline.json")[0].authorization.startswith("OAuth2 2.00")


@pytest.mark.parametrize("how", ["expired", "revoked", "invalid"])
def test_weibo_says_in_a_body_that_a_token_is_no_longer_good(weibo: Weibo, how: str) -> None:
    kind = of_weibo(weibo)
    grant = granted(kind, weibo.redirect_uri)
    if how == "expired":
        weibo.tokens = dict.fromkeys(weibo.tokens, 0.0)
    elif how == "revoked":
        weibo.revoke()
    else:
        weibo.tokens.clear()
    answer = ask(kind, timeline(weibo), grant)
    assert answer.status in (400, 403)
    assert kind.judge(answer, grant) == "out"
    with pytest.raises(LoginRefused, match=r"gave none to refresh.*`greencrawl login wb`"):
        kind.log_in(requests.Session(), grant)


@pytest.mark.parametrize("code", [20101, 10006, 21322, 21328, 213270, 100230])
def test_other_errors_of_weibo_are_not_about_the_token(weibo: Weibo, code: int) -> None:
    kind = of_weibo(weibo)
    body = json.dumps({"error": "x", "error_code": code}).encode()
    assert kind.judge(Fetched("https://a.example/", 403, {}, body), None) == "in"


@pytest.mark.parametrize("code", [21332, 10023])
def test_long_page_is_not_read_as_an_error_of_weibo(weibo: Weibo, code: int) -> None:
    page = {"statuses": [{"errors": [{"error_code": code}], "text": "x" * providers.ERROR_BYTES}]}
    fetched = Fetched("https://a.example/", 403, {}, json.dumps(page).encode())
    assert of_weibo(weibo).judge(fetched, None) == "in"


@pytest.mark.parametrize("code", [10022, "10023", 10024])
def test_rate_limit_of_weibo_is_a_failure_with_a_retry_time(weibo: Weibo, code: int | str) -> None:
    kind = of_weibo(weibo)
    grant = granted(kind, weibo.redirect_uri)
    error = {"error": "User requests out of rate limit!", "error_code": code, "request": "/2/x"}
    weibo.instead = [reply(403, error)]
    verdict = kind.judge(ask(kind, timeline(weibo), grant), grant)
    assert isinstance(verdict, Failure)
    assert (verdict.kind, verdict.code, verdict.retry_after) == ("rate_limited", 403, 900)


def test_refusals_of_weibo_are_read_by_their_error_numbers(weibo: Weibo) -> None:
    kind = of_weibo(weibo)
    asked, answer = consent(kind, weibo.redirect_uri)
    kind.exchange(requests.Session(), asked, answer)
    with pytest.raises(
        LoginRefused, match=r"code was not accepted \(HTTP 400, invalid_grant 21325"
    ):
        kind.exchange(requests.Session(), asked, answer)
    weibo.secret = "another"
    with pytest.raises(LoginRefused, match=r"not accepted \(HTTP 401, invalid_client 21324\)"):
        kind.exchange(requests.Session(), asked, answer)


def test_weibo_has_no_client_credentials(weibo: Weibo) -> None:
    with pytest.raises(LoginRefused, match="weibo has no grant client_credentials"):
        of_weibo(weibo, grant="client_credentials").log_in(requests.Session(), None)


def test_pattern_of_the_entry_is_searched_in_any_page() -> None:
    entry = OAuth2(name="x", hosts=("a.example",), token_url="https://a.example/t", expired="gone!")
    kind = OAuth2Kind(entry, {"client_id": "c"})
    long = b"token is gone!" + b" " * 20_000
    assert kind.judge(Fetched("https://a.example/", 200, {}, long), None) == "out"
    assert kind.judge(Fetched("https://a.example/", 200, {}, b"all is well"), None) == "in"


# -- endpoints


def test_endpoints_of_providers_are_those_that_they_document() -> None:
    app = OAuth2(name="t", hosts=("api.x.com",), provider="twitter")
    assert providers.oauth2(app).token_url == "https://api.x.com/oauth2/token"
    user = msgspec.structs.replace(app, grant="code")
    assert providers.oauth2(user).token_url == "https://api.x.com/2/oauth2/token"
    assert providers.oauth2(user).authorize_url == "https://x.com/i/oauth2/authorize"
    weibo = OAuth2(name="w", hosts=("api.weibo.com",), provider="weibo", grant="code")
    at = providers.oauth2(weibo)
    assert at.token_url == "https://api.weibo.com/oauth2/access_token"
    assert at.authorize_url == "https://api.weibo.com/oauth2/authorize"
    assert (at.client_auth, at.prefix, at.pkce) == ("body", "OAuth2 ", False)


def test_entry_wins_over_provider_and_base() -> None:
    entry = OAuth2(
        name="t",
        hosts=("a.example",),
        provider="twitter",
        grant="code",
        base="http://b.example:81/",
        token_url="https://c.example/t",
        prefix="X ",
    )
    at = providers.oauth2(entry)
    assert at.token_url == "https://c.example/t"
    assert at.authorize_url == "http://b.example:81/i/oauth2/authorize"
    assert at.prefix == "X "
