"""``requests`` over our own downloads: a login's requests are paced, counted and bounded like
others.

The session of a login opens no socket. It sends through a function of the authenticator, which
waits for the host's pace and knows which session may ask. The answer becomes a
``requests.Response``, cookies included. ``requests`` follows redirects, each as a new request.
Settings of ``requests`` for sockets – proxies, certificates, time-outs, ``netrc`` – have no effect
here.
"""

from __future__ import annotations

import io
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPMessage
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.structures import CaseInsensitiveDict
from urllib3 import HTTPHeaderDict, HTTPResponse

from greencrawl.schema.errors import GreencrawlError, InvalidUrl
from greencrawl.schema.net.urls import canonicalise, origin_of
from greencrawl.schema.records import Failure, FailureKind, Fetched
from greencrawl.worker import retry
from greencrawl.worker.auth.base import LoginFailed, LoginRefused

Send = Callable[[str, str, Mapping[str, str], bytes], Fetched | Failure]
"""Sends one request: method, canonical URL, header fields, body."""

MAX_BODY_BYTES = 2 * 1024 * 1024
"""A login's request and its decoded answer may have this many bytes."""
MAX_REDIRECTS = 10

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OURS = frozenset({"host", "connection", "content-length", "transfer-encoding", "te", "upgrade"})
"""Header fields that the download sets itself."""
_UNDONE = frozenset({"set-cookie", "content-encoding", "content-length", "transfer-encoding"})
"""Fields of an answer that do not describe its decoded body; cookies are handled separately."""
_UNREAD = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
_SLOW_DOWN = (FailureKind.RATE_LIMITED, FailureKind.UNAVAILABLE)


def session_over(
    send: Send,
    headers: Mapping[str, str],
    trusted: Callable[[str], bool] = lambda url: False,
) -> requests.Session:
    """Return a session whose requests ``send`` makes; ``headers`` (the crawl's) go with each.

    If a redirect leads to another origin, no credentials go along unless ``trusted`` allows the
    canonical URL. Without this trust only ``headers`` and the cookies of that URL are sent, and a
    redirect with a body (307, 308) is refused. If such a redirect leads from TLS to plain http, no
    cookies are sent either.

    The methods of the session raise LoginFailed if there is no answer, and for a 429 or a 503. They
    raise LoginRefused for what is not allowed. They also raise VisitOver and LeaseExpired of
    ``send``, and what ``requests`` itself raises: use :func:`refusals` for that.
    """
    return _Session(_Adapter(send), headers, trusted)


@contextmanager
def refusals(what: str) -> Iterator[None]:
    """Turn any error of ``requests`` in the block into LoginRefused: asking again changes nothing.

    An unforeseen error of a library that reads the site's answer becomes LoginRefused, too:
    otherwise each page would log in again and count a failure. ``what`` names the login. The
    messages of errors are not used: they contain URLs, and URLs may contain secrets.
    """
    try:
        yield
    except requests.RequestException as error:
        raise LoginRefused(f"{what}: {type(error).__name__}{_place(error)}") from None
    except GreencrawlError:
        raise
    except _UNREAD as error:
        raise LoginRefused(f"{what}: {type(error).__name__}{_line(error)}") from None


def _line(error: Exception) -> str:
    """Return the file and line where an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _place(error: requests.RequestException) -> str:
    """Return the status and URL of an answer, as far as they may be shown."""
    status = "" if error.response is None else f" {error.response.status_code}"
    if error.request is None or error.request.url is None:
        return status
    try:
        return f"{status} at {origin_of(canonicalise(error.request.url))}"
    except InvalidUrl:
        return status


class _Session(requests.Session):
    """See :func:`session_over`."""

    def __init__(
        self, adapter: _Adapter, headers: Mapping[str, str], trusted: Callable[[str], bool]
    ) -> None:
        super().__init__()
        self.headers = CaseInsensitiveDict(headers)
        self.trust_env = False
        self.max_redirects = MAX_REDIRECTS
        self.adapters.clear()
        self.mount("https://", adapter)
        self.mount("http://", adapter)
        self._plain = frozenset({*(name.lower() for name in headers), "cookie"})
        self._trusted = trusted
        self._over_tls = False

    def rebuild_auth(
        self, prepared_request: requests.PreparedRequest, response: requests.Response
    ) -> None:
        """Adjust a redirect's request, after it has its body and the jar's cookies."""
        super().rebuild_auth(prepared_request, response)  # type: ignore[no-untyped-call]
        target = _canonical(prepared_request.url or "")
        origin = origin_of(target)
        self._over_tls |= (response.request.url or "").startswith("https:")
        if self._over_tls and target.startswith("http:") and not self._trusted(target):
            # This also applies if one http page leads to another: the jar has cookies that came
            # over TLS.
            prepared_request.headers.pop("Cookie", None)
        if origin == origin_of(_canonical(response.request.url or "")) or self._trusted(target):
            return
        if prepared_request.body:
            raise LoginRefused(
                f"the login was to be sent on to {origin}, which is not among the entry's hosts: "
                "add it there if it is right"
            )
        headers = prepared_request.headers
        for name in [name for name in headers if _text(name).lower() not in self._plain]:
            del headers[name]


class _Adapter(HTTPAdapter):
    """The replacement of the network for ``requests``."""

    def __init__(self, send: Send) -> None:
        super().__init__()
        self._send = send

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        """See :func:`session_over`; the other arguments concern sockets."""
        url = _canonical(request.url or "")
        method = request.method or ""
        if method not in _METHODS:
            raise LoginRefused(f"a login cannot ask {origin_of(url)} by {method[:20]!r}")
        body = _body(request.body, url)
        headers = {
            _text(name): _text(value)
            for name, value in request.headers.items()
            if _text(name).lower() not in _OURS
        }
        answer = self._send(method, url, headers, body)
        if isinstance(answer, Failure):
            raise LoginFailed(answer)
        failure = retry.classify(answer)
        if failure is not None and failure.kind in _SLOW_DOWN:
            raise LoginFailed(failure)
        return self.build_response(request, _received(request, answer))


def _canonical(url: str) -> str:
    try:
        return canonicalise(url)
    except InvalidUrl as error:
        detail = f"the login leads to what is no URL to ask for: {error.reason}"
        raise LoginRefused(detail) from None


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
    """Return what ``requests`` expects of urllib3. ``requests`` reads cookies from the headers of
    its ``original_response``."""
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
