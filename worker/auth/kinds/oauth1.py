"""OAuth 1.0a (RFC 5849): each request is signed, with the client's and a token's secret.

The token is among the secrets if the provider shows it to the client's owner; otherwise a person's
consent brings it, in three steps (:meth:`OAuth1Kind.authorize`, the person,
:meth:`OAuth1Kind.exchange`). It is valid until it is revoked: nothing renews it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from urllib.parse import parse_qsl, quote

import requests
from oauthlib.common import add_params_to_uri
from oauthlib.oauth1 import Client
from requests_oauthlib import OAuth1 as Signature

from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.net import providers
from greencrawl.schema.records import Fetched
from greencrawl.schema.records.auth import OAuth1
from greencrawl.schema.text.patterns import Pattern
from greencrawl.worker.auth.base import Grant, LoginRefused, Verdict
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

OUT_OF_BAND = "oob"
"""As ``redirect_uri``: the provider shows a code, which the person types in."""

_CODE = re.compile(r"[A-Za-z0-9_-]{1,200}")
_STRAY = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SKEW_SECONDS = 120


class OAuth1Kind:
    """An entry of kind ``oauth1``.

    Secrets: client_key and client_secret; also token and token_secret, unless a person's consent
    brings them.
    """

    def __init__(self, entry: OAuth1, secrets: Mapping[str, str]) -> None:
        self.entry = entry
        self._at = providers.oauth1(entry)
        self._denied = Pattern(self._at.denied) if self._at.denied else None
        self._key = secrets["client_key"]
        self._secret = secrets["client_secret"]
        self._token = secrets.get("token", "")
        self._signer = self._client(self._token, secrets.get("token_secret", ""))

    @property
    def logs_in(self) -> bool:
        """Return False if the token is among the secrets."""
        return not self._token

    @property
    def account(self) -> str:
        """Return the client's key."""
        return self._key

    # -- consent

    def authorize(
        self, session: requests.Session, redirect_uri: str = OUT_OF_BAND
    ) -> ConsentRequest:
        """Get a request token: the first step of the consent. ``redirect_uri`` is the callback, or
        ``OUT_OF_BAND``.

        Raises LoginRefused and LoginFailed.
        """
        url = self._endpoint("authorize_url")
        signature = self._signature(callback_uri=redirect_uri)
        found = self._leg(session, "request_token_url", signature)
        if found.get("oauth_callback_confirmed") != "true":
            raise LoginRefused(
                "the provider did not confirm where the answer goes, as OAuth 1.0a must; the older "
                "1.0 is not safe"
            )
        token = token_text(found.get("oauth_token"))
        secret = token_text(found.get("oauth_token_secret"))
        return ConsentRequest(
            add_params_to_uri(url, [("oauth_token", token)]), redirect_uri, token, secret
        )

    def exchange(self, session: requests.Session, request: ConsentRequest, answer: str) -> Grant:
        """Get the token: the last step of the consent.

        ``answer`` is the URL to which the browser was sent back, or with ``OUT_OF_BAND`` the code
        that the provider shows. Raises LoginRefused and LoginFailed.
        """
        found = consent_answer(answer)
        if request.redirect_uri == OUT_OF_BAND and not found:
            code = "".join(answer.split())
            found = {"oauth_token": request.state}
            found |= {"oauth_verifier": code} if _CODE.fullmatch(code) else {}
        if not same(found.get("oauth_token", ""), request.state):
            raise LoginRefused("the answer is not to this question: start again")
        verifier = found.get("oauth_verifier", "")
        if not verifier:
            raise LoginRefused("there is no oauth_verifier in the answer")
        signature = self._signature(request.state, request.secret, verifier=verifier)
        found = self._leg(session, "access_token_url", signature)
        token = {key: token_text(found.get(key)) for key in _PAIR}
        if found.get("screen_name"):
            token["screen_name"] = shown(found["screen_name"])
        return Grant(account=self.account, generation=0, made_ms=epoch_ms(), token=token)

    # -- kind

    def log_in(self, session: requests.Session, old: Grant | None) -> Grant:
        """Raise LoginRefused: only a person can bring a token."""
        why = "nobody has given consent yet"
        if old is not None and old.token:
            why = "the token is no longer accepted"
        raise LoginRefused(f"{why}: run `greencrawl login {self.entry.name}`")

    def prove(
        self, url: str, headers: Mapping[str, str], grant: Grant | None
    ) -> tuple[str, dict[str, str]]:
        """See :class:`greencrawl.worker.auth.base.Kind`."""
        signer = self._signer
        if not self._token:
            token = ("", "") if grant is None else tuple(grant.token.get(key, "") for key in _PAIR)
            if (signer.resource_owner_key, signer.resource_owner_secret) != token:
                signer = self._signer = self._client(*token)
        _, made, _ = signer.sign(_signable(url), "GET")
        proven = {key: value for key, value in headers.items() if key.lower() != "authorization"}
        return url, {**proven, "authorization": made["Authorization"]}

    def judge(self, fetched: Fetched, grant: Grant | None) -> Verdict:
        """See :class:`greencrawl.worker.auth.base.Kind`."""
        if fetched.status != 401:
            return "in"
        text = fetched.body[: providers.ERROR_BYTES].decode("latin-1")
        return "in" if self._denied is not None and self._denied.found_in(text) else "out"

    # -- signatures

    def _client(self, token: str, secret: str) -> Client:
        return Client(
            self._key,
            self._secret,
            token,
            secret,
            signature_method=self.entry.signature,
        )

    def _signature(
        self, token: str = "", secret: str = "", *, callback_uri: str = "", verifier: str = ""
    ) -> Signature:
        return Signature(
            self._key,
            self._secret,
            token or None,
            secret or None,
            callback_uri=callback_uri or None,
            verifier=verifier or None,
            signature_method=self.entry.signature,
        )

    def _endpoint(self, field: str) -> str:
        return endpoint(getattr(self._at, field), self.entry.hosts, field)

    def _leg(self, session: requests.Session, field: str, signature: Signature) -> dict[str, str]:
        """Send a signed POST to an endpoint; return the parameters of its answer."""
        response = session.post(self._endpoint(field), auth=signature, allow_redirects=False)
        settled(response, field)
        if not response.ok:
            client = signature.client
            theirs = (client.resource_owner_key, client.resource_owner_secret, client.verifier)
            secrets = [self._key, self._secret, *(one for one in theirs if one)]
            raise LoginRefused(_why(response, field, secrets))
        return dict(parse_qsl(response.text.strip(), max_num_fields=50))


_PAIR = ("oauth_token", "oauth_token_secret")


def _why(response: requests.Response, field: str, secrets: Sequence[str]) -> str:
    """Return, for a person, what an answer without a token means."""
    errors = json_object(response).get("errors")
    said = response.text
    if isinstance(errors, list) and errors and isinstance(errors[0], dict):
        said = str(errors[0].get("message") or "")
    told = f"{field} answered HTTP {response.status_code}"
    said = shown(said, secrets)
    told += f" ({said})" if said else ""
    if response.status_code != 401:
        return told
    skew = _skew_seconds(response)
    if skew:
        return f"{told}: the clocks of this machine and the provider's differ by {skew} s"
    return f"{told}: are client_key and client_secret right?"


def _skew_seconds(response: requests.Response) -> int:
    """Return how many seconds the clocks differ; 0 if that is too little to make signatures
    void."""
    try:
        theirs = parsedate_to_datetime(response.headers.get("date", "")).timestamp()
    except (ValueError, OverflowError):
        return 0
    skew = abs(round(epoch_ms() / 1000 - theirs))
    return skew if skew > _SKEW_SECONDS else 0


def _signable(url: str) -> str:
    """Return ``url`` with its query in the form that oauthlib accepts; the parameters are the same.

    The signature is over the decoded parameters. The query of a canonical URL may hold characters
    that browsers send as they are, and percent signs that encode nothing.
    """
    place, mark, query = url.partition("?")
    return place + mark + quote(_STRAY.sub("%25", query), safe=_SIGNABLE) if mark else url


_SIGNABLE = "=&;:%+~,*@!()/?'$"
