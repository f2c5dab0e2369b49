"""Why a request of ``requests`` failed, in the words of the crawler's kinds of failure."""

from __future__ import annotations

import errno
import http.client
import socket
import ssl
from collections.abc import Iterator

import requests
import urllib3

from greencrawl.schema.records import FailureKind

_NO_SUCH_NAME = (socket.EAI_NONAME, socket.EAI_NODATA)
_DEEPEST = 10
NOT_REQUESTABLE = "not a URL that can be requested"


def reason(error: Exception) -> str:
    """Return what failed, for people: ``connection refused``, ``the server answered 404``."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code}"
    if isinstance(error, requests.TooManyRedirects):
        return "too many redirects"
    whose = "the proxy: " if isinstance(error, requests.exceptions.ProxyError) else ""
    for cause in _causes(error):
        if kind := _kind(cause):
            detail = _detail(cause)
            return f"{whose}{kind.label}{detail and f': {detail}'}"
    if isinstance(error, requests.ConnectionError):
        return f"{whose}{FailureKind.UNREACHABLE.label}"
    return NOT_REQUESTABLE if isinstance(error, ValueError) else "it failed"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Return an error, and those that led to it."""
    cause: BaseException | None = error
    for _ in range(_DEEPEST):
        if cause is None:
            return
        yield cause
        inner = [getattr(cause, "reason", None), *cause.args, cause.__cause__, cause.__context__]
        cause = next((one for one in inner if isinstance(one, BaseException)), None)


def _kind(error: BaseException) -> FailureKind | None:
    """Return the kind of failure of one error, None if it does not tell."""
    if isinstance(error, socket.gaierror):
        missing = error.errno in _NO_SUCH_NAME
        return FailureKind.DNS_MISSING if missing else FailureKind.DNS_FAILED
    if isinstance(error, requests.ConnectTimeout):
        return FailureKind.CONNECT_TIMEOUT
    if isinstance(error, TimeoutError) and error.errno == errno.ETIMEDOUT:
        return FailureKind.CONNECT_TIMEOUT
    if isinstance(error, TimeoutError | urllib3.exceptions.ReadTimeoutError):
        return FailureKind.TIMEOUT
    if isinstance(error, ssl.SSLError):
        return FailureKind.TLS
    if isinstance(error, ConnectionRefusedError):
        return FailureKind.REFUSED
    if isinstance(error, ConnectionError | http.client.IncompleteRead):
        return FailureKind.RESET
    if isinstance(error, http.client.HTTPException):
        return FailureKind.PROTOCOL
    if isinstance(error, urllib3.exceptions.DecodeError):
        return FailureKind.DECODE
    # An OSError without a number is one of requests' own.
    return FailureKind.UNREACHABLE if isinstance(error, OSError) and error.errno else None


def _detail(error: BaseException) -> str:
    """Return what the kind leaves open, "" if nothing."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return error.reason or ""
    told = isinstance(error, ConnectionError | socket.gaierror | TimeoutError)
    return error.strerror or "" if isinstance(error, OSError) and not told else ""
