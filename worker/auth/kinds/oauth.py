"""Parts that both versions of OAuth share: a person's consent, token endpoints, and safe messages.

A person gives consent in a browser. A kind's ``authorize`` makes a :class:`ConsentRequest`; the
person opens its ``url`` and agrees; the URL to which the browser is sent back goes into the kind's
``exchange``, which returns a grant. ``greencrawl login`` leads a person through this.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, urlsplit

import requests
from msgspec import Struct

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.origins import Origins
from greencrawl.schema.net.urls import canonicalise, origin_of
from greencrawl.schema.records import Failure, FailureKind, Fetched
from greencrawl.worker.auth.base import LoginFailed, LoginRefused
from greencrawl.worker.retry import classify

for _name in ("oauthlib", "requests_oauthlib"):
    # At level debug they log tokens and the text that is signed.
    logging.getLogger(_name).setLevel(logging.WARNING)

_LATER = frozenset(
    {
        FailureKind.RATE_LIMITED,
        FailureKind.UNAVAILABLE,
        FailureKind.SERVER_ERROR,
        FailureKind.REQUEST_TIMEOUT,
        FailureKind.BAD_STATUS,
    }
)
_SAID = 200
"""A provider's error message is cut to this many characters."""
_READ = 65_536
_TOKEN = re.compile(r"[\x21-\x7e]{1,8192}")


class ConsentRequest(Struct, frozen=True):
    """A request for a person's consent at ``url``. All except ``url`` is secret until the answer
    comes.

    The answer must carry ``state``, which is the request token in OAuth 1.0a. ``secret`` is the
    verifier of PKCE (RFC 7636), or the secret of the request token. ``redirect_uri`` is where the
    answer goes.
    """

    url: str
    redirect_uri: str
    state: str
    secret: str

    def __repr__(self) -> str:
        return "ConsentRequest(...)"


def consent_answer(answer: str) -> dict[str, str]:
    """Return the parameters of the URL to which the browser was sent back, or of only its query.

    Raises LoginRefused when they say that the person, or the provider, did not agree.
    """
    query = urlsplit(answer.strip()).query or answer.strip().lstrip("?")
    found = dict(parse_qsl(query, max_num_fields=50)) if "=" in query else {}
    if "error" in found or "denied" in found:
        why = shown(found.get("error_description") or found.get("error") or "denied")
        raise LoginRefused(f"consent was not given ({why})")
    return found


def same(given: str, expected: str) -> bool:
    """Return whether two secrets are equal; the comparison takes the same time if they differ."""
    return hmac.compare_digest(given.encode(), expected.encode())


def endpoint(url: str, hosts: Sequence[str], field: str) -> str:
    """Return the canonical URL of an endpoint that gets secrets.

    Raises LoginRefused if ``url`` is missing or invalid, and for an http:// URL unless ``hosts``
    names its origin with http://.
    """
    if not url:
        raise LoginRefused(f"{field} is missing in the crawl's options")
    try:
        found = canonicalise(url)
    except InvalidUrl as error:
        raise LoginRefused(f"{field}: {error.reason}") from None
    if found.startswith("http:") and not Origins(hosts).hold(found):
        origin = origin_of(found)
        raise LoginRefused(
            f'{field} would get secrets without TLS: use https, or write "{origin}" into hosts'
        )
    return found


def settled(response: requests.Response, field: str) -> None:
    """Raise LoginFailed for an answer that may change later, LoginRefused for a redirect.

    A redirect of a token endpoint is not followed: the client's secret would be sent there.
    """
    headers = {key.lower(): value for key, value in response.headers.items()}
    failure = classify(Fetched(response.url, response.status_code, headers, b""))
    if failure is not None and failure.kind in _LATER:
        detail = f"{field} answered {failure.detail}"
        raise LoginFailed(Failure(failure.kind, detail, failure.code, failure.retry_after))
    if 300 <= response.status_code < 400:
        place = _origin(headers.get("location", ""), response.url)
        raise LoginRefused(f"{field} redirects to {place}: write the new URL there")


def _origin(location: str, base: str) -> str:
    try:
        return origin_of(canonicalise(location, base))
    except InvalidUrl:
        return "nowhere"


def json_object(response: requests.Response) -> dict[str, Any]:
    """Return the JSON object in an answer of any type; {} if there is none."""
    try:
        found = json.loads(response.content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def token_text(value: object) -> str:
    """Return a token that may stand in a header. Raises LoginRefused for anything else."""
    if isinstance(value, str) and _TOKEN.fullmatch(value):
        return value
    raise LoginRefused("what the provider gave is no token that a header can carry")


def shown(text: object, secrets: Sequence[str] = ()) -> str:
    """Return a provider's message for a person: short, on one line, and without ``secrets``."""
    said = " ".join(str(text)[:_READ].split())
    for secret in secrets:
        for form in (secret, quote(secret, safe=""), quote_plus(secret)):
            said = said.replace(form, "***") if len(form) > 3 else said
    said = "".join(char if char.isprintable() else "?" for char in said)
    return said if len(said) <= _SAID else f"{said[:_SAID]}…"
