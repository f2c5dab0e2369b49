"""Methods of a store that each call one function of a table.

``crawls = read(crawl_rows.every)`` in a store's class is a method: it runs that function in a lane
of the store, with the method's arguments. :class:`greencrawl.store.base.Store` documents the
method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

Db = TypeVar("Db")
P = ParamSpec("P")
T = TypeVar("T")


def read(work: Callable[Concatenate[Db, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Make a method for a query on the server that takes the writes."""
    return _within("_read", work)


def write(work: Callable[Concatenate[Db, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Make a method for a transaction, durable on return."""
    return _within("_write", work)


def scan(work: Callable[Concatenate[Db, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Make a method for a query over many rows; a replica may answer it."""
    return _within("_scan", work)


def steps(work: Callable[Concatenate[Db, P], int]) -> Callable[Concatenate[Any, P], Iterator[int]]:
    """Make a method that repeats a transaction until it drops nothing; yields how many each
    dropped."""
    step = _within("_write", work)

    def method(store: Any, /, *args: P.args, **named: P.kwargs) -> Iterator[int]:
        while dropped := step(store, *args, **named):
            yield dropped

    return method


def drain(
    work: Callable[Concatenate[Db, P], int], most: int
) -> Callable[Concatenate[Any, P], None]:
    """Run transactions until one changes fewer rows than ``most``."""
    step = _within("_write", work)

    def method(store: Any, /, *args: P.args, **named: P.kwargs) -> None:
        while step(store, *args, **named) == most:
            pass

    return method


def _within(lane: str, work: Callable[Concatenate[Db, P], T]) -> Callable[Concatenate[Any, P], T]:
    def method(store: Any, /, *args: P.args, **named: P.kwargs) -> T:
        run: Callable[[Callable[[Db], T]], T] = getattr(store, lane)
        return run(lambda db: work(db, *args, **named))

    return method
