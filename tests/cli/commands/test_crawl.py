"""The command end to end: real broker, real workers, the shipped site."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import gevent
import psutil
import pytest

from greencrawl.broker.client import BrokerClient
from greencrawl.cli.local.data_folder import holder
from greencrawl.cli.local.site_server import Site, serve
from greencrawl.cli.main import main
from greencrawl.schema.clock import monotonic
from greencrawl.store import open_store
from greencrawl.worker.extract.main import NO_MAIN_TEXT, available
from tests.support.checkout import ROOT
from tests.support.dns_server import DnsServer, Zone
from tests.support.effort import by_night
from tests.support.ports import free_port

SLOW = ("--delay", "0.1", "--processes", "1")
FAST = ("--delay", "0", "--slots", "4", "--processes", "1")
NOWHERE = "redis://127.0.0.1:1"


RECORDS = """
def items(page):
    for link in page.css("a"):
        yield {"text": link.xpath("normalize-space()").get(), "to": link.attrib.get("href")}
"""


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def root(site: Site) -> Iterator[str]:
    with serve(site) as url:
        yield url


NOTHING_COMPILED = """
import sys

class Nothing:
    def find_spec(self, name, *_):
        if name.startswith("greencrawl_speedups_"):
            raise ImportError(name)

sys.meta_path.insert(0, Nothing())
"""


class Command:
    """Runs ``greencrawl`` in a folder of its own; at the end all of its processes have ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []
        self.path = [str(ROOT / "src")]
        """The folder in which its processes find modules."""

    def start(self, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        plain = {k: v for k, v in os.environ.items() if not k.startswith("GREENCRAWL_")}
        environ = {
            **plain,
            "PYTHONPATH": os.pathsep.join(self.path),
            "GREENCRAWL_ALLOW_NETWORKS": "127.0.0.0/8",
            **{f"GREENCRAWL_{name.upper()}": value for name, value in settings.items()},
        }
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "greencrawl.cli", *arguments],
            cwd=self.folder,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str, text: str = "", **settings: str) -> tuple[int, str, str]:
        return end(self.start(*arguments, **settings), text)

    def here(self, *arguments: str, text: str = "") -> tuple[int, str, str]:
        """Run a command that starts no process in this process, which is much faster."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setattr(sys, "stdin", io.StringIO(text))
            code = main([*arguments, "--data", str(self.folder / "data")])
        return code, out.getvalue(), err.getvalue()

    def up(self) -> tuple[subprocess.Popen[str], str]:
        """``greencrawl up`` on a free port: the process, and its broker's address once ready."""
        address = f"127.0.0.1:{free_port()}"
        process = self.start("up", "--processes", "1", bind=address)
        broker = BrokerClient([f"http://{address}"])
        until(broker.ready, "a broker that is ready")
        return process, f"http://{address}"


def end(process: subprocess.Popen[str], text: str = "") -> tuple[int, str, str]:
    """Return (exit code, standard output, standard error) of a command that ends by itself."""
    out, err = process.communicate(text, timeout=60)
    return process.returncode, out, err


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    made = Command(tmp_path)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
            process.wait()
    _, left = psutil.wait_procs(_ours(tmp_path), timeout=10)
    for one in left:
        one.kill()
    assert not left, f"processes were left running: {left}"


def _family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _ours(folder: Path) -> list[psutil.Process]:
    """Return processes that a command in ``folder`` started, whoever is their parent now."""
    found = []
    for process in psutil.process_iter(["environ"]):
        data = (process.info["environ"] or {}).get("GREENCRAWL_DATA", "")
        if data.startswith(str(folder)):
            found.append(process)
    return found


def until(holds: Callable[[], Any], what: str, seconds: float = 60.0) -> None:
    deadline = monotonic() + seconds
    while not holds():
        assert monotonic() < deadline, f"not in time: {what}"
        gevent.sleep(0.02)


def main_texts(command: Command, name: str) -> list[str | None]:
    """Return the main texts of a crawl's pages with text; fail if there are no such pages."""
    with closing(open_store(f"sqlite:///{command.folder / 'data' / 'content.sqlite'}")) as store:
        pages = [page for _, page in store.pages(store.crawl(name).id)]
    found = [page.main for page in pages if page.status == 200 and page.text]
    assert found
    return found


def summary(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_bytes()))


def test_crawl_ends_with_a_summary_and_fetches_every_url_once(
    command: Command, site: Site, root: str
) -> None:
    file = command.folder / "summary.json"
    code, out, err = command.run("crawl", root, *FAST, "--crawl", "x", "--summary", str(file))
    assert code == 0, err
    made = summary(file)
    assert (made["state"], made["reason"], made["crawl"]) == ("done", "finished", "x")
    assert (made["pages"], made["gone"], made["excluded"], made["dead"]) == (31, 1, 2, 0)
    assert made["failures"] == {"gone": 1, "robots": 2}
    assert made["hosts"] == 1
    assert "31 pages stored" in err
    assert NO_MAIN_TEXT not in err or not available()
    assert None not in main_texts(command, "x") or not available()
    assert "greencrawl export x" in out
    assert set(Counter(site.requests).values()) == {1}
    assert not [target for target in site.requests if target.startswith("/private")]
    assert "/zh/search?q=%CE%C2%CA%D2&page=1" in site.requests
    assert "/zh/search?q=%E7%BB%BF%E8%8C%B6" in site.requests

    before = len(site.requests)
    code, out, err = command.here("crawl", root, *FAST, "--crawl", "x")
    assert (code, len(site.requests)) == (0, before)
    assert "is finished; to crawl it again, add --fresh" in err
    assert "done (finished)" in out

    code, out, _ = command.here("export", "-o", str(command.folder / "x.jsonl"))
    assert code == 0
    lines = [json.loads(line) for line in (command.folder / "x.jsonl").open()]
    assert sum(line["state"] == "fetched" and line["status"] == 200 for line in lines) == 31
    assert [line["language"] for line in lines if line.get("title") == "茶树"] == ["zh-Hans"]

    again = ("crawl", root, *FAST, "--crawl", "x", "--fresh", "--summary", str(file))
    code, _, err = command.run(*again)
    assert code == 0, err
    assert [text for text in re.findall(r"(\d+) pages stored", err) if int(text) > 31] == []
    after = summary(file)
    same = ("pages", "bytes", "failures", "gone", "excluded", "dead", "parked")
    assert [after[name] for name in same] == [made[name] for name in same]
    (shown,) = json.loads(command.here("status", "--json")[1])["crawls"]
    assert [shown["stored"], shown["bytes"]] == [made["pages"], made["bytes"]]
    # Known URLs stay known: robots.txt, and that there is no sitemap.
    assert len(site.requests) == 2 * before - 2


@by_night
def test_records_of_a_hook_are_exported_without_the_pages(command: Command, root: str) -> None:
    (command.folder / "own.py").write_text(RECORDS)
    code, _, err = command.run("crawl", root, *FAST, "--hook", "own")
    assert code == 0, err
    code, _, err = command.here("export", "--items", "-o", str(command.folder / "x.jsonl"))
    assert (code, err.split(" ")[0]) == (0, "records")
    found = [json.loads(line) for line in (command.folder / "x.jsonl").open()]
    of_home = [one["to"] for one in found if one["_url"] == root]
    assert len({one["_url"] for one in found}) > 20
    assert "/shop/index.html" in of_home
    assert all(one["text"] for one in found)


@by_night
def test_a_crawl_without_the_compiled_part_says_once_that_it_stores_no_main_text(
    command: Command, root: str
) -> None:
    (command.folder / "sitecustomize.py").write_text(NOTHING_COMPILED)
    command.path.append(str(command.folder))
    code, _, err = command.run("crawl", root, "--crawl", "x", "--max-pages", "3", *FAST)
    assert code == 0, err
    assert err.count(f"no main text is stored: {NO_MAIN_TEXT}") == 1
    assert set(main_texts(command, "x")) == {None}
    # the message comes before the broker is waited for
    for option, times in (("on", 1), ("off", 0)):
        code, _, err = command.run("crawl", root, "--main-text", option, redis=NOWHERE)
        assert (code, err.count(NO_MAIN_TEXT)) == (1, times)


@by_night
def test_the_command_leaves_a_periodic_crawl_at_rest_and_begins_it_again_when_it_is_due(
    command: Command, site: Site, root: str
) -> None:
    file = command.folder / "news.toml"
    head = f'seeds = ["{root}"]\ndepth = 1\n'
    file.write_text(f'{head}[recrawl]\nevery = "1d"\n')
    code, out, err = command.run("crawl", "news.toml", *FAST)
    assert code == 0, err
    assert "resting (finished)" in out
    before = len(site.requests)
    code, _, err = command.here("crawl", str(file), *FAST)
    assert (code, "crawl news rests until " in err) == (0, True)
    assert len(site.requests) == before
    file.write_text(f'{head}[recrawl]\nevery = "2s"\n')
    code, out, err = command.run("crawl", "news.toml", *FAST)
    assert (code, "resting (finished)" in out) == (0, True), err
    assert 2 <= Counter(site.requests)["/"] <= 3, "on a slow machine the next one is due at once"
    assert max(n for path, n in Counter(site.requests).items() if path != "/") == 1
    file.write_text(head)
    following = command.start("crawl", "news.toml", "--every", "2s", "--follow", *FAST)
    until(lambda: Counter(site.requests)["/"] >= 4, "two periods more")
    following.send_signal(signal.SIGINT)
    assert end(following)[0] == 130


@by_night
def test_a_crawl_with_greater_depth_says_what_is_read_again_and_fetches_no_url_twice(
    command: Command, site: Site, root: str
) -> None:
    assert command.run("crawl", root, "--crawl", "x", "--depth", "1", *FAST)[0] == 0
    before = len(site.requests)
    code, _, err = command.run("crawl", root, "--crawl", "x", "--depth", "3", *FAST)
    assert code == 0, err
    assert re.search(r"depth 1 → 3: \d+ pages are read again from what is stored", err), err
    assert len(site.requests) > before
    assert set(Counter(site.requests).values()) == {1}
    code, _, err = command.run("crawl", root, "--crawl", "x", "--max-pages", "99", "--fresh", *FAST)
    assert (code, "crawl x has max_pages" in err) == (2, True), err


@by_night
def test_stop_ends_the_crawl_of_another_command_and_that_command_resumes_it_later(
    command: Command, site: Site, root: str
) -> None:
    arguments = ("crawl", root, "--crawl", "x", "--processes", "1")
    process = command.start(*arguments, "--delay", "0.2")
    until(lambda: len(site.requests) > 3, "it is under way")
    code, out, err = command.here("stop", "x", "--now")
    assert (code, out) == (0, "x: done (stopped)\n"), err
    assert end(process)[0] == 0
    assert len(site.requests) < 30
    code, _, err = command.run(*arguments, "--delay", "0")
    assert (code, "31 pages stored" in err) == (0, True), err
    assert set(Counter(site.requests).values()) == {1}


def test_a_crawl_fails_at_once_if_the_host_name_of_its_only_seed_does_not_exist(
    command: Command,
) -> None:
    with DnsServer({"": Zone({})}) as names:
        began = monotonic()
        code, _, err = command.run("crawl", "http://nosuch.com/", *FAST, dns_servers=names.address)
        assert monotonic() - began < 30  # a retry would come after five minutes
        assert code == 1
        assert "dns_missing 1 (no such host name;" in err
        assert "nosuch.com: no such name" in err
        assert names.asked.count("nosuch.com A") == 1


def test_ctrl_c_stops_cleanly_and_the_same_command_resumes(
    command: Command, site: Site, root: str
) -> None:
    arguments = ("crawl", root, "--delay", "0.15", "--processes", "1", "--summary", "s.json")
    process = command.start(*arguments)
    until(lambda: len(site.requests) >= 6, "six requests")
    process.send_signal(signal.SIGINT)
    code, _, err = end(process)
    assert code == 130
    assert "run the same command again to resume" in err
    done = len(site.requests)
    made = summary(command.folder / "s.json")
    assert (made["state"], made["reason"]) == ("stopped", "")
    said = command.here("status")[1]
    assert "run the same command again, or start" in said, said
    assert command.here("export", "-o", str(command.folder / "x.jsonl"))[0] == 0
    lines = [json.loads(line) for line in (command.folder / "x.jsonl").open()]
    assert made["pages"] == sum(line.get("status") == 200 for line in lines)
    assert done < 30
    code, _, err = command.run(*arguments, "--delay", "0")
    assert code == 0, err
    assert summary(command.folder / "s.json")["pages"] == 31
    assert set(Counter(site.requests).values()) == {1}


def test_a_killed_broker_is_started_again_and_no_page_is_lost(
    command: Command, site: Site, root: str
) -> None:
    process = command.start("crawl", root, *SLOW, "--summary", "s.json")
    until(lambda: len(site.requests) >= 5, "five requests")
    broker = next(one for one in _family(process) if "greencrawl.broker" in one.cmdline())
    broker.kill()
    code, _, err = end(process)
    assert code == 0, err
    assert "the broker was ended by SIGKILL; started again" in err
    assert summary(command.folder / "s.json")["pages"] == 31


def test_a_killed_command_resumes_at_once_when_it_is_run_again(
    command: Command, site: Site, root: str
) -> None:
    arguments = ("crawl", root, "--delay", "0.1", "--processes", "1", "--summary", "s.json")
    settings = {"request_seconds": "3", "lease_seconds": "5"}
    process = command.start(*arguments, **settings)
    until(lambda: len(site.requests) >= 8, "eight requests")
    process.kill()
    process.wait()
    process = command.start(*arguments, **settings)
    code, _, err = end(process)
    assert code == 0, err
    assert "another worker" not in err
    assert summary(command.folder / "s.json")["pages"] == 31
    assert sum(Counter(site.requests).values()) - len(set(site.requests)) <= 2


def test_second_crawl_in_the_same_folder_is_refused(
    command: Command, site: Site, root: str
) -> None:
    process = command.start("crawl", root, "--delay", "0.2", "--processes", "1")
    until(lambda: site.requests, "a request")
    code, _, err = command.here("crawl", root)
    assert code == 1
    assert f"process {process.pid}" in err
    code, out, _ = command.here("status")
    assert code == 0
    assert "active" in out
    process.send_signal(signal.SIGTERM)
    assert end(process)[0] == 143


def test_a_crawl_that_ended_at_its_page_limit_goes_on_without_the_limit(
    command: Command, site: Site, root: str
) -> None:
    arguments = ("crawl", root, "--delay", "0.01", "--processes", "1", "--summary", "s.json")
    code, out, err = command.run(*arguments, "--max-pages", "5")
    assert code == 0, err
    made = summary(command.folder / "s.json")
    assert (made["state"], made["reason"]) == ("done", "max_pages")
    assert made["waiting"] > 0
    assert "URLs; a greater --max-pages goes on" in out
    for again in (("status",), (*arguments[:-2], "--max-pages", "5")):
        _, out, err = command.here(*again)
        said = " ".join((out + err).split())
        assert "has reached its max_pages; to go on, run the same command with a greater" in said
        assert f"`greencrawl set {made['crawl']} max_pages=N" in said
        assert "--fresh" not in said
    code, _, err = command.run(*arguments)
    assert code == 0, err
    assert summary(command.folder / "s.json")["pages"] == 31


def test_a_crawl_says_so_if_only_retries_are_left(command: Command) -> None:
    process = command.start("crawl", f"http://127.0.0.1:{free_port()}/", "--processes", "1")
    assert process.stderr is not None
    said = ""
    while "only retries are left" not in said:
        line = process.stderr.readline()
        assert line, f"it ended: {said}"
        said += line
    process.send_signal(signal.SIGINT)
    assert end(process)[0] == 130


def test_a_broker_that_cannot_start_is_reported_with_its_exit_code_and_log(
    command: Command, root: str
) -> None:
    code, _, err = command.run("crawl", root, redis=NOWHERE)
    assert code == 1
    assert "greencrawl: the broker ended with exit code 1" in err
    assert "broker.log" in err


def test_the_demo_serves_and_crawls_the_shipped_site_again_each_time(command: Command) -> None:
    arguments = ("crawl", "--demo", "--processes", "1", "--delay", "0")
    for _ in range(2):
        code, out, err = command.run(*arguments, "--summary", "s.json", allow_networks="")
        assert code == 0, err
        assert summary(command.folder / "s.json")["pages"] == 31
        assert "--data data/demo" in out


def test_commands_work_with_the_broker_of_greencrawl_up(
    command: Command, site: Site, root: str
) -> None:
    up, address = command.up()

    arguments = ("crawl", root, "--delay", "0", "--crawl", "x", "--summary", "s.json")
    code, out, err = command.run(*arguments, broker=address)
    assert code == 0, err
    assert summary(command.folder / "s.json")["pages"] == 31
    assert "done (finished)" in out
    code, _, err = command.run(*arguments, broker=address)
    assert code == 0
    assert "add --fresh" in err

    code, out, err = command.here("seed", "x", "-", text=f"{root}new\n{root}\nftp://x/\n")
    assert (code, out) == (1, "1 added, 1 duplicate, 1 rejected\n")
    assert "rejected ftp://x/" in err
    until(lambda: "/new" in site.requests, "the seed's request")
    until(lambda: "done" in command.here("status", "--watch")[1], "its end")

    assert "gone" in command.here("explain", f"{root}discontinued.html")[1].splitlines()[0]
    assert "Disallow: /private/" in command.here("explain", f"{root}private/ledger.html")[1]
    assert command.here("dead")[:2] == (0, "")
    assert command.here("dead", "--requeue")[1] == "0 queued again\n"
    assert "no crawl is named 'y'" in command.here("dead", "y")[2]
    assert "no crawl is named 'y'" in command.here("seed", "y", root)[2]
    assert command.here("delete", "x")[0] == 1, "nobody has said yes"
    stats = json.loads(command.here("status", "--json")[1])
    assert stats["crawls"][0]["stored"] == 31
    assert command.here("set", "x", "max_pages=5")[0] == 0
    _, out, _ = command.here("seed", "x", root, f"{root}new2", "--force")
    assert out == "1 added, 1 queued again, 0 duplicate, 0 rejected\n"
    until(lambda: "has reached its max_pages" in command.here("status")[1], "it ends at its limit")
    assert "has reached its max_pages" in command.here("seed", "x", f"{root}new3")[2]

    up.send_signal(signal.SIGINT)
    code, _, err = end(up)
    assert code == 0
    assert f"broker at {address}" in err
    assert holder(command.folder / "data") is None


def test_a_crawl_at_a_running_broker_goes_on_when_its_command_is_interrupted(
    command: Command, site: Site, root: str
) -> None:
    up, address = command.up()
    watching = command.start("crawl", root, "--delay", "0.1", broker=address)
    until(lambda: len(site.requests) > 3, "requests")
    watching.send_signal(signal.SIGINT)
    code, _, err = end(watching)
    assert code == 130
    assert "the crawl goes on" in err
    seen = len(site.requests)
    until(lambda: len(site.requests) > seen + 2, "more requests")
    up.send_signal(signal.SIGTERM)
    assert end(up)[0] == 0


def test_a_crawl_that_stored_no_page_fails_and_says_why(command: Command) -> None:
    code, out, err = command.run("crawl", "http://127.0.0.1:1/", "--processes", "1")
    assert (code, "done (finished)" in out) == (1, True)
    assert "no page is stored:\n  failures: address_forbidden 1 (a private or loopback" in err
    assert "http://127.0.0.1:1/: Settled at" in err
    assert "`greencrawl explain http://127.0.0.1:1/` says more" in err
    code, _, err = command.here("crawl", "http://127.0.0.1:1/", "--processes", "1")
    assert (code, "is finished" in err) == (1, True)


@by_night
def test_an_address_that_was_refused_is_fetched_once_it_is_allowed(
    command: Command, root: str
) -> None:
    code, _, err = command.run("crawl", root, *FAST, allow_networks="")
    assert code == 1
    assert "address_forbidden 1 (a private or loopback" in err
    code, _, err = command.run("crawl", root, *FAST)
    assert code == 0
    assert "31 pages stored" in err
    code, _, err = command.run("crawl", root, *FAST)
    assert "is finished" in err


def test_a_crawl_at_a_running_broker_fails_and_says_why_if_it_stored_no_page(
    command: Command, site: Site, root: str
) -> None:
    up, address = command.up()
    begins = [f"{root}private/", f"{root}old-catalogue.html"]
    options = ["--delay", "0", "--exclude", "/plants/"]
    code, _, err = command.run("crawl", *begins, *options, broker=address)
    assert code == 1
    assert "no page is stored:\n  failures: robots 1 (robots.txt forbids it)" in err
    assert f"redirecting to {root}plants/index.html, which the crawl's rules keep out" in err
    up.send_signal(signal.SIGTERM)
    assert end(up)[0] == 0
