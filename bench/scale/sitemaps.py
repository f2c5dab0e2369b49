"""A sitemap of 200 files and ten million URLs, read while the worker is killed twice.

    python -m bench.scale.sitemaps [--files N] [--urls N] [--kills N]

A seed is an index; its files are made when they are requested. The measurement ends when all listed
URLs are queued or in the overflow; it does not wait for the pages. Each URL must be admitted once,
with none lost and none twice. No process of the worker may take more memory at the end than after a
tenth.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import argparse  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from contextlib import suppress  # noqa: E402
from pathlib import Path  # noqa: E402

import gevent  # noqa: E402
import psutil  # noqa: E402

from bench.rig.report import Report  # noqa: E402
from tests.support.site_server import Answer, Request, SiteServer  # noqa: E402
from tests.support.system import System  # noqa: E402

MIB = 2**20
FLAT_MIB = 24.0
"""The allowed growth of the worker's memory after a tenth, since allocators are not exact."""
LEAST_RATE = 5_000.0
"""URLs a second."""
LOOK_SECONDS = 0.5
SECONDS = 3 * 3600.0

_XML = {"Content-Type": "application/xml"}


class Files:
    """The site: an index at ``/sitemap.xml``, its files, and pages without text."""

    def __init__(self, files: int, urls: int) -> None:
        self.files, self.urls = files, urls
        self.port = 0
        self._parts = [f"/page-{n}.html</loc><lastmod>2026-01-01</lastmod></url>\n"
                       for n in range(urls)]  # fmt: skip
        self.asked: list[int] = []

    def __call__(self, request: Request) -> Answer:
        at = f"http://{request.address}:{self.port}"
        if request.target == "/sitemap.xml":
            names = (f"<sitemap><loc>{at}/{n}.xml</loc></sitemap>" for n in range(self.files))
            return Answer(
                body=f"<sitemapindex>{''.join(names)}</sitemapindex>".encode(), headers=_XML
            )
        if request.target.endswith(".xml"):
            number = int(request.target[1:].removesuffix(".xml"))
            self.asked.append(number)
            start = f"<url><loc>{at}/part-{number}"
            body = "".join([start + part for part in self._parts])
            return Answer(body=f"<urlset>{body}</urlset>".encode(), headers=_XML)
        if request.target == "/robots.txt":
            return Answer(404)
        return Answer(body=b"<p>page", wait=1.0)


def main(arguments: Sequence[str]) -> int:
    """Run it, print the results, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale.sitemaps", description=__doc__)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--urls", type=int, default=50_000, help="of each file")
    parser.add_argument("--kills", type=int, default=2)
    given = parser.parse_args(arguments)
    total = given.files * (given.urls + 1) + 1
    report = Report("sitemaps", f"a sitemap of {given.files} files and {total:,} URLs")
    site = Files(given.files, given.urls)
    with (
        tempfile.TemporaryDirectory() as folder,
        SiteServer(site) as server,
        System(Path(folder), lease_seconds="10") as system,
    ):
        site.port = server.port
        system.start()
        system.crawl([server.url("/sitemap.xml")], delay=0, depth=1, sitemaps="on")
        run = _Run(
            system, total, [total * (n + 1) // (given.kills + 1) for n in range(given.kills)]
        )
        run.follow()
    again = len(site.asked) - len(set(site.asked))
    report.row(
        "all URLs", urls=run.admitted, seconds=run.seconds, URLs_s=run.admitted / run.seconds,
        kills=run.killed, files_asked_for_again=again,
    )  # fmt: skip
    report.row(
        "memory of the worker", MiB_after_a_tenth=run.early_mib, MiB_at_the_end=run.late_mib,
        MiB_at_most=run.most_mib,
    )  # fmt: skip
    report.claim(f"{total:,} URLs were taken, each once", run.admitted == total)
    report.claim(f"the worker was killed {given.kills} times", run.killed == given.kills)
    report.claim("a kill costs the file that was being read at most, and those that were leased",
                 again <= 33 * given.kills)  # fmt: skip
    report.claim(
        f"memory is flat, within {FLAT_MIB:g} MiB", run.late_mib < run.early_mib + FLAT_MIB
    )
    report.claim(f"at least {LEAST_RATE:,.0f} URLs/s", run.admitted / run.seconds >= LEAST_RATE)
    return report.finish()


class _Run:
    """A crawl that is observed until all URLs are admitted.

    Memory is that of the largest child while it reads sitemaps: the mean over the first tenth after
    the start, and over the last.
    """

    def __init__(self, system: System, total: int, kill_at: list[int]) -> None:
        self._system, self._total, self._kill_at = system, total, kill_at
        self._looks: list[tuple[int, float]] = []
        self.admitted = self.killed = 0
        self.seconds = 0.0

    def follow(self) -> None:
        """Wait until all URLs are admitted. Raises AssertionError if this takes too long."""
        began = time.monotonic()
        while self.admitted < self._total:
            if time.monotonic() - began > SECONDS:
                raise AssertionError(
                    f"{self.admitted} of {self._total}: {self._system.tail('worker')}"
                )
            gevent.sleep(LOOK_SECONDS)
            self.admitted = int(self._system.stats()["admitted"])
            self._looks.append((self.admitted, self._memory()))
            if self._kill_at and self.admitted >= self._kill_at[0]:
                del self._kill_at[0]
                self._system.kill("worker")
                self._system.start_worker()
                self.killed += 1
        self.seconds = time.monotonic() - began

    def _memory(self) -> float:
        sizes = [0.0]
        for child in self._system.children():
            with suppress(psutil.NoSuchProcess):
                sizes.append(child.memory_info().rss / MIB)
        return max(sizes)

    def _mean(self, low: float, high: float) -> float:
        found = [mib for admitted, mib in self._looks if low <= admitted / self._total <= high]
        return sum(found) / len(found) if found else 0.0

    @property
    def early_mib(self) -> float:
        """Return the memory after a tenth."""
        return self._mean(0.1, 0.25)

    @property
    def late_mib(self) -> float:
        """Return the memory at the end."""
        return self._mean(0.85, 1.0)

    @property
    def most_mib(self) -> float:
        """Return the greatest memory."""
        return max(mib for _, mib in self._looks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
