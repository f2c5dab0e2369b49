"""OAuth 2.0 (RFC 6749) with bearer tokens (RFC 6750) and PKCE (RFC 7636), on requests-oauthlib.

``client_credentials`` asks for a new token whenever one is needed. With ``code`` a person gave
consent once (:meth:`OAuth2Kind.authorize`, :meth:`OAuth2Kind.exchange`). From then on the token is
refreshed. If a refresh token comes with the new token, it replaces the old refresh token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote_plus

import requests
from oauthlib.common import generate_token
from oauthlib.oauth2 import BackendApplicationClient, WebApplicationClient
from requests.auth import HTTPBasicAuth
from requests_oauthlib import OAuth2Session

from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.net import providers
from greencrawl.schema.records import Failure, FailureKind, Fetched
from greencrawl.schema.records.auth import OAuth2
from greencrawl.schema.text.patterns import Pattern
from greencrawl.worker.auth.base import Grant, LoginFailed, LoginRefused, Verdict
from greencrawl.worker.auth.kinds.oauth import (
    ConsentRequest,
    consent_answer,
    endpoint,
    json_object,
    same,
    settled,
    shown,
    token_text,
)

_MAX_SECONDS = 10 * 365 * 86_400
_KEPT = ("access_token", "refresh_token", "scope", "uid")
"""The fields of a token endpoint's answer that are kept; an identity token, for example, is not."""

_SENT = ("code", "code_verifier", "refresh_token")
_SPENT = ("invalid_grant", "expired_token", "invalid_request")
"""Errors which say that a code or refresh token is no longer valid.

Twitter uses the last one, which may also mean something else; so our message quotes the answer.
"""

_Errand = Literal["token", "refresh", "code"]


class OAuth2Kind:
    """An entry of kind ``oauth2``. Secrets: client_id; client_secret unless the client is
    public."""

    logs_in = True

    def __init__(self, entry: OAuth2, secrets: Mapping[str, str]) -> None:
        self.entry = entry
        self._at = providers.oauth2(entry)
        self._secret = secrets.get("client_secret", "")
        self._expired = _pattern(self._at.expired)
        self._denied = _pattern(self._at.denied)
        self._too_fast = _pattern(self._at.too_fast)
        self._account = secrets["client_id"]

    @property
    def account(self) -> str:
        """Return the client's id."""
        return self._account

    # -- consent

    def authorize(self, _session: requests.Session, redirect_uri: str) -> ConsentRequest:
        """Begin to ask a person for consent; see ``oauth.ConsentRequest``.

        Raises LoginRefused if the entry has no ``authorize_url``, or needs no consent.
        """
        if self.entry.grant != "code":
            raise LoginRefused(f"grant {self.entry.grant} asks nobody")
        url = endpoint(self._at.authorize_url, self.entry.hosts, "authorize_url")
        client = WebApplicationClient(self._account)
        flow = OAuth2Session(
            client=client,
            redirect_uri=redirect_uri,
            scope=self._scope(),
            pkce="S256" if self._at.pkce else None,
        )
        made, state = flow.authorization_url(_as_https(url), state=generate_token(32))
        scheme = url.partition(":")[0]
        verifier = client.code_verifier or ""
        return ConsentRequest(scheme + made.removeprefix("https"), redirect_uri, state, verifier)

    def exchange(self, session: requests.Session, request: ConsentRequest, answer: str) -> Grant:
        """Return the grant for a consent; ``answer`` is the URL to which the browser was sent back.

        Raises LoginRefused and LoginFailed.
        """
        found = consent_answer(answer)
        if not same(found.get("state", ""), request.state):
            raise LoginRefused("the answer is not to this question: start again")
        if not found.get("code"):
            raise LoginRefused("there is no code in the answer: paste the whole URL")
        flow = _Flow(self, session, "code", WebApplicationClient(self._account))
        flow.redirect_uri = request.redirect_uri
        if request.secret:
            return flow.fetch({"code": found["code"], "code_verifier": request.secret})
        return flow.fetch({"code": found["code"]})

    # -- kind

    def log_in(self, session: requests.Session, old: Grant | None) -> Grant:
        """See :class:`greencrawl.worker.auth.base.Kind`."""
        if self.entry.grant == "client_credentials":
            flow = _Flow(self, session, "token", BackendApplicationClient(self._account))
            return flow.fetch({"scope": self._scope()})
        refresh = old.token.get("refresh_token") if old is not None else None
        if not refresh:
            why = "nobody has given consent yet"
            if old is not None and old.token:
                why = "the token is no longer good, and the provider gave none to refresh it with"
            raise LoginRefused(f"{why}: run {self._command()}")
        return _Flow(self, session, "refresh", WebApplicationClient(self._account)).renew(refresh)

    def prove(
        self, url: str, headers: Mapping[str, str], grant: Grant | None
    ) -> tuple[str, dict[str, str]]:
        """See :class:`greencrawl.worker.auth.base.Kind`."""
        proven = {key: value for key, value in headers.items() if key.lower() != "authorization"}
        if grant is not None and grant.token:
            proven["authorization"] = f"{self._at.prefix}{grant.token['access_token']}"
        return url, proven

    def judge(self, fetched: Fetched, grant: Grant | None) -> Verdict | Failure:
        """See :class:`greencrawl.worker.auth.base.Kind`."""
        text = fetched.body[: providers.ERROR_BYTES].decode("latin-1")
        # A provider's errors are short; a longer answer is a page, whatever its content.
        error = text if len(fetched.body) <= providers.ERROR_BYTES else ""
        if fetched.status == 401:
            return "in" if _in(self._denied, error) else "out"
        if _in(self._expired, text if self.entry.expired else error):
            return "out"
        if fetched.status >= 400 and _in(self._too_fast, error):
            detail = f"HTTP {fetched.status}: the provider's rate limit is reached"
            after = self._at.wait_seconds
            return Failure(FailureKind.RATE_LIMITED, detail, fetched.status, after)
        return "in"

    # -- helpers of the flow

    def _token_url(self) -> str:
        entry = self.entry
        if entry.provider and not self._at.token_url:
            raise LoginRefused(f"{entry.provider} has no grant {entry.grant}")
        return endpoint(self._at.token_url, entry.hosts, "token_url")

    def _scope(self) -> str | None:
        return self._at.separator.join(self.entry.scopes) or None

    def _command(self) -> str:
        return f"`greencrawl login {self.entry.name}`"

    def _client(self) -> dict[str, Any]:
        """Return how the client proves itself (RFC 6749, 2.3.1), as arguments of
        requests-oauthlib."""
        if not self._secret:
            return {"include_client_id": True}
        if self._at.client_auth == "body":
            return {"include_client_id": True, "client_secret": self._secret}
        user, password = quote_plus(self._account), quote_plus(self._secret)
        return {"include_client_id": False, "auth": HTTPBasicAuth(user, password)}

    def _refused(
        self, response: requests.Response, errand: _Errand, sent: Sequence[str]
    ) -> LoginRefused | LoginFailed:
        """Return the error for an answer without a token (RFC 6749, 5.2).

        ``sent`` are secrets that the answer may repeat.
        """
        found = json_object(response)
        error, said = _error(found)
        code = found.get("error_code")
        secrets = (self._secret, self._account, *sent)
        said = shown(said, secrets)
        told = f"HTTP {response.status_code}"
        told += f", {error}" if error else ""
        told += f" {code}" if isinstance(code, int | str) and code != "" else ""
        told = shown(f"{told} ({said})" if said else told, secrets)
        field = "token_url"
        if error in ("temporarily_unavailable", "server_error", "slow_down"):
            detail = f"{field} answered {told}"
            return LoginFailed(Failure(FailureKind.UNAVAILABLE, detail, response.status_code))
        if error in _SPENT and errand == "refresh":
            why = f"the token cannot be refreshed any more ({told}): run {self._command()}"
        elif error in _SPENT and errand == "code":
            why = f"the code was not accepted ({told}): start again"
        elif error in ("invalid_client", "unauthorized_client") or response.status_code == 401:
            why = f"client_id or client_secret is not accepted ({told})"
        elif error or response.status_code >= 400:
            why = f"no token was given ({told})"
        else:
            why = f"the answer holds no token ({told}): is {field} right?"
        return LoginRefused(f"{why}")


class _Flow(OAuth2Session):
    """The flow of requests-oauthlib; a session of ours sends its requests, and their answers are
    checked.

    The library accepts only https URLs, unless an environment variable allows other URLs in the
    whole process. So the library gets an https URL, and the request goes to the real URL, which
    :func:`greencrawl.worker.auth.kinds.oauth.endpoint` has accepted.
    """

    def __init__(
        self, kind: OAuth2Kind, session: requests.Session, errand: _Errand, client: Any
    ) -> None:
        super().__init__(client=client)
        self._kind = kind
        self._sender = session
        self._errand: _Errand = errand
        self._url = kind._token_url()
        self._asked_ms = 0

    def fetch(self, arguments: dict[str, Any]) -> Grant:
        token = self.fetch_token(_as_https(self._url), **self._kind._client(), **arguments)
        return self._grant(token)

    def renew(self, refresh_token: str) -> Grant:
        client = self._kind._client()
        if client["include_client_id"]:
            client["client_id"] = self._kind.account
        token = self.refresh_token(_as_https(self._url), refresh_token, **client)
        return self._grant(token)

    def request(  # type: ignore[override]
        self, method: str, url: str, data: Any = None, headers: Any = None, **given: Any
    ) -> requests.Response:
        """Send a request of the flow.

        Raises LoginRefused and LoginFailed unless the answer is a token.
        """
        self._asked_ms = epoch_ms()
        response = self._sender.request(
            method,
            self._url,
            data=data,
            headers=headers,
            auth=given.get("auth"),
            allow_redirects=False,
        )
        settled(response, "token_url")
        found = json_object(response)
        if not response.ok or "access_token" not in found:
            sent = [str(data[key]) for key in _SENT if key in data]
            raise self._kind._refused(response, self._errand, sent)
        kept = {key: token_text(found[key]) for key in _KEPT[:2] if found.get(key)}
        kept |= {
            key: str(found[key])[:1000].encode("utf-8", "replace").decode()  # lone surrogates
            for key in _KEPT[2:]
            if found.get(key)
        }
        seconds = _seconds(found.get("expires_in"))
        clean = {**kept, "token_type": "Bearer", **({"expires_in": seconds} if seconds else {})}
        response._content = json.dumps(clean).encode()
        response.encoding = "utf-8"
        return response

    def _grant(self, token: Mapping[str, Any]) -> Grant:
        seconds = _seconds(token.get("expires_in"))
        expires_ms = self._asked_ms + 1000 * seconds if seconds else 0
        kept = {key: token[key] for key in _KEPT if token.get(key)}
        if isinstance(kept.get("scope"), list):
            kept["scope"] = " ".join(kept["scope"])
        return Grant(
            account=self._kind.account,
            generation=0,
            made_ms=self._asked_ms,
            expires_ms=expires_ms,
            token=kept,
        )


def _pattern(text: str) -> Pattern | None:
    return Pattern(text) if text else None


def _in(pattern: Pattern | None, text: str) -> bool:
    return pattern is not None and bool(text) and pattern.found_in(text)


def _as_https(url: str) -> str:
    return f"https:{url.partition(':')[2]}"


def _seconds(given: object) -> int:
    """Return how many seconds a token is valid: a number or its digits; 0 if unknown."""
    if isinstance(given, str):
        given = int(given) if given.isascii() and given.isdigit() and len(given) < 12 else 0
    if (
        isinstance(given, bool)
        or not isinstance(given, int | float)
        or not 0 < given < float("inf")
    ):
        return 0
    return min(int(given), _MAX_SECONDS)


def _error(found: Mapping[str, Any]) -> tuple[str, str]:
    """Return an error's name and its description; Twitter's older endpoints list errors."""
    errors = found.get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[0], dict):
        first = errors[0]
        return str(first.get("label") or first.get("code") or ""), str(first.get("message") or "")
    return str(found.get("error") or ""), str(found.get("error_description") or "")
