"""The process that reads suspects: a real one, with pages that kill it or make it hang."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import gevent
import psutil
import pytest
from gevent.monkey import get_original

from greencrawl.schema.records import (
    Crawl,
    CrawlOptions,
    Directives,
    Failure,
    FailureKind,
    Fetched,
    KernelRule,
    Task,
)  # fmt: skip
from greencrawl.schema.records.auth import Own
from greencrawl.worker.auth.base import Grant
from greencrawl.worker.crawls import CrawlContext, context_of
from greencrawl.worker.extract.text import compiled
from greencrawl.worker.hooks import HookError
from greencrawl.worker.kernels.visit import TaskVisit
from greencrawl.worker.process.quarantine import (
    DiedInQuarantine,
    NoProcess,
    Quarantine,
    RaisedInQuarantine,
)
from greencrawl.worker.session.fetcher import VisitOver
from tests.support.checkout import ROOT
from tests.support.system import wait_until
from tests.support.worker_process import alive

HTML = {"content-type": "text/html"}


def page(title: str, url: str = "http://h/x") -> tuple[Task, Fetched]:
    body = f"<title>{title}</title><a href=/a>a</a><a href=http://o/>o</a>".encode()
    return Task(1, url, deliveries=4), Fetched(url, 200, dict(HTML), body)


def context(hook: str = "tests.support.deadly_hook") -> CrawlContext:
    options = CrawlOptions(hook=hook)
    return context_of(Crawl(id=1, name="t", state="active", options=options, roots=("h",)))


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Quarantine]:
    monkeypatch.chdir(ROOT)
    # A page that does not hang is read in that time, also on a busy machine.
    made = Quarantine(60.0)
    yield made
    made.close()


@contextmanager
def impatient(alone: Quarantine) -> Iterator[None]:
    """Shorten the time until a hanging page is killed."""
    patience, alone._stall_seconds = alone._stall_seconds, 1.0
    yield
    alone._stall_seconds = patience


def test_a_page_in_quarantine_is_read_in_a_process_of_its_own(alone: Quarantine) -> None:
    first = alone.read(context(), *page("one"))
    second = alone.read(context(), *page("two"))
    assert (first.title, second.title) == ("one", "two")
    assert [link.url for link in first.links] == ["http://h/a"], "scope is kept"
    assert first.fields == second.fields == {"pid": alone.pid}
    assert alone.pid != os.getpid()


def test_directives_of_headers_and_site_hold_in_quarantine(alone: Quarantine) -> None:
    task, fetched = page("one")
    fetched.robots_tags = ("otherbot: nofollow", "greencrawl: noindex")
    fetched.headers = {**fetched.headers, "x-robots-tag": ", ".join(fetched.robots_tags)}
    fetched.site = Directives(tdm="reserved")
    reading = alone.read(context(), task, fetched)
    assert reading.directives == Directives(robots=("noindex",), tdm="reserved", withheld="noindex")
    assert (reading.fields, len(reading.links)) == (None, 1), "no hook makes content of it"


@pytest.mark.parametrize(
    ("title", "kind", "says"),
    [
        ("kill", FailureKind.PROCESS_DEATH, "SIGKILL"),
        ("exit", FailureKind.PROCESS_DEATH, "status 3"),
        ("hang", FailureKind.STALLED, "within 1 s"),
        ("wait", FailureKind.STALLED, "within 1 s"),
    ],
)
def test_a_page_that_kills_or_hangs_the_quarantine_is_named_and_the_next_is_read(
    alone: Quarantine, title: str, kind: FailureKind, says: str
) -> None:
    alone.read(context(), *page("harmless"))
    before = alone.pid
    assert before is not None
    hangs = kind is FailureKind.STALLED
    with (
        impatient(alone) if hangs else nullcontext(),
        pytest.raises(DiedInQuarantine, match=says) as died,
    ):
        alone.read(context(), *page(title))
    assert died.value.kind is kind
    assert not alive([before])
    assert alone.read(context(), *page("harmless")).title == "harmless"


@pytest.mark.skipif(compiled is None, reason="nothing stops a parse")
def test_a_long_parse_that_no_look_foresees_is_ended_in_quarantine(alone: Quarantine) -> None:
    """For a parser the comment ends at once."""
    names = b"".join(b" a%x" % n for n in range(200_000))
    body = b"<!--><p a='>'" + names + b">-->"
    found = alone.read(context(""), Task(1, "http://h/x"), Fetched("http://h/x", 200, HTML, body))
    assert found.failure.startswith("its parse had not ended after 2.")
    assert found.cpu > 2
    assert alone.read(context(), *page("harmless")).title == "harmless"


@pytest.mark.parametrize(
    ("word", "kind"),
    [("kill", FailureKind.PROCESS_DEATH), ("sleep", FailureKind.STALLED)],
)
def test_a_kernel_runs_in_quarantine_and_the_worker_makes_its_requests(
    alone: Quarantine, word: str, kind: FailureKind
) -> None:
    rule = KernelRule(match="*", kernel="tests.support.own_kernels:Asking")
    options = CrawlOptions(kernels=(rule,))
    of = context_of(Crawl(id=5, name="t", state="active", options=options, roots=("h",)))
    visit = Requests()
    task = Task(1, "http://h/joined", deliveries=4)
    answer = alone.fetch(of, visit, task, "asking", {"accept": "*/*"})
    assert isinstance(answer, Fetched)
    assert answer.body == b"http://h/joined/more"
    assert visit.asked == [("GET", "http://h/joined", 1), ("GET", "/more", 2)]
    reading = alone.read(of, task, answer, "asking")
    assert (reading.title, reading.fields) == ("http://h/joined/more", {"pid": alone.pid})
    with impatient(alone), pytest.raises(DiedInQuarantine) as died:
        alone.fetch(of, visit, Task(1, f"http://h/{word}"), "asking", {})
    assert died.value.kind is kind


def test_the_end_of_a_visit_ends_a_kernel_in_quarantine(alone: Quarantine) -> None:
    rule = KernelRule(match="*", kernel="tests.support.own_kernels:Asking")
    of = context_of(
        Crawl(id=5, name="t", state="active", options=CrawlOptions(kernels=(rule,)), roots=("h",))
    )
    visit = Requests(VisitOver("stopping"))
    with pytest.raises(VisitOver):
        alone.fetch(of, visit, Task(1, "http://h/joined"), "asking", {})
    assert alone.pid is None, "nobody knows what it would say next"


class Requests(TaskVisit):
    """A visit that answers each request with the request."""

    def __init__(self, over: Exception | None = None) -> None:
        self.asked: list[tuple[str, str, int]] = []
        self._raises = over

    def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Fetched | Failure:
        if self._raises is not None:
            raise self._raises
        self.asked.append((method, url, len(headers)))
        return Fetched(url, 200, {}, url.encode())


def test_the_request_hook_runs_in_quarantine(alone: Quarantine) -> None:
    task, _ = page("")
    assert alone.request_headers(context(), task, {"a": "b"}) == {"a": "b"}
    with pytest.raises(DiedInQuarantine):
        alone.request_headers(context(), page("", "http://h/request-kill")[0], {})


def test_patterns_are_searched_in_quarantine(alone: Quarantine) -> None:
    options = CrawlOptions(exclude=("(?=/)/(a+)+$",))
    given = context_of(Crawl(id=3, name="t", state="active", options=options, roots=("h",)))
    task = page("")[0]
    assert alone.excluded_by(given, task, "http://h/b", False) is None
    assert alone.excluded_by(given, task, "http://h/aa", True) == "exclude pattern '(?=/)/(a+)+$'"
    with impatient(alone), pytest.raises(DiedInQuarantine):
        alone.excluded_by(given, task, f"http://h/{'a' * 60}!", False)


def test_include_patterns_hold_for_links_but_not_for_seeds_in_quarantine(alone: Quarantine) -> None:
    options = CrawlOptions(include=("(?=/)/b",))
    given = context_of(Crawl(id=4, name="t", state="active", options=options, roots=("h",)))
    task = page("")[0]
    assert task.depth == 0
    assert alone.excluded_by(given, task, "http://h/x", False) is None
    assert alone.excluded_by(given, task, "http://h/x", True) == "include: matches none"


def test_answers_are_judged_in_quarantine_by_the_entrys_own_class(
    alone: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GREENCRAWL_AUTH_SHOP_USERNAME", "ann")
    monkeypatch.setenv("GREENCRAWL_AUTH_SHOP_PASSWORD", "1")
    monkeypatch.setenv("GREENCRAWL_AUTH_SHOP_HOSTS", "http://h")
    monkeypatch.setenv("GREENCRAWL_HOOKS", "tests.support.deadly_hook:DeadlyLogin")
    entry = Own(name="shop", hosts=("http://h",), login="tests.support.deadly_hook:DeadlyLogin")
    options = CrawlOptions(auth=(entry,))
    given = context_of(Crawl(id=4, name="t", state="active", options=options, roots=("h",)))
    grant = Grant(account="ann", generation=1, made_ms=0)
    for word in ("in", "out"):
        task, fetched = page("", f"http://h/{word}")
        assert alone.verdict(given, task, "shop", fetched, grant) == word
    task, fetched = page("", "http://h/hang")
    with impatient(alone), pytest.raises(DiedInQuarantine):
        alone.verdict(given, task, "shop", fetched, grant)


def test_errors_in_quarantine_are_raised_in_the_worker(alone: Quarantine) -> None:
    given = context("tests.worker.process.test_quarantine")
    with pytest.raises(HookError, match=r"^request: ValueError: no such host$"):
        alone.request_headers(given, page("")[0], {})
    options = CrawlOptions(exclude=("(",))  # no check has seen this
    with pytest.raises(RaisedInQuarantine, match="missing \\)"):
        alone.read(
            replace(given, crawl=Crawl(id=2, name="t", state="active", options=options)), *page("")
        )
    assert alone.read(given, *page("still")).title == "still"


def request(task: Task, headers: dict[str, str]) -> dict[str, str]:
    raise ValueError("no such host")


def test_other_greenlets_go_on_while_a_page_hangs_in_quarantine(alone: Quarantine) -> None:
    alone.read(context(), *page("harmless"))
    turns = 0
    with impatient(alone):
        hanging = gevent.spawn(alone.read, context(), *page("hang"))
        while not hanging.ready():
            gevent.sleep(0.001)
            turns += 1
    assert turns > 50
    with pytest.raises(DiedInQuarantine):
        hanging.get()


def test_a_page_is_not_charged_for_time_in_which_all_stood_still(alone: Quarantine) -> None:
    alone.read(context(), *page("harmless"))
    pid = alone.pid
    assert pid is not None
    with impatient(alone):
        os.kill(pid, signal.SIGSTOP)
        reading = gevent.spawn(alone.read, context(), *page("harmless"))
        gevent.sleep(0.05)  # the request is sent
        get_original("time", "sleep")(2.0)
        gevent.sleep(0.1)
        os.kill(pid, signal.SIGCONT)
        assert reading.get(timeout=5).title == "harmless"
    assert alone.pid == pid


def test_the_quarantine_process_ends_when_idle_and_starts_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    alone = Quarantine(10.0, idle_seconds=0.1)
    alone.read(context(), *page("one"))
    first = alone.pid
    assert first is not None
    with gevent.Timeout(20):
        while alone.pid is not None:
            gevent.sleep(0.02)
    assert not alive([first])
    assert alone.read(context(), *page("two")).title == "two"
    alone.close()
    assert alone.pid is None


def test_a_death_of_the_idle_quarantine_is_charged_to_no_page(alone: Quarantine) -> None:
    alone.read(context(), *page("one"))
    pid = alone.pid
    assert pid is not None
    psutil.Process(pid).kill()
    wait_until(lambda: not alive([pid]), 20, "it has died")
    assert alone.read(context(), *page("two")).title == "two"


def test_a_quarantine_process_that_does_not_start_is_charged_to_no_page() -> None:
    for command in ((sys.executable, "-c", "raise SystemExit(1)"), ("/no/such/program",)):
        with pytest.raises(NoProcess):
            Quarantine(1.0, command=command).read(context(), *page("one"))


PARENT = """
import sys
from gevent import monkey
monkey.patch_all()
from tests.worker.process.test_quarantine import context, page
from greencrawl.worker.process.quarantine import Quarantine
alone = Quarantine(60.0)
alone.read(context(), *page("one"))
with open(sys.argv[1], "w") as file:
    print(alone.pid, file=file)
alone.read(context(), *page("hang"))
"""


def test_a_quarantine_process_that_hangs_dies_with_its_worker(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    worker = subprocess.Popen([sys.executable, "-c", PARENT, str(told)], cwd=ROOT)
    try:
        wait_until(lambda: told.exists() and told.read_text().endswith("\n"), 20, "it is there")
        pid = int(told.read_text())
        assert alive([pid])
        worker.kill()
        worker.wait()
        wait_until(lambda: not alive([pid]), 20, "it dies too")
    finally:
        worker.kill()
        worker.wait()


def test_the_process_ends_without_a_word_if_its_worker_dies_before_it_reads_an_answer() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "greencrawl.worker", "--quarantine", str(theirs.fileno())],
            pass_fds=(theirs.fileno(),), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    with ours:
        ours.settimeout(60)
        ours.recv(1, socket.MSG_PEEK)
    said, _ = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, b"")
