"""The journal: rows for tries that brought no page.

A row is the triple (url, code, errors) if the task ends there, or the quadruple with the wait if
it is tried again. Final states (dead letters, gone, excluded, parked) are rows of finals. Tries
that brought a page are in the page's own row.
"""

from __future__ import annotations

from collections.abc import Callable

from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.records import Attempt, Failure, Fetched, Final, FinalState, Task

_DETAIL = 1000


class Journal:
    """Makes rows for one worker process. ``worker`` is its name; ``clock`` gives Unix ms."""

    def __init__(self, worker: str, clock: Callable[[], int] = epoch_ms) -> None:
        self._worker = worker
        self._clock = clock
        self._last_ms = 0

    def _now(self) -> int:
        """Return Unix ms, never the same twice: it tells the attempts of a URL apart."""
        self._last_ms = max(self._clock(), self._last_ms + 1)
        return self._last_ms

    def attempt(
        self,
        crawl: int,
        fingerprint: int,
        task: Task,
        failure: Failure,
        *,
        errors: int,
        wait: float | None = None,
        elapsed_ms: int = 0,
    ) -> Attempt:
        """Return the triple, or with ``wait`` seconds the quadruple; ``errors`` is the count after
        it.

        An error in a hook is not a failed try: it is noted as a triple, and the count stays as it
        was.
        """
        return Attempt(
            crawl=crawl,
            fingerprint=fingerprint,
            url=task.url,
            code=failure.code,
            kind=str(failure.kind),
            errors=errors,
            wait=wait,
            detail=failure.detail[:_DETAIL],
            at_ms=self._now(),
            elapsed_ms=elapsed_ms,
            worker=self._worker,
        )

    def success(
        self, crawl: int, fingerprint: int, task: Task, fetched: Fetched, kernel: str = ""
    ) -> Attempt:
        """Return the record of a try that brought an answer: the triple, with kind ``ok``.

        ``kernel`` names the kernel that read it, "" for the default one.
        """
        return Attempt(
            crawl=crawl,
            fingerprint=fingerprint,
            url=task.url,
            code=fetched.status,
            kind="ok",
            errors=task.errors,
            detail=f"kernel {kernel}" if kernel else "",
            at_ms=fetched.fetched_ms,
            elapsed_ms=fetched.elapsed_ms,
            worker=self._worker,
        )

    def final(
        self,
        crawl: int,
        fingerprint: int,
        task: Task,
        state: FinalState,
        kind: str,
        *,
        detail: str = "",
        code: int = 0,
        shape: str = "",
    ) -> Final:
        """Return the final state of a URL without a stored page."""
        return Final(
            crawl=crawl,
            fingerprint=fingerprint,
            url=task.url,
            state=state,
            kind=kind,
            detail=detail[:_DETAIL],
            shape=shape,
            code=code,
            depth=task.depth,
            level=task.level,
            at_ms=self._now(),
            task=task.kind,
        )
