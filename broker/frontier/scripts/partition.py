"""Python's side of each script: what goes in as msgpack, what comes back as records.

Functions here are pure: they build ``(partition, arguments)`` calls and read replies.
:class:`greencrawl.broker.frontier.scripts.calls.Scripts` sends them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec

from greencrawl.schema.net.urls import task_path, task_url
from greencrawl.schema.records import (
    STOPPING_NOW,
    Admission,
    CloseItem,
    Crawl,
    Done,
    FinishItem,
    HostState,
    Mark,
    ReconcileRequest,
    ReleaseItem,
    Retry,
    Session,
    Task,
    pack_redirects,
    unpack_redirects,
)
from greencrawl.schema.wire import to_msgpack

LONGEST_BLOCK_SECONDS = 7 * 86_400
FIRST_BACKOFF_SECONDS = 30
"""A failing host's first block; each further one is twice as long, up to an hour."""

LEVEL_A = ord("A")


def value_of(item: Admission) -> str:
    """Return what is queued: the level's character, then
    ``depth[,redirects,errors,deliveries]path``.

    The kind is packed with the redirects. A script may add a mark after the deliveries.
    """
    if number := pack_redirects(item):
        return f"{chr(LEVEL_A + item.level)}{item.depth},{number},0,0{task_path(item.url)}"
    return f"{chr(LEVEL_A + item.level)}{item.depth}{task_path(item.url)}"


def task_of(task: int, host: str, value: str) -> Task:
    """Return a leased task from its level character and entry."""
    level, end = ord(value[0]) - LEVEL_A, 1
    while value[end].isdigit() or value[end] == ",":
        end += 1
    counts = [int(part) for part in value[1:end].split(",")]
    depth, number, errors, deliveries = (*counts, 0, 0, 0)[:4]
    redirects, kind = unpack_redirects(number)
    return Task(
        number=task,
        url=task_url(host, value[end:]),
        depth=depth,
        level=level,
        redirects=redirects,
        errors=errors,
        deliveries=deliveries + 1,
        kind=kind,
    )


def blob(data: bytes) -> msgspec.Raw:
    """Return bytes for a script as a msgpack string: Lua knows no binary type. Scripts do not read
    these bytes."""
    return msgspec.Raw(b"\xdb" + len(data).to_bytes(4, "big") + data)


class Drain(NamedTuple):
    """Tasks of a host to drop: values that ``lua/queue/drain.lua`` named, and fingerprints."""

    waiting: Sequence[str] = ()
    later: Sequence[str] = ()
    overflow: Sequence[int] = ()


class Drained(NamedTuple):
    """The answer of ``lua/queue/drain.lua``. ``at`` is -1 once all retries were read."""

    removed: int
    next: Drain
    at: int
    left: int


def drained(reply: Sequence[Any]) -> Drained:
    """Decode the answer of ``lua/queue/drain.lua``: how many were dropped, which are next, what is
    left."""
    _, removed, waiting, later, at, left = reply
    following = Drain([value.decode() for value in waiting], [value.decode() for value in later])
    return Drained(removed, following, at, left)


class Mode(IntEnum):
    """How admit handles a batch; see ``lua/queue/admit.lua``."""

    NEW = 0
    FORCE = 1
    MARK = 2
    REFILL = 3
    MARK_SPILLED = 4
    AGAIN = 5


def admit_args(
    crawl: int, mode: Mode, batch: int, rows: Iterable[tuple[int, str, Admission | Mark]]
) -> bytes:
    """Encode rows of (fingerprint, host, item). Fingerprints travel as decimal strings."""
    flat: list[Any] = [crawl, int(mode), batch]
    for fingerprint, host, item in rows:
        if isinstance(item, Mark):
            flat += (str(fingerprint), host, f"{item.kind}{item.bytes}")
        else:
            flat += (str(fingerprint), host, value_of(item))
    return to_msgpack(flat)


def mark_args(crawl: int, rows: Iterable[tuple[int, str, Admission]]) -> bytes:
    """Encode rows of (fingerprint, host, item), which are in the overflow."""
    flat: list[Any] = [crawl]
    for fingerprint, host, item in rows:
        flat += (str(fingerprint), host, chr(LEVEL_A + item.level))
    return to_msgpack(flat)


def state_of(crawl: Crawl) -> str:
    """Return the state of a crawl in a partition; see ``lua/crawls/crawl.lua``.

    A crawl that is done at a limit or stopped still admits links that are found: the limit may be
    raised, or a person may resume it. A resting crawl is like a finished one.
    """
    if crawl.stopping and crawl.reason == STOPPING_NOW:
        return "halt"
    if crawl.finished:
        return "done"
    return "stop" if crawl.state == "done" else crawl.state


def crawl_args(crawl: Crawl, state: str, afresh: bool = False) -> bytes:
    """Return arguments of ``lua/crawls/crawl.lua``: a crawl in this state, its politeness in ms."""
    options = crawl.options
    return to_msgpack(
        [
            crawl.id,
            state,
            round(options.delay * 1000),
            options.slots,
            options.order,
            crawl.revision,
            options.weight,
            crawl.version,
            int(crawl.options.max_pages > 0),
            int(afresh),
            int(options.recrawl is not None and options.recrawl.deepest >= 0),
        ]
    )


def session_of(partition: int, ttl: float, reply: Sequence[Any]) -> Session:
    """Return a session from one element of open's answer."""
    token, crawl, revision, host, delay, floor, robots, failures, traps, *tasks = reply
    name = host.decode()
    return Session(
        session=f"{partition}/{name}",
        token=token.decode(),
        crawl=crawl,
        revision=revision,
        host=name,
        ttl=ttl,
        delay=delay / 1000,
        floor=floor / 1000,
        robots_known=bool(robots),
        failures=failures,
        traps=traps,
        tasks=tuple(task_of(n, name, value.decode()) for n, value in enumerate(tasks, 1)),
    )


def finish_row(item: FinishItem) -> list[Any]:
    """Return one task for ``lua/sessions/finish.lua``: its end, and waits in ms."""
    outcome = item.outcome
    host = item.session.partition("/")[2]
    if isinstance(outcome, Done):
        return [
            item.token,
            host,
            item.task,
            "done",
            outcome.kind,
            0,
            0,
            int(outcome.stored),
            outcome.bytes,
            outcome.rewritten,
            int(outcome.forget),
        ]
    if isinstance(outcome, Retry):
        wait = round(outcome.wait * 1000)
        return [item.token, host, item.task, "retry", outcome.kind, wait, int(outcome.charge), 0, 0]
    return [item.token, host, item.task, "dead", outcome.kind, 0, 0, 0, 0]


def close_row(item: CloseItem) -> list[Any]:
    """Return a session for ``lua/sessions/close.lua``: a host's report in ms, and tasks to
    release."""
    r = item.report
    return [
        item.token, item.session.partition("/")[2], round(r.delay * 1000), round(r.latency * 1000),
        round(r.robots_delay * 1000), int(r.robots), r.failed, round(r.block * 1000), r.requests,
        r.why, blob(r.traps), r.put_off, *item.release,
    ]  # fmt: skip


def reconcile_args(
    request: ReconcileRequest, longest_ms: int, most: int, gone: Iterable[int]
) -> bytes:
    """Encode a reconcile.

    ``longest_ms``: the longest request. ``gone``: incarnations known to have left for good.
    """
    rest = max(longest_ms - round(request.dead_for * 1000), 0)
    return to_msgpack(
        [
            request.worker, request.incarnation, request.sequence, rest, most,
            int(request.leaving), sorted(gone), request.holding, request.dead, request.idle,
        ]
    )  # fmt: skip


def release_row(item: ReleaseItem) -> list[Any]:
    """Return a session for ``lua/sessions/release.lua``: a token, its host, and numbers of
    tasks."""
    return [item.token, item.session.partition("/")[2], *item.tasks]


def fields(flat: Sequence[bytes]) -> dict[str, str]:
    """Return a hash that Lua returned as a list."""
    text = [part.decode() for part in flat]
    return dict(zip(text[::2], text[1::2], strict=True))


def counted(reply: Sequence[Any]) -> list[list[Any]]:
    """Return what ``lua/crawls/count.lua`` answers for several crawls, one answer for each."""
    now, flat, due, maintain_at, owed, *others, state, version = reply
    rows = [(flat, due, state, version)]
    if others:
        shared, numbers = others
        rows += [shared[number - 1] for number in numbers]
    return [
        [now, flat, due, maintain_at, owed, state, version] for flat, due, state, version in rows
    ]


def host_state(
    host: str, partition: int, now_ms: int, h: dict[str, str], waiting: int, why: str
) -> HostState:
    """Return a host's record for an operator; ``delay`` is that of the host alone, without those of
    crawls.

    ``kept`` is only in the answer about one host, not in a list.
    """

    def ms(key: str) -> float:
        return float(h.get(key) or 0)

    return HostState(
        host=host,
        partition=partition,
        delay=max(ms("ad"), ms("rd"), ms("od")) / 1000,
        kept_delay=ms("kept") / 1000,
        sessions=int(ms("busy")),
        waiting=waiting,
        next_in=max(ms("next") - now_ms, 0) / 1000,
        blocked_in=max(ms("till") - now_ms, 0) / 1000,
        block_level=int(ms("lvl")),
        latency=ms("lat") / 1000,
        failures=int(ms("fail")),
        robots_known=ms("rob") > now_ms,
        why=why,
    )
