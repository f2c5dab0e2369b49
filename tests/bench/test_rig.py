"""The parts that benchmarks share: what they serve, how they add up, and that a false claim
fails."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from bench.peers.crawls import FULL, SCRAPY, crawl_with, served
from bench.rig.program import Program
from bench.rig.report import Report
from bench.rig.sites import LINKS, PAGE_BYTES, SYNTHETIC, manual, write_pages
from tests.support.effort import by_night
from tests.support.ports import free_port
from tests.support.sites import direct, folder_site
from tests.support.walk import links, walk


def test_synthetic_pages_have_the_stated_size_and_are_all_reachable(tmp_path: Path) -> None:
    write_pages(tmp_path, 60)
    pages = sorted(tmp_path.glob("*.html"))
    assert mean(page.stat().st_size for page in pages) == pytest.approx(PAGE_BYTES, rel=0.05)
    assert {len(links("http://h/", page.read_bytes())) for page in pages} == {LINKS}
    found = walk(["http://h/0.html"], direct(folder_site(tmp_path)), agent="walk")
    assert len(found.pages) == len(found.forbidden) == 60
    assert found.missing == set()


def test_the_manual_is_that_of_the_newest_release_installed(tmp_path: Path) -> None:
    assert manual(tmp_path) is None
    for release in ("9", "15", "17", "18", "doc"):
        (tmp_path / f"postgresql-doc-{release}" / "html").mkdir(parents=True)
        if release != "18":  # its pages are not there
            (tmp_path / f"postgresql-doc-{release}" / "html" / "index.html").touch()
    assert manual(tmp_path) == tmp_path / "postgresql-doc-17" / "html"


def test_a_program_runs_inside_its_with_block_and_has_ended_after_it(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    with Program(command, tmp_path, tmp_path / "log", f"{url}missing"):
        assert urlopen(url, timeout=10).status == 200
    with pytest.raises(URLError):
        urlopen(url, timeout=10)
    assert "GET /missing" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("code", "said"),
    [("raise SystemExit('no such thing')", "ended with 1: no such thing"),
     ("import time; time.sleep(60)", "is answered")],
)  # fmt: skip
def test_a_program_that_does_not_start_is_reported_and_stopped(
    tmp_path: Path, code: str, said: str
) -> None:
    url = f"http://127.0.0.1:{free_port()}/"
    program = Program([sys.executable, "-c", code], tmp_path, tmp_path / "log", url, seconds=2)
    with pytest.raises(AssertionError, match=said), program:
        pass
    assert program.code is not None


@by_night
def test_a_compared_crawler_is_judged_by_the_sites_log_and_by_its_store(tmp_path: Path) -> None:
    with served(replace(SYNTHETIC, pages=60), 2, tmp_path / "site") as on:
        one = crawl_with(SCRAPY, FULL, on, 2, tmp_path / "run")
        bodies = {urlopen(url, timeout=10).read() for url in on.seeds(2)}
    assert len(bodies) == 2
    assert (one.pages, one.neglected) == (120, [])
    assert one.rate > 0
    assert one.cpu.keys() == one.memory.keys() == {"crawler"}


def test_a_benchmark_fails_with_a_false_claim_or_without_claims(tmp_path: Path) -> None:
    codes = {}
    for name, claims in {"all": [True, True], "one false": [True, False], "none": []}.items():
        report = Report(name, name, tmp_path)
        report.figure("answer", 42, "pages")
        for holds in claims:
            report.claim("it holds", holds)
        codes[name] = report.finish()
    assert codes == {"all": 0, "one false": 1, "none": 1}
    kept = json.loads((tmp_path / "one false.json").read_text())
    assert kept["holds"] is False
    assert kept["figures"] == {"answer [pages]": 42}


def test_a_claim_with_findings_fails_and_the_report_keeps_them(tmp_path: Path) -> None:
    report = Report("found", "found", tmp_path)
    report.none("nothing is wrong", ["http://h/1 not stored"])
    assert report.finish() == 1
    assert "http://h/1 not stored" in (tmp_path / "found.json").read_text()
