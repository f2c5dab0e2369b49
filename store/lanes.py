"""Methods of a store that are one function of a table each.

``crawls = read(crawl_rows.every)`` in a store's class is a method: it runs that function in a lane
of the store, and hands on its arguments. What it does is told in
:class:`greencrawl.store.base.Store`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

Db = TypeVar("Db")
P = ParamSpec("P")
T = TypeVar("T")


def read(work: Callable[Concatenate[Db, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A question, answered by what takes the writes."""
    return _within("_read", work)


def write(work: Callable[Concatenate[Db, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A transaction, durable on return."""
    return _within("_write", work)


def scan(work: Callable[Concatenate[Db, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A question that reads many rows, perhaps of a replica."""
    return _within("_scan", work)


def steps(work: Callable[Concatenate[Db, P], int]) -> Callable[Concatenate[Any, P], Iterator[int]]:
    """Transactions that go on until one drops nothing; yields how much each dropped."""
    step = _within("_write", work)

    def method(store: Any, /, *args: P.args, **named: P.kwargs) -> Iterator[int]:
        while dropped := step(store, *args, **named):
            yield dropped

    return method


def _within(lane: str, work: Callable[Concatenate[Db, P], T]) -> Callable[Concatenate[Any, P], T]:
    def method(store: Any, /, *args: P.args, **named: P.kwargs) -> T:
        run: Callable[[Callable[[Db], T]], T] = getattr(store, lane)
        return run(lambda db: work(db, *args, **named))

    return method
