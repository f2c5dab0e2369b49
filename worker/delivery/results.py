"""The result of a task: the rows and the outcome for the writer.

There is no I/O here. The pipeline gives the outcome of a task; the store may refuse it afterwards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from operator import attrgetter

import msgspec
from msgspec import Struct, field

from greencrawl.schema.records import (
    TRAP,
    Attempt,
    Check,
    Dead,
    Done,
    Failure,
    FailureKind,
    Fetched,
    Final,
    HookRun,
    Outcome,
    Retry,
    Stamp,
    StoredPage,
    Task,
    TaskKind,
)
from greencrawl.store.errors import Unstorable
from greencrawl.worker.delivery.attempts import Journal
from greencrawl.worker.hooks import stable
from greencrawl.worker.retry import Decision, passes
from greencrawl.worker.session.held import HeldSession

ACTION = "action"
"""The kind of a URL that is not asked for since it logs out or changes something."""
UNCHANGED = "unchanged"
"""The kind of a refetch that found the page unchanged."""
SURPLUS_SECONDS = 60.0
"""A task whose page was beyond the limit waits this long; by then the crawl is done."""
RELEASED_SECONDS = 2.0
"""A task that was parked while its shape was released waits this long; by then workers know."""
_TASK_BYTES = 2048
_URL_OF = attrgetter("url")
_SHOWN = 300
"""A shape, and the reason why its URLs are parked, have at most this many characters."""


class Result(Struct, kw_only=True):
    """The result of one task: rows to store, and the outcome to report afterwards."""

    held: HeldSession
    task: int
    outcome: Outcome
    page: StoredPage | None = None
    attempts: list[Attempt] = field(default_factory=list)
    finals: list[Final] = field(default_factory=list)
    hooks: HookRun | None = None
    check: Check | None = None
    weight: int = 0
    """The value of ``bytes`` when the result was handed over: the writer needs it three times."""

    @property
    def bytes(self) -> int:
        """Return about how many bytes of memory it takes."""
        if self.page is None:
            return _TASK_BYTES
        page = self.page
        links = 100 * len(page.links) + sum(map(len, map(_URL_OF, page.links)))
        return _TASK_BYTES + len(page.body) + len(page.text) + len(page.items) + links

    def mark_unstorable(self, error: Unstorable) -> bool:
        """Make the task a dead letter if the store refused it; otherwise return False."""
        page = self.page
        if page is None or page.url != error.url:
            return False
        self.page, self.attempts, self.hooks = None, [], None
        final = Final(
            crawl=page.crawl,
            fingerprint=page.fingerprint,
            url=page.url,
            state="dead",
            kind=str(FailureKind.PARSE),
            detail=str(error),
            code=page.status,
            depth=page.depth,
            at_ms=page.fetched_ms,
        )
        self.finals = [final]
        self.outcome = Dead(kind=final.kind)
        return True

    def give_back(self, refused: Collection[tuple[int, int]]) -> None:
        """Undo the result if the store refused it: the task waits, without a failure.

        The store refuses a page beyond the crawl's limit, and a parked URL whose shape was released
        meanwhile.
        """
        page = self.page
        if page is not None and (page.crawl, page.fingerprint) in refused:
            self.page, self.hooks, self.finals = None, None, []
            self.outcome = Retry(wait=SURPLUS_SECONDS, kind="surplus", charge=False)
        if any(
            last.state == "parked" and (last.crawl, last.fingerprint) in refused
            for last in self.finals
        ):
            self.finals = []
            self.outcome = Retry(wait=RELEASED_SECONDS, kind="released", charge=False)

    def apply(self, stamp: Stamp) -> None:
        """Apply a stamp: undo what the store has refused, and have retired URLs forgotten."""
        if stamp.refused:
            self.give_back(stamp.refused)
        if stamp.retired:
            self.forget(stamp.retired)

    def forget(self, retired: Collection[tuple[int, int]]) -> None:
        """Have URLs forgotten that are gone, and not asked for any more."""
        if isinstance(self.outcome, Done) and any(
            (last.crawl, last.fingerprint) in retired for last in self.finals
        ):
            self.outcome = msgspec.structs.replace(self.outcome, forget=True)


class Results:
    """Makes results for one worker process.

    ``fingerprint`` returns the signed 64-bit fingerprint of a canonical URL.
    """

    def __init__(self, journal: Journal, fingerprint: Callable[[str], int]) -> None:
        self._journal = journal
        self._fingerprint = fingerprint

    def number_of(self, url: str) -> int:
        """Return the fingerprint of a canonical URL."""
        return self._fingerprint(url)

    def failed(
        self,
        held: HeldSession,
        crawl: int,
        task: Task,
        failure: Failure,
        decision: Decision,
        elapsed_ms: int = 0,
    ) -> Result:
        """Make the rows of a failed try: its attempt, and its final state if no further try
        follows.

        A guessed sitemap has one try. It leaves only an attempt, and only if the failure may pass.
        """
        guess = task.kind == TaskKind.SITEMAP_GUESS
        if guess and not passes(failure):
            return self.settled(held, task)
        fingerprint = self._fingerprint(task.url)
        attempt = self._journal.attempt(
            crawl,
            fingerprint,
            task,
            failure,
            errors=decision.errors,
            wait=None if guess else decision.wait,
            elapsed_ms=elapsed_ms,
        )
        if guess:
            return Result(held=held, task=task.number, outcome=Done(), attempts=[attempt])
        result = Result(held=held, task=task.number, outcome=decision.outcome, attempts=[attempt])
        if decision.final is not None:
            final = self._journal.final(
                crawl,
                fingerprint,
                task,
                decision.final,
                str(failure.kind),
                detail=failure.detail,
                code=failure.code,
            )
            result.finals.append(final)
        return result

    def settled(self, held: HeldSession, task: Task) -> Result:
        """Make a result without rows, for a task that is no page, or for a guessed sitemap."""
        return Result(held=held, task=task.number, outcome=Done())

    def excluded(self, held: HeldSession, crawl: int, task: Task, kind: str, detail: str) -> Result:
        """Make the final state of a URL that is not requested: ``kind``: "scope", "robots",
        "action"."""
        if task.kind == TaskKind.SITEMAP_GUESS:
            return self.settled(held, task)
        fingerprint = self._fingerprint(task.url)
        final = self._journal.final(crawl, fingerprint, task, "excluded", kind, detail=detail)
        return Result(held=held, task=task.number, outcome=Done(kind=kind), finals=[final])

    def skipped(self, crawl: int, task: Task, links: Mapping[str, str]) -> list[Final]:
        """Make final states of a page's links that log out or change something; ``links`` has the
        reasons.

        If a page leads to such a URL in another way, and it is fetched, its final state is removed.
        """
        return [
            self._journal.final(
                crawl,
                self._fingerprint(url),
                Task(number=0, url=url, depth=task.depth + 1),
                "excluded",
                ACTION,
                detail=why,
            )
            for url, why in links.items()
        ]

    def parked(self, held: HeldSession, crawl: int, task: Task, shape: str, detail: str) -> Result:
        """Make the final state of a URL of a ``shape`` that is not to be fetched now, and why.

        No request was made. The URL waits in SQL until a person releases it.
        """
        if task.kind == TaskKind.SITEMAP_GUESS:
            return self.settled(held, task)
        final = self._journal.final(
            crawl, self._fingerprint(task.url), task, "parked", TRAP,
            detail=detail[:_SHOWN], shape=shape[:_SHOWN],
        )  # fmt: skip
        return Result(held=held, task=task.number, outcome=Done(kind="parked"), finals=[final])

    def page(self, crawl: int, task: Task, fetched: Fetched) -> StoredPage:
        """Make the page without what is read in it, and without headers that hold secrets.

        Such headers are cookies, and a Location that may hold a password. The target of a redirect
        is in ``final_url``.
        """
        headers = dict(fetched.headers)
        headers.pop("set-cookie", None)
        if "@" in headers.get("location", ""):
            del headers["location"]
        return StoredPage(
            crawl=crawl,
            fingerprint=self._fingerprint(task.url),
            url=task.url,
            final_url=task.url,
            status=fetched.status,
            headers=headers,
            fetched_ms=fetched.fetched_ms,
            elapsed_ms=fetched.elapsed_ms,
            depth=task.depth,
            body=fetched.body,
            truncated=fetched.truncated,
            digest=hashlib.sha256(fetched.body).digest()[:16],
            request=fetched.request,
            task=task.kind,
        )

    def stored(
        self,
        held: HeldSession,
        task: Task,
        fetched: Fetched,
        page: StoredPage,
        warnings: Mapping[FailureKind, str],
        rewritten: int = 0,
        kernel: str = "",
    ) -> Result:
        """Make a page and its attempt. A page counts as stored if its status is 2xx, as in the
        store.

        ``warnings``, for example that the page was costly, are journalled before its attempt; the
        first warning is counted as a failure by its kind. A page without warnings whose content is
        withheld is counted by the reason. ``rewritten`` counts its links that ``normalise`` has
        changed. ``kernel`` has read it, "" for the default one.
        """
        done = Done(page.status // 100 == 2, fetched.wire_bytes, rewritten=rewritten)
        if done.stored and page.directives is not None and page.directives.withheld:
            done = msgspec.structs.replace(done, kind=page.directives.withheld)
        result = Result(
            held=held,
            task=task.number,
            outcome=done,
            page=page,
            attempts=[self._journal.success(page.crawl, page.fingerprint, task, fetched, kernel)],
        )
        if warnings:
            result.attempts[:0] = [
                self._journal.attempt(
                    page.crawl,
                    page.fingerprint,
                    task,
                    Failure(kind, note, fetched.status),
                    errors=task.errors,
                )
                for kind, note in warnings.items()
            ]
            result.outcome = msgspec.structs.replace(done, kind=str(next(iter(warnings))))
        return result

    def unchanged(self, held: HeldSession, task: Task, fetched: Fetched) -> Result:
        """Make the result of an unchanged page: its attempt, with the code 304, and no version."""
        crawl, number = held.session.crawl, self._fingerprint(task.url)
        return Result(
            held=held,
            task=task.number,
            outcome=Done(bytes=fetched.wire_bytes, kind=UNCHANGED),
            attempts=[self._journal.success(crawl, number, task, fetched)],
            check=Check(
                crawl=crawl,
                fingerprint=number,
                at_ms=fetched.fetched_ms,
                url=task.url,
                depth=task.depth,
                task=task.kind,
            ),
        )

    def note_hooks(
        self, crawl: int, task: Task, result: Result, problems: Mapping[str, str], at_ms: int
    ) -> None:
        """Add to ``result`` the errors that the user's functions raised for the fetch at ``at_ms``.

        ``problems`` has what each function raised; it is empty if all succeeded. ``at_ms`` counts
        from 1970.
        """
        fingerprint = self._fingerprint(task.url)
        result.attempts[:0] = [
            self._journal.attempt(
                crawl,
                fingerprint,
                task,
                Failure(FailureKind.HOOK, f"{function}: {what}"),
                errors=task.errors,
            )
            for function, what in problems.items()
        ]
        result.hooks = HookRun(
            crawl=crawl,
            fingerprint=fingerprint,
            url=task.url,
            at_ms=at_ms,
            failures={name: stable(what, task.url) for name, what in problems.items()},
        )
