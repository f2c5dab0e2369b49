"""The one table of failures: what each kind means, how long to wait, how often to try.

How to read a row: after the *n*-th error of a URL the wait is ``base × 2^(n-1)`` seconds, at most
``cap``. Once the URL has had ``tries`` errors (or the crawl's own ``tries``, if lower) it gets the
final state. This is the retry tuple of the source design: the triple (url, code, errors), or, if
another try follows, the quadruple with the wait.

**URL or host.** A failure that concerns the host would happen to each of its URLs, so the session
ends, the host is blocked, and the rest of its tasks go back without a failure. Only the URL with
this failure counts it. One error per try keeps the number of requests to a dead host finite (its
URLs times ``tries``). The host's own back-off doubles from block to block, so a URL's few tries are
spread over hours.

**Told to wait.** A 429 or 503 with Retry-After says that the server is alive and when to come back.
The host is blocked for the time that it asked for, and such a try weighs only one
:data:`PATIENCE`-th of another try: with the usual five tries, a URL is asked for up to twenty
times. The try still counts, so that a crawl ends even where the answer never changes. Such an
answer to a request for robots.txt has the same weight, and the host is not given up for it. This is
the one row that may go beyond the crawl's ``tries``.

**Proof.** A page that was being read when its process died or stood still is only under suspicion.
It is always tried once more, in a process of its own, and becomes a dead letter only by what it
does there. So even with ``tries`` = 1 there is this second try.

**Typed.** A name that does not exist is tried again, since a zone may be under repair. If a crawl
starts from such a URL alone, a person has probably just typed it and waits for an answer, so the
failure is final at once.

**Request or no request.** A request that was never sent (a name that does not exist, an address
that is forbidden) costs the host nothing and does not block it. Its URLs fail one by one, from the
resolver's cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Literal

from greencrawl.schema.records import Dead, Done, Failure, FailureKind, Fetched, Outcome, Retry

FinalState = Literal["dead", "gone", "excluded"]

PATIENCE = 4
"""A URL gets this many times its tries as long as each answer says when to come back."""
MAX_RETRY_AFTER = 7 * 86_400.0
MAX_WAIT = 86_400.0
"""The longest wait of one URL in seconds; a host's block may be longer."""

_MINUTE = 60.0
_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Policy:
    """A row of the table. ``base`` and ``cap`` are in seconds; ``tries`` includes the first try."""

    concerns: Literal["url", "host"]
    tries: int
    base: float
    cap: float
    final: FinalState
    meaning: str

    def wait(self, errors: int) -> float:
        """Return the seconds to wait after error number ``errors`` (1 is the first)."""
        # Beyond 2^30 the cap is reached long before; the bound keeps the power from overflowing.
        return min(self.cap, self.base * 2.0 ** min(errors - 1, 30))


@dataclass(frozen=True, slots=True)
class Decision:
    """The consequences of a failure.

    ``errors`` is the URL's count with this one. ``wait`` is the seconds until the next try, or None
    when there is none; then ``final`` is the state to record. ``block`` is None when the session
    goes on. Otherwise it ends, and the host is blocked for that many seconds (0: for its own
    back-off, as ``greencrawl.schema.records.HostReport`` says). The failure always counts for the
    URL, never for the other tasks of an ended session.
    """

    outcome: Outcome
    errors: int
    wait: float | None
    final: FinalState | None
    block: float | None


def _final(final: FinalState, meaning: str) -> Policy:
    return Policy("url", 1, 0, 0, final, meaning)


_K = FailureKind

TABLE: Mapping[FailureKind, Policy] = MappingProxyType(
    {
        _K.GONE: _final("gone", "404, 410 or 451: the server says there is nothing"),
        _K.FORBIDDEN: _final("dead", "401, 403 or 407: the server does not allow it"),
        _K.CLIENT_ERROR: _final("dead", "another 4xx: asking again changes nothing"),
        _K.REQUEST_TIMEOUT: Policy(
            "url", 3, 10, 10 * _MINUTE, "dead", "408 or 425: the server asks to try again"
        ),
        _K.RATE_LIMITED: Policy("host", 5, _MINUTE, _HOUR, "dead", "429: requests came too fast"),
        _K.UNAVAILABLE: Policy(
            "host", 5, _MINUTE, _HOUR, "dead", "503: the server is overloaded or being serviced"
        ),
        _K.SERVER_ERROR: Policy("url", 5, 30, _HOUR, "dead", "another 5xx: the server failed"),
        _K.BAD_STATUS: Policy(
            "url", 2, _MINUTE, _HOUR, "dead", "a status that is not valid for this request"
        ),
        _K.DNS_MISSING: Policy(
            "url",
            3,
            5 * _MINUTE,
            _HOUR,
            "dead",
            "no such name, or it has no address; a crawl's only seed is not tried again",
        ),
        _K.DNS_FAILED: Policy("host", 5, _MINUTE, _HOUR, "dead", "the resolver gave no answer"),
        _K.ADDRESS_FORBIDDEN: _final(
            "excluded", "a private or special address, or a port of another protocol"
        ),
        _K.REFUSED: Policy("host", 5, _MINUTE, _HOUR, "dead", "nothing listens on the port"),
        _K.UNREACHABLE: Policy("host", 5, _MINUTE, _HOUR, "dead", "no route to the address"),
        _K.CONNECT_TIMEOUT: Policy("host", 5, _MINUTE, _HOUR, "dead", "no connection in time"),
        _K.TIMEOUT: Policy(
            "url", 3, _MINUTE, _HOUR, "dead", "no complete answer in time, or too slow a body"
        ),
        _K.RESET: Policy("url", 4, 15, 10 * _MINUTE, "dead", "connection lost during the answer"),
        _K.TLS: Policy("url", 2, _HOUR, _HOUR, "dead", "the certificate or the handshake failed"),
        _K.PROTOCOL: Policy("url", 2, _MINUTE, _HOUR, "dead", "the answer is not HTTP"),
        _K.DECODE: Policy("url", 2, _MINUTE, _HOUR, "dead", "the content-encoding is damaged"),
        _K.REDIRECT: _final(
            "dead", "too many redirects, or one to the same URL or to no valid URL"
        ),
        _K.ROBOTS: _final("excluded", "disallowed by robots.txt; no request was made"),
        _K.ROBOTS_UNREACHABLE: Policy(
            "host", 5, 10 * _MINUTE, 12 * _HOUR, "dead", "robots.txt cannot be read: all disallowed"
        ),
        _K.PROCESS_DEATH: Policy(
            "url", 3, 5, 10 * _MINUTE, "dead", "the page killed the process that read it"
        ),
        _K.STALLED: Policy(
            "url", 3, 5, 10 * _MINUTE, "dead", "the page hung the process that read it"
        ),
        _K.COSTLY: _final(
            "dead", "parsing took too long, or the host's pages together took too much CPU"
        ),
        _K.DENSE: _final(
            "dead",
            "a large page that came as very few bytes; it was read in a process of its "
            "own, and is stored",
        ),
        _K.HOOK: _final("dead", "a function of the hook raised; requeue after you corrected it"),
        _K.KERNEL: _final(
            "dead",
            "a kernel of yours raised, or asked for what it may not; requeue after you corrected "
            "it",
        ),
        _K.PARSE: _final("dead", "extraction raised"),
        _K.LINKS: _final(
            "dead",
            "more links than are followed, or more URLs in a style sheet than are kept; the page "
            "is stored",
        ),
        _K.SITEMAP: _final(
            "dead", "the sitemap cannot be read; URLs from before the damage are kept"
        ),
        _K.LOGIN: Policy(
            "host",
            10,
            _HOUR,
            24 * _HOUR,
            "dead",
            "the login was refused, or failed; pages wait, and this is no attempt of theirs",
        ),
        _K.LOGGED_OUT: Policy(
            "url", 3, 2 * _MINUTE, _HOUR, "dead", "the page asks for a login just after one"
        ),
        _K.BODY_AWAY: Policy(
            "url",
            5,
            _MINUTE,
            _HOUR,
            "dead",
            "the stored page is to be read again, but the file of its body cannot be read; no "
            "request was made",
        ),
    }
)

_KIND_OF_STATUS = MappingProxyType(
    {
        401: _K.FORBIDDEN,
        403: _K.FORBIDDEN,
        404: _K.GONE,
        407: _K.FORBIDDEN,
        408: _K.REQUEST_TIMEOUT,
        410: _K.GONE,
        425: _K.REQUEST_TIMEOUT,
        429: _K.RATE_LIMITED,
        451: _K.GONE,
        503: _K.UNAVAILABLE,
    }
)
GIVE_UP_FAILURES = 9
"""Sessions in a row that a host must fail before the next failure gives up its queue.

With blocks of 30 s that double up to an hour, this is about five hours.
"""
GIVEN_UP_BLOCK = 60.0
"""Seconds between two tries of a host whose queue is being given up."""
_DOWN = frozenset(
    {
        _K.DNS_FAILED,
        _K.REFUSED,
        _K.UNREACHABLE,
        _K.CONNECT_TIMEOUT,
        _K.ROBOTS_UNREACHABLE,
        _K.COSTLY,
        _K.LOGIN,
    }
)
REDIRECTS = frozenset({301, 302, 303, 307, 308})


def classify(fetched: Fetched) -> Failure | None:
    """Return the failure for an answer's status; None for 2xx and redirects with a target.

    ``retry_after`` is in seconds, at most seven days (RFC 9110, section 10.2.3). A date there is
    measured from the answer's own Date header, so that a wrong clock on either side cancels out.
    """
    status = fetched.status
    if 200 <= status < 300:
        return None
    if status in REDIRECTS:
        if fetched.headers.get("location", "").strip():
            return None
        return Failure(_K.REDIRECT, f"{status} without Location", status)
    kind = _KIND_OF_STATUS.get(status)
    if kind is None:
        family = {4: _K.CLIENT_ERROR, 5: _K.SERVER_ERROR}
        kind = family.get(status // 100, _K.BAD_STATUS)
    return Failure(kind, f"HTTP {status}", status, _retry_after(fetched))


def _retry_after(fetched: Fetched) -> float | None:
    text = fetched.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        # Beyond ten digits the cap is reached in any case, and int() would be slow.
        return min(float(text[:10]), MAX_RETRY_AFTER)
    until = _epoch_seconds(text)
    if until is None and fetched.status == 429:
        until = _reset(fetched.headers)
    if until is None:
        return None
    now = _epoch_seconds(fetched.headers.get("date", ""))
    seconds = until - (fetched.fetched_ms / 1000 if now is None else now)
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


def _reset(headers: Mapping[str, str]) -> float | None:
    """Return when a rate limit ends (seconds since 1970), for APIs that send no Retry-After.

    No standard says what the number counts; it is used only if it is a moment of these decades.
    """
    for name in ("x-rate-limit-reset", "x-ratelimit-reset"):
        text = headers.get(name, "").strip()
        if text.isascii() and text.isdigit() and len(text) == 10:
            return float(text)
    return None


def _epoch_seconds(date: str) -> float | None:
    """Return the seconds since 1970 of an HTTP date, or None if it is invalid."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return None


def decide(
    failure: Failure, errors: int, max_tries: int, *, proven: bool = True, typed: bool = False
) -> Decision:
    """Decide what follows from ``failure`` of a URL that had ``errors`` errors before.

    ``max_tries`` is the crawl's own bound on every row. A failure that is not ``proven`` is never
    final. ``typed``: the crawl starts from this URL alone. Pure.
    """
    policy = TABLE[failure.kind]
    kind = str(failure.kind)
    errors += 1
    asked = failure.retry_after or 0.0
    block = asked if policy.concerns == "host" else None
    tries = min(policy.tries, max_tries)
    if typed and failure.kind is _K.DNS_MISSING:
        tries = 1
    if told_to_wait(failure):
        tries *= PATIENCE
    if errors >= tries and proven:
        outcome = Dead(kind) if policy.final == "dead" else Done(kind=kind)
        return Decision(outcome, errors, None, policy.final, block)
    # If the answer says how long to wait, that time counts; otherwise the table's wait does.
    wait = min(asked or policy.wait(errors), MAX_WAIT)
    return Decision(Retry(wait, kind), errors, wait, None, block)


def passes(failure: Failure) -> bool:
    """Return whether the failure may pass, so that a page would be tried again."""
    return TABLE[failure.kind].tries > 1


def told_to_wait(failure: Failure) -> bool:
    """Return whether the failure is a 429 or 503, of a page or of robots.txt, that says when to
    come back."""
    return bool(failure.retry_after) and (
        failure.kind in (_K.RATE_LIMITED, _K.UNAVAILABLE)
        or (failure.kind == _K.ROBOTS_UNREACHABLE and failure.code in (429, 503))
    )


def give_up(kind: str, host_failures: int, errors: int) -> Decision | None:
    """Return the final decision for a URL of a host that is down for good; None if it may come
    back.

    If a host failed at every session for a long time, the rest of its queue is given up, instead of
    asking ``tries`` times for each URL. ``host_failures`` counts its failures in a row, with blocks
    that double in between. 429 and 503 do not count: they show that the host is alive.
    """
    down = kind in _DOWN and host_failures >= GIVE_UP_FAILURES
    return Decision(Dead(kind), errors + 1, None, "dead", GIVEN_UP_BLOCK) if down else None


def _duration(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def markdown_table() -> str:
    """Return the table as Markdown, one row a failure kind, for the documentation."""
    lines = [
        "| failure | meaning | concerns | tries | wait: first, at most | in the end |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for kind, policy in TABLE.items():
        again = policy.tries > 1
        wait = f"{_duration(policy.base)}, {_duration(policy.cap)}" if again else "–"
        cells = (f"`{kind}`", policy.meaning, policy.concerns, str(policy.tries), wait)
        lines.append(f"| {' | '.join(cells)} | {policy.final} |")
    return "\n".join(lines) + "\n"
