"""A million small pages: lists, explain, page and export in constant memory.

The pages are made through ``Store.commit``. Each question then runs in a process of its own, which
reports its highest memory (VmHWM) and its seconds without the start. The same questions with 10,000
pages show whether memory grows with the crawl.

    python -m bench.store.million [--pages N] [--small N] [--stores sqlite mysql] [--folder DIR]
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import argparse  # noqa: E402
import hashlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from itertools import islice  # noqa: E402
from pathlib import Path  # noqa: E402

import gevent.pool  # noqa: E402

from bench.rig.report import Report  # noqa: E402
from greencrawl.broker.service.pages import SEARCHED, Reader, listed, reply  # noqa: E402
from greencrawl.cli.commands.explain import in_store  # noqa: E402
from greencrawl.schema.net.suffixes import SUFFIXES  # noqa: E402
from greencrawl.schema.net.urls import CANONICALISER, fingerprint  # noqa: E402
from greencrawl.schema.records import (  # noqa: E402
    Admission,
    Attempt,
    Commit,
    CrawlOptions,
    FrontierIdentity,
    PageFilter,
    StoredPage,
)
from greencrawl.schema.text.patterns import Pattern  # noqa: E402
from greencrawl.store import open_store  # noqa: E402
from greencrawl.store.base import Store  # noqa: E402
from tests.support.mariadb import MariaDb  # noqa: E402

BATCH = 500
SECRET = 11
HOSTS = 1000
BEGAN = 1_790_000_000_000
CRAWL = "million"
MIDDLE = 2
GROWTH = 1.25
"""The allowed growth of a question compared with the small size, since allocators are not exact."""


def url_of(number: int) -> str:
    """Return the URL of page ``number``: hosts alternate, except one with a single page in
    10,000."""
    host = "rare" if number % 10_000 == 7 else f"h{number % HOSTS}"
    return f"https://{host}.example.org/articles/{number}.html"


def page_of(crawl: int, number: int) -> StoredPage:
    """Return a page of about 2 KB with 400 characters of text and two links; one in 1000 is a
    404."""
    url = url_of(number)
    text = f"Article {number} tells of {number % 97} widgets and {number % 89} gadgets. " * 7
    body = f"<html><title>Article {number}</title><p>{text * 4}</p></html>".encode()
    return StoredPage(
        crawl=crawl,
        fingerprint=fingerprint(url, SECRET),
        url=url,
        final_url=url,
        status=404 if number % 1000 == 3 else 200,
        headers={"content-type": "text/html; charset=utf-8", "server": "bench"},
        fetched_ms=BEGAN + number,
        elapsed_ms=20,
        depth=3,
        body=body,
        digest=hashlib.sha256(body).digest()[:16],
        title=f"Article {number}",
        text=text,
        language="en",
        encoding="utf-8",
        links=[Admission(url_of(number + step), 4) for step in (1, 2)],
    )


def fill(store: Store, pages: int) -> None:
    """Commit ``pages`` pages with an attempt each."""
    store.create_frontier(
        FrontierIdentity(
            id="bench", secret=SECRET, partitions=64, suffixes=SUFFIXES,
            canonicaliser=CANONICALISER, layout=1, nodes=("n",), placement=(0,),
        )
    )  # fmt: skip
    crawl = store.put_crawl(CRAWL, CrawlOptions(), ["example.org"]).id
    store.prepare_months(BEGAN)

    def batch(start: int) -> None:
        made = [page_of(crawl, n) for n in range(start, min(start + BATCH, pages))]
        tries = [
            Attempt(crawl=crawl, fingerprint=page.fingerprint, url=page.url, code=page.status,
                    kind="ok", errors=0, at_ms=page.fetched_ms, elapsed_ms=20, worker="bench")
            for page in made
        ]  # fmt: skip
        store.commit(Commit(made, tries))

    pool = gevent.pool.Pool(4)
    for _ in pool.imap_unordered(batch, range(0, pages, BATCH)):
        pass


# -- questions: each is asked in a process of its own


class Question:
    """The data for a question: the store, its crawl, and the middle of the crawl."""

    def __init__(self, store: Store, pages: int, cursor: str) -> None:
        self.store, self.pages, self.cursor = store, pages, cursor
        self.crawl = store.crawl(CRAWL)
        self.reader = Reader(store)

    def _list(self, wanted: PageFilter, after: str = "") -> int:
        look = self.reader.look(self.crawl.id, wanted, limit=100, after=after)
        return len([listed(page) for page in look.pages])

    def first(self) -> int:
        """Count the first pages of the crawl."""
        return self._list(PageFilter())

    def middle(self) -> int:
        """Count the first pages after the middle of the crawl."""
        return self._list(PageFilter(), self.cursor)

    def host(self) -> int:
        """Count the pages of a host with few pages."""
        return self._list(PageFilter(host="rare.example.org"))

    def status(self) -> int:
        """Count pages with 4xx."""
        return self._list(PageFilter(status=(400, 499)))

    def nothing(self) -> int:
        """Count pages with 5xx; there are none."""
        return self._list(PageFilter(status=(500, 599)))

    def since(self) -> int:
        """Count pages of the last moments."""
        return self._list(PageFilter(since_ms=BEGAN + self.pages - 50))

    def grep(self) -> int:
        """Count pages that match a pattern; there are none."""
        pattern = Pattern("no page says this")
        return self.reader.look(self.crawl.id, PageFilter(), pattern, limit=100).looked_at

    def every(self) -> int:
        """Count all pages, without text and body."""
        return sum(1 for _ in self.store.pages(self.crawl.id, detail="row"))

    def explain(self) -> int:
        """Find a hundred URLs."""
        urls = [url_of(self.pages * part // 100) for part in range(100)]
        found = [in_store(self.store, self.crawl, url, SECRET) for url in urls]
        return sum(state.state == "fetched" for state in found)

    def page(self) -> int:
        """Read a hundred pages by their id."""
        for part in range(100):
            number = fingerprint(url_of(self.pages * part // 100), SECRET)
            page = self.store.page(self.crawl.id, number)
            assert page is not None
            reply(self.store, page.id)
        return 100


EXPECTED: dict[str, Callable[[int], int]] = {
    "first": lambda n: 100,
    "middle": lambda n: 100,
    "host": lambda n: min(100, (n + 9992) // 10_000),
    "status": lambda n: min(100, n // 1000),
    "nothing": lambda n: 0,
    "since": lambda n: 50,
    "grep": lambda n: min(n, -(-SEARCHED // 64) * 64),
    "every": lambda n: n,
    "explain": lambda n: 100,
    "page": lambda n: 100,
}
"""The expected count of each question."""


def ask(url: str, name: str, pages: int, cursor: str) -> None:
    """Answer one question in a child process, and print its costs as JSON."""
    store = open_store(url)
    question = Question(store, pages, cursor)
    began, cpu = time.monotonic(), time.process_time()
    count = getattr(question, name)()
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    status = Path("/proc/self/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]
    print(json.dumps({"count": count, "seconds": seconds, "cpu": cpu, "peak_kib": int(peak)}))
    store.close()


def measured(url: str, name: str, pages: int, cursor: str) -> dict[str, float]:
    """Ask a question in a process of its own; return the measurements."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.store.million", "--ask", name, url, str(pages), cursor],
        check=True, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def exported(url: str, format_: str, folder: Path) -> dict[str, float]:
    """Run ``greencrawl export`` itself; return its memory, seconds and lines."""
    out = folder / f"export.{format_}"
    environment = {**os.environ, "GREENCRAWL_STORE": url}
    command = [sys.executable, "-m", "greencrawl.cli", "export", CRAWL, "--format", format_,
               "-o", str(out), "--data", str(folder)]  # fmt: skip
    began = time.monotonic()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    peak = 0
    while process.poll() is None:
        peak = max(peak, _peak_kib(process.pid))
        time.sleep(0.05)
    seconds = time.monotonic() - began
    if process.returncode:
        raise RuntimeError(f"export as {format_} failed")
    with out.open("rb") as file:
        lines = sum(part.count(b"\n") for part in iter(lambda: file.read(1 << 20), b""))
    size = out.stat().st_size
    out.unlink()
    return {"count": lines, "seconds": seconds, "peak_kib": peak, "bytes": size}


def _peak_kib(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(found[0].split()[1]) if found else 0


def run(
    report: Report, kind: str, url: str, pages: int, folder: Path
) -> dict[str, dict[str, float]]:
    """Fill a store and ask all questions."""
    store = open_store(url)
    began = time.monotonic()
    fill(store, pages)
    report.figure(f"{kind}, {pages:,} pages: made in", time.monotonic() - began, "s")
    crawl = store.crawl(CRAWL).id
    middle = next(islice(store.pages(crawl, detail="row"), pages // MIDDLE, None))[0]
    store.close()
    found: dict[str, dict[str, float]] = {}
    for name in EXPECTED:
        found[name] = measured(url, name, pages, middle)
        _tell(report, kind, pages, name, found[name])
    for format_ in ("jsonl", "csv"):
        found[format_] = exported(url, format_, folder)
        _tell(report, kind, pages, f"export {format_}", found[format_])
    wrong = [name for name, count in EXPECTED.items() if found[name]["count"] != count(pages)]
    wrong += [name for name in ("jsonl", "csv") if not pages <= found[name]["count"] <= pages + 1]
    report.claim(
        f"{kind}, {pages:,} pages: each answer has what it should", not wrong, ", ".join(wrong)
    )
    return found


def _tell(report: Report, kind: str, pages: int, name: str, found: dict[str, float]) -> None:
    report.row(
        f"{kind}, {pages:,} pages: {name}",
        peak_MiB=found["peak_kib"] / 1024,
        seconds=round(found["seconds"], 4),
        count=int(found["count"]),
    )


def main() -> int:
    """Run the benchmark; the exit code says whether its claims hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--stores", nargs="+", default=["sqlite", "mysql"])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--ask", nargs=4, metavar=("NAME", "URL", "PAGES", "CURSOR"))
    given = parser.parse_args()
    if given.ask:
        name, url, pages, cursor = given.ask
        ask(url, name, int(pages), cursor)
        return 0
    report = Report("pages", f"{given.pages:,} small pages, in constant memory")
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for kind in given.stores:
            _both(report, kind, (given.small, given.pages), Path(folder))
    return report.finish()


def _both(report: Report, kind: str, sizes: tuple[int, int], folder: Path) -> None:
    server = MariaDb(folder / "mariadb").start() if kind == "mysql" else None
    try:
        found = []
        for pages in sizes:
            if server is not None:
                url = server.database(f"pages_{pages}")
            else:
                url = f"sqlite:///{folder / f'pages-{pages}.sqlite'}"
            found.append(run(report, kind, url, pages, folder))
        small, large = found
        grown = [
            f"{name}: {small[name]['peak_kib']:,.0f} KiB, then {large[name]['peak_kib']:,.0f}"
            for name in large
            if large[name]["peak_kib"] > GROWTH * small[name]["peak_kib"]
        ]
        report.none(f"{kind}: memory does not grow with the crawl", grown)
    finally:
        if server is not None:
            server.stop()


if __name__ == "__main__":
    sys.exit(main())
