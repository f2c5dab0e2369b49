"""``requests`` on our own downloads: a login's requests are paced, counted and bounded like others.

The session that a login uses opens no socket. What it sends goes through a function of the
keeper's, which waits for the host's pace and knows whose session may ask; what comes back is made
a ``requests.Response``, cookies and all, and ``requests`` follows redirects, each of them another
request. Settings of ``requests`` for sockets – proxies, certificates, time-outs, ``netrc`` – have
no meaning here.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPMessage
from types import SimpleNamespace
from typing import Any, TypeVar

import requests
from requests.adapters import HTTPAdapter
from requests.structures import CaseInsensitiveDict
from urllib3 import HTTPHeaderDict, HTTPResponse

from schema.errors import InvalidUrl
from schema.records import Failure, FailureKind, Fetched
from schema.urls import canonicalise, origin_of
from worker import retry
from worker.auth.base import LoginFailed, LoginRefused

Send = Callable[[str, str, Mapping[str, str], bytes], Fetched | Failure]
"""One request: method, canonical URL, header fields, body."""

MAX_BODY_BYTES = 2 * 1024 * 1024
"""Of a login's request and of its answer, the latter after content-encoding."""
MAX_REDIRECTS = 10

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OURS = frozenset({"host", "connection", "content-length", "transfer-encoding", "te", "upgrade"})
"""Header fields that the download sets by itself."""
_UNDONE = frozenset({"set-cookie", "content-encoding", "content-length", "transfer-encoding"})
"""Fields of an answer that no longer hold for its body as it is here; cookies come apart."""
_SLOW_DOWN = (FailureKind.RATE_LIMITED, FailureKind.UNAVAILABLE)

Session = TypeVar("Session", bound=requests.Session)


def session_over(
    send: Send,
    headers: Mapping[str, str],
    trusted: Callable[[str], bool] | None = None,
) -> requests.Session:
    """A session whose requests ``send`` makes; ``headers`` (the crawl's) go with each of them.

    ``trusted`` says of a canonical URL whether what proves who asks may go there. Elsewhere a
    request has only ``headers`` and the cookies that belong there, and one with a body is refused.
    Without ``trusted``, a body does not follow a redirect to another origin.

    Its methods raise LoginFailed where no answer came, or a 429 or 503; LoginRefused for what is
    not allowed; VisitOver and LeaseExpired of ``send``; and what ``requests`` itself raises, for
    which there is :func:`refusals`.
    """
    session = requests.Session()
    session.headers = CaseInsensitiveDict(headers)
    _equip(session, _Adapter(send, headers, trusted))
    return session


def alike(session: requests.Session, other: Session) -> Session:
    """Make ``other`` – a session of another class, without cookies – send as ``session`` does."""
    other.headers = CaseInsensitiveDict(session.headers)
    adapter = session.get_adapter("https://")
    _equip(other, adapter)
    return other


def _equip(session: requests.Session, adapter: requests.adapters.BaseAdapter) -> None:
    session.trust_env = False
    session.max_redirects = MAX_REDIRECTS
    session.adapters.clear()
    session.mount("https://", adapter)
    session.mount("http://", adapter)


@contextmanager
def refusals(what: str) -> Iterator[None]:
    """Whatever ``requests`` raises in the body becomes LoginFailed or LoginRefused.

    ``what`` names the login. The messages of ``requests`` are not taken over: URLs are in them,
    and secrets may be in those.
    """
    try:
        yield
    except requests.TooManyRedirects:
        detail = f"{what}: more than {MAX_REDIRECTS} redirects"
        raise LoginFailed(Failure(FailureKind.REDIRECT, detail, requests=0)) from None
    except requests.RequestException as error:
        raise LoginRefused(f"{what}: {type(error).__name__}{_place(error)}") from None


def _place(error: requests.RequestException) -> str:
    """What was answered and where, as far as it may be shown."""
    status = "" if error.response is None else f" {error.response.status_code}"
    if error.request is None or error.request.url is None:
        return status
    try:
        return f"{status} at {origin_of(canonicalise(error.request.url))}"
    except InvalidUrl:
        return status


class _Adapter(HTTPAdapter):
    """What ``requests`` takes for the network."""

    def __init__(
        self, send: Send, headers: Mapping[str, str], trusted: Callable[[str], bool] | None
    ) -> None:
        super().__init__()
        self._send = send
        self._plain = frozenset(name.lower() for name in headers)
        self._trusted = trusted

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        """See :func:`session_over`; what else is given tells how to use sockets."""
        url = _canonical(request.url or "")
        method = request.method or ""
        if method not in _METHODS:
            raise LoginRefused(f"a login cannot ask {origin_of(url)} by {method[:20]!r}")
        body = _body(request.body, url)
        asked = request
        if self._trusted is not None and not self._trusted(url):
            if body:
                raise _untrusted(url)
            asked = self._stripped(request)
        headers = {
            _text(name): _text(value)
            for name, value in asked.headers.items()
            if _text(name).lower() not in _OURS
        }
        answer = self._send(method, url, headers, body)
        if isinstance(answer, Failure):
            raise LoginFailed(answer)
        failure = retry.classify(answer)
        if failure is not None and failure.kind in _SLOW_DOWN:
            raise LoginFailed(failure)
        if self._trusted is None and body and answer.status in (307, 308) and answer.location:
            target = _canonical(answer.location, url)
            if origin_of(target) != origin_of(url):
                raise _untrusted(target)
        return self.build_response(request, _received(request, answer))

    def _stripped(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """A request with nothing but the crawl's headers, and the cookies that are for its URL."""
        bare = request.copy()
        for name in list(bare.headers):
            if _text(name).lower() not in self._plain:
                del bare.headers[name]
        bare.prepare_cookies(bare._cookies)  # type: ignore[attr-defined]
        return bare


def _canonical(url: str, base: str | None = None) -> str:
    try:
        return canonicalise(url, base)
    except InvalidUrl as error:
        detail = f"the login leads to what is no URL to ask for: {error.reason}"
        raise LoginRefused(detail) from None


def _untrusted(url: str) -> LoginRefused:
    origin = origin_of(url)
    return LoginRefused(
        f"the login was to be sent to {origin}, which is not among the entry's hosts: "
        "add it there if it is right"
    )


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _body(body: Any, url: str) -> bytes:
    data = body.encode() if isinstance(body, str) else b"" if body is None else body
    if not isinstance(data, bytes) or len(data) > MAX_BODY_BYTES:
        raise LoginRefused(
            f"a login's request to {origin_of(url)} must have its body at once, "
            f"of {MAX_BODY_BYTES} bytes at most"
        )
    return data


def _received(request: requests.PreparedRequest, answer: Fetched) -> HTTPResponse:
    """What ``requests`` expects of urllib3. It reads cookies from the headers below that."""
    headers = HTTPHeaderDict({k: v for k, v in answer.headers.items() if k not in _UNDONE})
    if answer.location:
        headers["location"] = answer.location
    below = HTTPMessage()
    for cookie in answer.cookies:
        headers.add("set-cookie", cookie)
        below["Set-Cookie"] = cookie
    return HTTPResponse(
        body=io.BytesIO(answer.body),
        headers=headers,
        status=answer.status,
        preload_content=False,
        original_response=SimpleNamespace(  # type: ignore[arg-type]
            msg=below, isclosed=lambda: True, close=lambda: None
        ),
        request_method=request.method,
        request_url=request.url,
    )
