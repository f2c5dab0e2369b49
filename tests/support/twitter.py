"""Twitter's API as documented, as far as a crawl of timelines needs it.

Signatures (OAuth 1.0a, by oauthlib's server side), clients, codes with PKCE, refresh tokens that
are valid once, tokens and parameters are checked; undocumented requests are refused.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from base64 import urlsafe_b64encode
from string import ascii_letters, digits
from typing import Any
from urllib.parse import urlencode

from oauthlib.oauth1 import RequestValidator, WebApplicationServer

from tests.support.api import FORM, ApiServer, Call, Reply, reply

USER = "2244994945"
PROTECTED = "783214"
TWEETS_PARAMETERS = [
    *("since_id", "until_id", "start_time", "end_time", "max_results", "pagination_token"),
    *("exclude", "expansions", "tweet.fields", "media.fields", "place.fields", "poll.fields"),
    "user.fields",
]
TIMELINE_PARAMETERS = [
    *("user_id", "screen_name", "since_id", "max_id", "count", "trim_user", "exclude_replies"),
    *("include_rts", "tweet_mode"),
]
TWEET_PARAMETERS = [name for name in TWEETS_PARAMETERS if "." in name or name == "expansions"]
_NEWEST = 1_700_000_000_000_000_000


class _Validator(RequestValidator):
    enforce_ssl = False
    dummy_client = "dummy-client"
    dummy_request_token = "dummy-request-token"
    dummy_access_token = "dummy-access-token"
    safe_characters = frozenset(f"{ascii_letters}{digits}-_")  # type: ignore[assignment]
    client_key_length = request_token_length = access_token_length = (8, 60)
    verifier_length = (7, 60)
    nonce_length = (8, 60)
    timestamp_lifetime = 300

    def __init__(self, key: str, secret: str) -> None:
        super().__init__()
        self.key, self.secret = key, secret
        self.tokens: dict[str, str] = {}
        self.pending: dict[str, dict[str, str]] = {}
        self.nonces: set[tuple[str, ...]] = set()

    def get_client_secret(self, client_key: str, request: Any) -> str:
        return self.secret

    def get_request_token_secret(self, client_key: str, token: str, request: Any) -> str:
        return self.pending.get(token, {}).get("oauth_token_secret", "dummy")

    def get_access_token_secret(self, client_key: str, token: str, request: Any) -> str:
        return self.tokens.get(token, "dummy")

    def validate_client_key(self, client_key: str, request: Any) -> bool:
        return client_key == self.key

    def validate_request_token(self, client_key: str, token: str, request: Any) -> bool:
        return token in self.pending

    def validate_access_token(self, client_key: str, token: str, request: Any) -> bool:
        return token in self.tokens

    def validate_timestamp_and_nonce(  # type: ignore[override]
        self, client_key: str, timestamp: str, nonce: str, request: Any, *_: Any, **__: Any
    ) -> bool:
        key = (timestamp, nonce)
        fresh = key not in self.nonces
        self.nonces.add(key)
        return fresh

    def validate_redirect_uri(self, client_key: str, redirect_uri: str, request: Any) -> bool:
        return redirect_uri == "oob" or redirect_uri.startswith("http://127.0.0.1")

    def validate_requested_realms(self, client_key: str, realms: Any, request: Any) -> bool:
        return True

    def validate_realms(self, *_: Any, **__: Any) -> bool:
        return True

    def get_default_realms(self, client_key: str, request: Any) -> list[str]:
        return []

    def get_realms(self, token: str, request: Any) -> list[str]:
        return []

    def get_redirect_uri(self, token: str, request: Any) -> str:
        return self.pending[token]["redirect_uri"]

    def save_request_token(self, token: dict[str, str], request: Any) -> None:
        self.pending[token["oauth_token"]] = {**token, "redirect_uri": request.redirect_uri}

    def verify_request_token(self, token: str, request: Any) -> bool:
        return token in self.pending

    def save_verifier(self, token: str, verifier: dict[str, str], request: Any) -> None:
        self.pending[token]["oauth_verifier"] = verifier["oauth_verifier"]

    def validate_verifier(self, client_key: str, token: str, verifier: str, request: Any) -> bool:
        return self.pending[token].get("oauth_verifier") == verifier

    def invalidate_request_token(self, client_key: str, token: str, request: Any) -> None:
        del self.pending[token]

    def save_access_token(self, token: dict[str, str], request: Any) -> None:
        self.tokens[token["oauth_token"]] = token["oauth_token_secret"]


class Twitter(ApiServer):
    """One user with ``tweets`` tweets. ``lasts`` is how many seconds users' tokens are valid."""

    def __init__(self, tweets: int = 25, lasts: int = 7200, address: str = "127.0.0.7") -> None:
        super().__init__(address)
        self.tweets = [str(_NEWEST - 1000 * number) for number in range(tweets)]
        self.lasts = lasts
        self.client_id = f"client-{secrets.token_urlsafe(12)}"
        self.client_secret = f"s:cret/+&{secrets.token_urlsafe(18)}"
        """It has characters that must be encoded; OAuth 1.0a has a key and a secret of its own."""
        self.key, self.key_secret = "consumerkey0001", f"keysecret{secrets.token_hex(16)}"
        self.app_token = f"AAAA%2F{secrets.token_hex(20)}"
        self.codes: dict[str, dict[str, str]] = {}
        self.user_tokens: dict[str, float] = {}
        self.refresh_tokens: set[str] = set()
        self.oauth1 = _Validator(self.key, self.key_secret)
        self.token, self.token_secret = "accesstoken0001", f"tokensecret{secrets.token_hex(16)}"
        self.oauth1.tokens[self.token] = self.token_secret
        self._provider = WebApplicationServer(self.oauth1)
        self.routes = [
            ("POST", "/oauth/request_token", self._request_token),
            ("GET", "/oauth/authorize", self._authorize1),
            ("POST", "/oauth/access_token", self._access_token),
            ("POST", "/oauth2/token", self._app_token),
            ("GET", "/i/oauth2/authorize", self._authorize2),
            ("POST", "/2/oauth2/token", self._user_token),
            ("GET", r"/2/users/\d+/tweets", self.tweets_page),
            ("GET", r"/2/tweets/\d+", self._tweet),
            ("GET", r"/1\.1/statuses/user_timeline\.json", self._timeline),
        ]

    def secrets(self) -> set[str]:
        """Return everything that only the client and the provider may know."""
        found = {self.client_secret, self.key_secret, self.token, self.token_secret}
        return found | set(self.user_tokens) | self.refresh_tokens | {self.app_token}

    # -- OAuth 1.0a

    def _leg(self, found: tuple[Any, str, int]) -> Reply:
        _, body, status = found
        if status == 200:
            return Reply(200, (body or "").encode(), {"Content-Type": "text/html; charset=utf-8"})
        error = {"errors": [{"code": 32, "message": "Could not authenticate you."}]}
        return reply(401, error)

    def _headers(self, call: Call) -> dict[str, str]:
        headers = {"Authorization": call.authorization}
        return {**headers, **({"Content-Type": call.content_type} if call.content_type else {})}

    def _request_token(self, call: Call) -> Reply:
        made = self._provider.create_request_token_response(
            call.url, call.method, call.body, self._headers(call)
        )
        return self._leg(made)

    def _authorize1(self, call: Call) -> Reply:
        """Give consent at once; with ``oob`` show the PIN."""
        if self.undocumented(call, ["oauth_token", "force_login", "screen_name"]):
            return reply(400, {})
        token = call.given["oauth_token"]
        pending = self.oauth1.pending[token]
        pin = "".join(secrets.choice(digits) for _ in range(7))
        pending["oauth_verifier"] = pin
        if pending["redirect_uri"] == "oob":
            return Reply(200, pin.encode(), {"Content-Type": "text/plain"})
        back = urlencode({"oauth_token": token, "oauth_verifier": pin})
        return Reply(302, headers={"Location": f"{pending['redirect_uri']}?{back}"})

    def _access_token(self, call: Call) -> Reply:
        made = self._provider.create_access_token_response(
            call.url, call.method, call.body, self._headers(call)
        )
        answer = self._leg(made)
        if answer.status == 200:
            return Reply(200, answer.body + b"&user_id=1&screen_name=somebody", answer.headers)
        return answer

    def _signed(self, call: Call) -> bool:
        found, _ = self._provider.validate_protected_resource_request(
            call.url, call.method, call.body, self._headers(call)
        )
        return bool(found)

    # -- OAuth 2.0

    def _app_token(self, call: Call) -> Reply:
        refused = {"code": 99, "label": "authenticity_token_error"}
        refused["message"] = "Unable to verify your credentials"
        if call.basic != (self.client_id, self.client_secret):
            return reply(403, {"errors": [refused]})
        if self.undocumented(call, ["grant_type"]) or not call.content_type.startswith(FORM):
            return reply(400, {"errors": [{"code": 170, "message": "Missing required parameter"}]})
        if call.given.get("grant_type") != "client_credentials":
            return reply(403, {"errors": [refused]})
        return reply(200, {"token_type": "bearer", "access_token": self.app_token})

    def _authorize2(self, call: Call) -> Reply:
        """Give consent at once."""
        wanted = ["response_type", "client_id", "redirect_uri", "scope", "state"]
        wanted += ["code_challenge", "code_challenge_method"]
        missing = [name for name in wanted if not call.given.get(name)]
        if self.undocumented(call, wanted) or missing:
            self.complain(call, f"missing: {missing}")
            return reply(400, {})
        assert call.given["response_type"] == "code"
        assert call.given["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(24)
        self.codes[code] = call.given
        back = urlencode({"state": call.given["state"], "code": code})
        return Reply(302, headers={"Location": f"{call.given['redirect_uri']}?{back}"})

    def _user_token(self, call: Call) -> Reply:
        given = call.given
        basic = call.basic == (self.client_id, self.client_secret)
        if not basic and (given.get("client_id") != self.client_id or call.authorization):
            error = {"error": "unauthorized_client", "error_description": "Missing valid header"}
            return reply(401, error)
        wanted = ["grant_type", "client_id"]
        if given.get("grant_type") == "refresh_token":
            self.undocumented(call, [*wanted, "refresh_token"])
            if given.get("refresh_token") not in self.refresh_tokens:
                said = "Value passed for the token was invalid."
                return reply(400, {"error": "invalid_request", "error_description": said})
            self.refresh_tokens.discard(given["refresh_token"])
            return self._given("tweet.read users.read offline.access")
        self.undocumented(call, [*wanted, "code", "redirect_uri", "code_verifier"])
        asked = self.codes.pop(given.get("code", ""), None)
        proof = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
        challenge = urlsafe_b64encode(proof).decode().rstrip("=")
        if (
            given.get("grant_type") != "authorization_code"
            or asked is None
            or asked["code_challenge"] != challenge
            or asked["redirect_uri"] != given.get("redirect_uri")
        ):
            said = "Value passed for the authorization code was invalid."
            return reply(400, {"error": "invalid_request", "error_description": said})
        return self._given(asked["scope"])

    def _given(self, scope: str) -> Reply:
        token = secrets.token_urlsafe(48)
        self.user_tokens[token] = time.time() + self.lasts
        answer = {"token_type": "bearer", "expires_in": self.lasts, "access_token": token}
        answer["scope"] = scope
        if "offline.access" in scope.split():
            answer["refresh_token"] = secrets.token_urlsafe(48)
            self.refresh_tokens.add(answer["refresh_token"])
        return reply(200, answer)

    # -- the API

    def _may(self, call: Call) -> bool:
        scheme, _, token = call.authorization.partition(" ")
        if scheme == "Bearer":
            return token == self.app_token or self.user_tokens.get(token, 0.0) > time.time()
        return scheme == "OAuth" and self._signed(call)

    def tweets_page(self, call: Call) -> Reply:
        """Return a page of a user's tweets."""
        if not self._may(call):
            return _unauthorized()
        given = call.given
        size = int(given.get("max_results", "10"))
        if self.undocumented(call, TWEETS_PARAMETERS) or not 5 <= size <= 100:
            return reply(400, {"title": "Invalid Request", "errors": [{"parameters": given}]})
        start = 0
        if "pagination_token" in given:
            token = given["pagination_token"]
            if not token.startswith("7140w") or not token[5:].isdigit():
                self.complain(call, f"pagination_token {token}")
                return reply(400, {"title": "Invalid Request"})
            start = int(token[5:])
        found = self.tweets[start : start + size] if call.path.split("/")[3] == USER else []
        meta: dict[str, Any] = {"result_count": len(found)}
        if not found:
            return reply(200, {"meta": meta})
        meta |= {"newest_id": found[0], "oldest_id": found[-1]}
        if start + size < len(self.tweets):
            meta["next_token"] = f"7140w{start + size}"
        return reply(200, {"data": [self._v2(one) for one in found], "meta": meta})

    def _v2(self, number: str) -> dict[str, Any]:
        text = f'tweet {number} "error_code":21332 \N{GRINNING FACE}'
        return {"id": number, "text": text, "author_id": USER}

    def _tweet(self, call: Call) -> Reply:
        if not self._may(call):
            return _unauthorized()
        number = call.path.rpartition("/")[2]
        if self.undocumented(call, TWEET_PARAMETERS) or number not in self.tweets:
            return reply(400, {"title": "Invalid Request"})
        return reply(200, {"data": self._v2(number)})

    def _timeline(self, call: Call) -> Reply:
        if not self._may(call):
            error = {"code": 89, "message": "Invalid or expired token."}
            return reply(401, {"errors": [error]})
        given = call.given
        size = int(given.get("count", "20"))
        if self.undocumented(call, TIMELINE_PARAMETERS) or size > 200:
            return reply(400, {"errors": [{"code": 195, "message": "Missing or invalid url"}]})
        if given.get("user_id") == PROTECTED:
            return reply(401, {"request": call.path, "error": "Not authorized."})
        newest = int(given.get("max_id") or _NEWEST)
        found = [one for one in self.tweets if int(one) <= newest][:size]
        return reply(200, [{"id": int(one), "id_str": one, "text": one} for one in found])


def _unauthorized() -> Reply:
    body = {"title": "Unauthorized", "type": "about:blank", "status": 401, "detail": "Unauthorized"}
    return reply(401, body)


def too_fast(seconds: int) -> Reply:
    """Set a rate limit that ends in this many seconds."""
    until = str(round(time.time()) + seconds)
    body = {"errors": [{"code": 88, "message": "Rate limit exceeded"}]}
    made = reply(429, body)
    return Reply(429, made.body, {**made.headers, "x-rate-limit-reset": until})


def entry_secrets(twitter: Twitter) -> dict[str, str]:
    """Return the secrets of an entry of kind oauth1."""
    return {
        "client_key": twitter.key,
        "client_secret": twitter.key_secret,
        "token": twitter.token,
        "token_secret": twitter.token_secret,
    }
