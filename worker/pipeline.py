"""The life of a task, and the only place that knows the order of the stages.

traps → robots → hook ``request`` → kernel's ``fetch`` (authentication, download) → verdict on the
status → kernel's ``read`` (hooks ``on_page`` and ``links``, link checker) → journal → writer.
``greencrawl.worker.kernels`` knows what an answer is, and which code reads it. A session's tasks go
through it one after another; the writer stores and settles them in the background, in batches.
Steps that run the user's code and libxml are guarded (``greencrawl.worker.process.guarded``).
``greencrawl.worker.delivery.results`` makes the rows and the outcome of a task for the writer.
"""

from __future__ import annotations

from functools import partial

from gevent.event import Event
from msgspec.structs import replace

from greencrawl.broker.frontier import Frontier
from greencrawl.schema.errors import UnknownCrawl
from greencrawl.schema.log import logger
from greencrawl.schema.net.access import is_action
from greencrawl.schema.net.scope import redirect_root
from greencrawl.schema.net.urls import canonicalise
from greencrawl.schema.records import (
    CloseItem,
    Directives,
    Failure,
    FailureKind,
    Fetched,
    StoredPage,
    Task,
    TaskKind,
)
from greencrawl.worker import retry
from greencrawl.worker.auth import Authenticated
from greencrawl.worker.crawls import Crawls, DelayTooShort, Refused, RootStore
from greencrawl.worker.delivery.recall import recall
from greencrawl.worker.delivery.results import ACTION, Results
from greencrawl.worker.delivery.writer import Writer
from greencrawl.worker.directives.folding import Folding
from greencrawl.worker.directives.withholding import withhold
from greencrawl.worker.hooks import HookError
from greencrawl.worker.http.client import Downloader, LeaseExpired
from greencrawl.worker.kernels import choosing
from greencrawl.worker.kernels.http import heard, keeps_body
from greencrawl.worker.kernels.json_list import elsewhere
from greencrawl.worker.kernels.judged import visit_for
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.link_checker import redirect_problem, redirected
from greencrawl.worker.orders.rate import Rate
from greencrawl.worker.process.guarded import Guarded
from greencrawl.worker.process.quarantine import DiedInQuarantine, NoProcess
from greencrawl.worker.refetch import conditions, is_stored, is_unchanged, reread, with_conditions
from greencrawl.worker.robots.cache import RobotsRules
from greencrawl.worker.robots.reservations import SiteReservations
from greencrawl.worker.session.backoff import until_available
from greencrawl.worker.session.fetcher import Visit, VisitOver
from greencrawl.worker.session.held import HeldSession, unused
from greencrawl.worker.session.memory_budget import MemoryBudget
from greencrawl.worker.sitemaps.origins import Origins
from greencrawl.worker.traps.traps import Traps

log = logger("worker")


class Pipeline:
    """The stages of one process. A session's greenlet calls :meth:`run`."""

    def __init__(
        self,
        *,
        store: RootStore,
        frontier: Frontier,
        fetcher: Downloader,
        auth: Authenticated,
        writer: Writer,
        results: Results,
        guarded: Guarded,
        stopping: Event,
        keep_all: bool = False,
        memory_budget: MemoryBudget | None = None,
        crawls: Crawls | None = None,
        rate: Rate | None = None,
        traps: Traps | None = None,
    ) -> None:
        """Build the object; ``keep_all``: bodies of every type are kept, whatever the crawls'
        options say."""
        self._memory_budget = memory_budget or MemoryBudget()
        self._keep_all = keep_all
        self._store = store
        self._frontier = frontier
        self._fetcher = fetcher
        self._auth = auth
        self._writer = writer
        self._results = results
        self._guarded = guarded
        self._stopping = stopping
        self._crawls = crawls or Crawls(store)
        self._rate = rate
        self._robots = RobotsRules(frontier)
        self._reservations = SiteReservations(frontier, self._robots)
        self._folding = Folding(store, frontier.fingerprint)
        self._origins = Origins()
        self._traps = traps or Traps()

    def run(self, held: HeldSession) -> CloseItem | None:
        """Fetch a session's tasks; return how to close it, None if it is not ours any more.

        By then the writer has the fetched pages; unfetched tasks are named for release. Returns
        early when the host fails, the broker asks for it, or the worker stops.
        """
        session = held.session
        try:
            context = self._crawls.of(session)
        # the crawl was deleted or slowed, or needs code that only another worker may have
        except (UnknownCrawl, Refused, DelayTooShort):
            return unused(session)
        visit = Visit(held, context, self._fetcher, self._stopping, self._memory_budget, self._rate)
        visit.judge = self._traps.judge(context, session.host, session.traps)
        visit.conditions = conditions(self._store, self._frontier.fingerprint, context, session)
        begun = 0
        try:
            for task in session.tasks:
                visit.context = self._crawls.latest(visit.context)
                # otherwise a thousand greenlets would have a page each in memory
                self._writer.wait_for_room()
                self._bring_through(visit, task)
                begun += 1
                if visit.failed:
                    break
        except LeaseExpired:
            return None
        except VisitOver:
            if held.lost:
                return None
        rest = session.tasks[begun:]
        if visit.failed:
            rest = self._given_up(visit, rest)
        return CloseItem(
            session=session.session,
            token=session.token,
            report=visit.report(),
            release=tuple(task.number for task in rest),
        )

    def _given_up(self, visit: Visit, tasks: tuple[Task, ...]) -> tuple[Task, ...]:
        """Give up the tasks of a host that is down for good; return those that are to be kept."""
        if visit.told_to_wait:
            return tasks
        kind, failures = visit.failure, visit.held.session.failures
        # these send no requests
        kept = tuple(task for task in tasks if task.kind == TaskKind.REREAD)
        for task in (task for task in tasks if task not in kept):
            decision = retry.give_up(kind, failures, task.errors)
            if decision is None:
                return tasks
            visit.fail(kind, decision.block or 0.0, visit.why)
            if not task.kind.has_row:
                self._writer.put(self._results.settled(visit.held, task))
                continue
            detail = f"given up: the host failed {failures + 1} times in a row"
            detail += f"; {visit.why}" if visit.why else ""
            failure = Failure(FailureKind(kind), detail, requests=0)
            crawl = visit.context.crawl.id
            self._writer.put(self._results.failed(visit.held, crawl, task, failure, decision))
        return kept

    # -- one task

    def _bring_through(self, visit: Visit, task: Task) -> None:
        """Run a task to its end; an unforeseen error counts for it and harms no other."""
        try:
            self._task(visit, task)
        except (LeaseExpired, VisitOver):
            raise
        except DiedInQuarantine as error:
            self._fail(visit, task, Failure(error.kind, str(error)))
        except NoProcess as error:  # not the task's fault
            log.warning("suspect_not_read", reason=str(error))
            raise VisitOver("there is no process to read a suspect in") from error
        except Exception as error:
            log.exception("page_failed", url=task.url)
            self._fail(visit, task, Failure(FailureKind.PARSE, f"{type(error).__name__}: {error}"))
        finally:
            visit.let_go()

    def _task(self, visit: Visit, task: Task) -> None:
        """Bring a task to its outcome. Raises VisitOver or LeaseExpired: then it has none."""
        if task.kind == TaskKind.ERRAND or visit.context.logs_in:
            self._auth.serve(visit)
        if task.kind == TaskKind.ERRAND:
            self._writer.put(self._results.settled(visit.held, task))
            return
        if task.kind == TaskKind.ROBOTS:
            self._answer_robots(visit, task)
            return
        if task.kind == TaskKind.REREAD:
            self._writer.put(reread(self._store, self._results, self._guarded, visit, task))
            return
        if task.deliveries > 1:
            number = self._frontier.fingerprint(task.url)
            recall(self._store, self._writer, visit.context.crawl.id, number)
        reason = self._guarded.excluded_by(visit, task, task.url)
        if reason is not None:  # the crawl's options have changed since it was admitted
            self._exclude(visit, task, ACTION if is_action(reason) else "scope", reason)
            return
        parked = None if task.number in visit.conditions else visit.judge.verdict(task)
        fingerprint, crawl = self._frontier.fingerprint, visit.context.crawl.id
        if parked is not None and not is_stored(self._store, fingerprint, visit, task):
            self._writer.put(self._results.parked(visit.held, crawl, task, *parked))
            return
        asked = self._robots.group(visit, task.url)
        if isinstance(asked, Failure):
            self._fail(visit, task, asked)
            return
        visit.learn_robots(asked.delay)
        line = asked.forbids(task.url)
        if line is not None:
            visit.judge.spare(task)
            self._exclude(visit, task, "robots", f"robots.txt: {line}")
            return
        obeys = visit.context.options.tdm == "obey"
        site = self._reservations.of(visit, task.url) if obeys else None
        problems: dict[str, str] = {}
        answer = self._download(visit, task, problems, site)
        if isinstance(answer, Failure) and answer.kind == FailureKind.LOGIN:
            # Not the page's fault, and no request was sent for it: it waits with the others.
            wait = answer.retry_after or 0.0
            visit.fail(str(answer.kind), wait, answer.detail, told_to_wait=answer.ours)
            raise VisitOver(answer.detail)
        cost = self._guarded.unpacked(visit, answer)
        if is_unchanged(answer, task, visit.conditions):
            self._writer.put(self._results.unchanged(visit.held, task, answer))
            return
        failure = answer if isinstance(answer, Failure) else retry.classify(answer)
        if failure is not None:
            failure = visit.context.kernels.noted(task.url, failure)
            if cost:
                failure = replace(failure, detail="; ".join(filter(None, (failure.detail, cost))))
            took = answer.elapsed_ms if isinstance(answer, Fetched) else 0
            self._fail(visit, task, failure, took, problems)
        elif isinstance(answer, Fetched) and 300 <= answer.status < 400:
            self._redirect(visit, task, answer, problems)
        elif isinstance(answer, Fetched):
            self._page(visit, task, answer, problems, cost)

    def _download(
        self, visit: Visit, task: Task, problems: dict[str, str], site: Directives | None
    ) -> Fetched | Failure:
        context = visit.context
        headers = with_conditions(visit.conditions, task, context.headers_for(task.url))
        if context.hooks.request is not None:
            try:
                headers = self._guarded.request_headers(visit, task, headers)
            except HookError as error:
                problems[error.function] = error.what
        kernel = choosing.fetching(context, task)
        asking_for = visit_for(kernel)(visit, task, self._auth, self._guarded, self._robots)
        answer = self._guarded.fetch(kernel, asking_for, visit, headers)
        if isinstance(answer, Fetched):
            answer.site = site
        return answer

    def _answer_robots(self, visit: Visit, task: Task) -> None:
        """Read a robots.txt of this host for the session of another host, whose robots.txt
        redirects to it. This makes no page and no row."""
        failure = self._robots.answer(visit, task)
        if failure is not None:
            decision = retry.decide(failure, task.errors, visit.context.options.tries)
            if decision.block is not None:
                told = retry.told_to_wait(failure)
                visit.fail(str(failure.kind), decision.block, told_to_wait=told)
        self._writer.put(self._results.settled(visit.held, task))

    # -- outcomes

    def _exclude(self, visit: Visit, task: Task, kind: str, detail: str) -> None:
        held, crawl = visit.held, visit.context.crawl.id
        self._writer.put(self._results.excluded(held, crawl, task, kind, detail))

    def _fail(
        self,
        visit: Visit,
        task: Task,
        failure: Failure,
        elapsed_ms: int = 0,
        problems: dict[str, str] | None = None,
    ) -> None:
        """Journal a failure; the table decides what follows for the URL and for the host."""
        context = visit.context
        typed = task.url == context.only_start
        decision = retry.decide(failure, task.errors, context.options.tries, typed=typed)
        told, crawl = retry.told_to_wait(failure), context.crawl.id
        # A failed guess of a sitemap blocks the host only if the host says when to come back.
        if decision.block is not None and (told or task.kind != TaskKind.SITEMAP_GUESS):
            visit.fail(str(failure.kind), decision.block, told_to_wait=told)
        result = self._results.failed(visit.held, crawl, task, failure, decision, elapsed_ms)
        if problems:
            self._results.note_hooks(crawl, task, result, problems, result.attempts[0].at_ms)
        self._writer.put(result)

    def _redirect(
        self, visit: Visit, task: Task, fetched: Fetched, problems: dict[str, str]
    ) -> None:
        """Admit the target of the redirect; a seed takes its scope along within its domain."""
        location = fetched.location
        problem = redirect_problem(task, location)
        if problem:
            failure = Failure(FailureKind.REDIRECT, problem, fetched.status)
            self._fail(visit, task, failure, fetched.elapsed_ms, problems)
            return
        target = canonicalise(location, task.url)
        context = visit.context
        if moved := elsewhere(context, task.url, target):
            failure = Failure(FailureKind.REDIRECT, moved, fetched.status)
            self._fail(visit, task, failure, fetched.elapsed_ms, problems)
            return
        # then the target is known
        if self._frontier.fingerprint(target) == self._frontier.fingerprint(task.url):
            self._task(visit, replace(task, url=target, redirects=task.redirects + 1))
            return
        if task.is_seed:
            root = redirect_root(context.rules, task.url, target)
            if root is not None:
                log.info("scope_widened", crawl=context.crawl.name, root=root)
                crawl = context.crawl.id
                widened = until_available(lambda: self._store.add_roots(crawl, [root]), "store")
                visit.context = self._crawls.put(widened)
        reason = self._guarded.excluded_by(visit, task, target)
        page = heard(context, fetched, self._results.page(context.crawl.id, task, fetched))
        page.final_url = target
        page.links = [] if reason else [redirected(task, target)]
        visit.judge.note(task, page)
        self._store_page(visit, task, fetched, page, problems, Reading())

    def _page(
        self, visit: Visit, task: Task, fetched: Fetched, problems: dict[str, str], cost: str
    ) -> None:
        """Read the page, if it is to be read. ``cost``: why decoding its encodings was too
        expensive."""
        context, options, guarded = visit.context, visit.context.options, self._guarded
        way = choosing.reading(context, task, fetched)
        if fetched.packed and not way.in_steps:
            guarded.unpack(visit, fetched)
            way = choosing.reading(context, task, fetched)
        if way.page and task.kind is TaskKind.REQUISITE:
            task = guarded.as_page(visit, task)
            way = way if task.kind.is_page else choosing.NOTHING
        if not way.in_steps:
            fetched.cut(options.max_body_bytes)
        fetched.sampled = visit.judge.looks_at(task)
        reading = Reading(failure=way.refused)
        if way.reads:
            self._writer.wait_for_room()  # with its text and links a page is twice as large
            reading = guarded.read(visit, task, fetched, way.kernel)
        failure = way.failure(task, reading, fetched.status)
        if failure is not None:
            self._fail(visit, task, failure, fetched.elapsed_ms, problems)
            return
        row = self._results.page(context.crawl.id, task, fetched)
        if not reading.encoding:  # the reading of a page includes its headers
            heard(context, fetched, row)
        reading.fill(row)
        if not (way.keeps or self._keep_all or keeps_body(options, fetched.content_type)):
            row.body = b""
        visit.judge.note(task, row, way.evidence(reading))
        if way.html and options.canonical == "fold":
            excluded = partial(self._guarded.excluded_by, visit, task, link=True)
            self._folding.fold(visit, task, row, excluded)
        if task.kind.is_page and not way.lists:
            row.links[:0] = self._origins.links(context.crawl, task, self._robots.sitemaps)
        problems |= reading.problems
        self._store_page(visit, task, fetched, row, problems, reading, cost, way.name)

    def _store_page(
        self,
        visit: Visit,
        task: Task,
        fetched: Fetched,
        row: StoredPage,
        problems: dict[str, str],
        reading: Reading,
        cost: str = "",
        kernel: str = "",
    ) -> None:
        """Hand the page to the writer, with the other results in ``reading``.

        ``cost`` is the reason why a page was costly; ``kernel`` has read it, "" for the
        default one.
        """
        if row.directives is not None and row.directives.withheld:
            withhold(row)
        warnings, rewritten = reading.warnings(cost), reading.rewritten
        result = self._results.stored(visit.held, task, fetched, row, warnings, rewritten, kernel)
        if reading.skipped:
            result.finals += self._results.skipped(row.crawl, task, reading.skipped)
        if visit.context.hooks.any:
            self._results.note_hooks(row.crawl, task, result, problems, row.fetched_ms)
        self._writer.put(result)
