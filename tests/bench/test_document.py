"""The calculations and drawings of benchmarks: duties by a log, ratios by round, the page."""

from __future__ import annotations

import json
import re
import sqlite3
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard

from bench import all as all_of_them
from bench import document
from bench.peers import page_store
from bench.peers.compare import cheaper, faster
from bench.peers.crawls import FULL, OURS, PLAIN, SCRAPY, Outcome
from bench.peers.page_store import BATCH, PageStore
from bench.rig import namespace
from bench.rig.nginx import Hit, neglected_duties, rate
from bench.rig.record import PLOTS, Cell, Record, shown, spread, versions
from bench.rig.report import write_json
from bench.scale import scaling
from greencrawl.store import rows

PAGE = document.DOCUMENT.read_text(encoding="utf-8")


def hit(path: str, at: float = 0.0, host: str = "a", status: str = "200") -> Hit:
    return Hit(at, status, host, path)


ROBOTS = hit("/robots.txt")


@pytest.mark.parametrize(
    ("hits", "found"),
    [
        ([ROBOTS, hit("/1.html"), hit("/2.html")], []),
        ([ROBOTS, hit("/1.html"), ROBOTS], []),
        ([hit("/1.html"), ROBOTS], ["a was not asked for robots.txt first"]),
        ([ROBOTS, hit("/1.html", host="b")], ["b was not asked for robots.txt first"]),
        ([ROBOTS, hit("/1.html"), hit("/1.html")], ["a/1.html was fetched 2 times"]),
        ([ROBOTS, hit("/private/1.html")], ["a/private/1.html is forbidden"]),
    ],
)
def test_the_sites_log_shows_which_rules_a_crawler_broke(hits: list[Hit], found: list[str]) -> None:
    assert neglected_duties(hits, "/private/") == found


def test_a_rate_counts_pages_from_the_first_one_until_the_crawler_ended() -> None:
    hits = [hit("/robots.txt", 1), *(hit(f"/{n}.html", 10 + n) for n in range(5))]
    hits += [hit("/x.css", 20), hit("/gone.html", 21, status="404")]
    assert rate(hits, ended=18) == 0.5
    with pytest.raises(ValueError, match="1 pages"):
        rate(hits[:2], ended=18)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (1234567, "1,234,567"),
        (1234.6, "1,235"),
        (123.4, "123"),
        (99.96, "100"),
        (12.34, "12.3"),
        (0.001234, "0.00123"),
        (0.0, "0"),
        (-3.14159, "-3.14"),
        ("a|b", "a|b"),
    ],
)
def test_table_cells_show_three_significant_digits(cell: Cell, text: str) -> None:
    assert shown(cell) == text


def test_a_spread_shows_the_median_the_least_and_the_most() -> None:
    assert spread([3.0, 1.0, 2.0, 9.0]) == "2.5 (1–9)"
    assert spread([7.0]) == "7"


def test_ratios_are_taken_within_each_round_and_always_from_our_full_run() -> None:
    outcomes = {
        (OURS, FULL): [_outcome(1000, worker=0.5, broker=0.5), _outcome(900, worker=2.0)],
        (SCRAPY, PLAIN): [_outcome(100, crawler=6.0), _outcome(300, crawler=8.0)],
        (SCRAPY, FULL): [_outcome(50, crawler=9.0), _outcome(100, crawler=9.0)],
    }
    assert faster(outcomes, SCRAPY, PLAIN) == [10, 3]
    assert faster(outcomes, SCRAPY, FULL) == [20, 9]
    assert cheaper(outcomes, SCRAPY, PLAIN) == [6, 4]


def _outcome(rate: float, **cpu: float) -> Outcome:
    return Outcome(rate, 1000, cpu, {}, [])


def test_the_page_store_of_other_crawlers_writes_full_batches_and_the_rest_at_its_close(
    tmp_path: Path,
) -> None:
    path = tmp_path / "pages.sqlite"
    store = PageStore(str(path))
    for n in range(BATCH + 1):
        store.add(f"http://h/{n}", 200, {"a": "b"}, "title", "text", ["http://h/"], b"body")
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT COUNT(*) FROM pages").fetchone() == (BATCH,)
        store.close()
        rows = db.execute("SELECT body, text, links FROM pages").fetchall()
    assert len(rows) == BATCH + 1
    body, text, links = rows[-1]
    assert [zstandard.decompress(each) for each in (body, text)] == [b"body", b"text"]
    assert json.loads(links) == ["http://h/"]


def test_pages_of_other_crawlers_are_compressed_at_the_same_level_as_ours() -> None:
    assert page_store.LEVEL == rows.LEVEL


def test_a_result_has_its_lists_on_one_line_each_and_loses_nothing(tmp_path: Path) -> None:
    record = {
        "runs": [1, 2.5, None, True],
        "rows": [["a, b", "[\n c ]"], ['"', "\\"], ["\u2028", ""]],
        "none": [],
        "deep": [{"of": [-1e9]}],
    }
    write_json(tmp_path / "x.json", record)
    text = (tmp_path / "x.json").read_text()
    assert json.loads(text) == record
    assert '"runs": [1, 2.5, null, true],\n' in text
    assert '    ["a, b", "[\\n c ]"],\n' in text


def test_a_record_of_results_keeps_tables_and_figures_and_refuses_a_short_row(
    tmp_path: Path,
) -> None:
    record = Record("example", "An example", True, results=tmp_path)
    record.table("Speed", ["who", "pages/s"], [["ours", 1234.5]])
    record.figure("ratio", 2.5)
    with pytest.raises(ValueError, match="2 columns, but a row of 1"):
        record.table("Speed", ["who", "pages/s"], [["ours"]])
    kept = json.loads(record.finish().read_text())
    assert kept["tables"] == [
        {"title": "Speed", "columns": ["who", "pages/s"], "rows": [["ours", "1,234"]]}
    ]
    assert (kept["figures"], kept["short"]) == ({"ratio": 2.5}, True)
    assert kept["versions"].keys() >= {"python", "gevent", "greencrawl"}
    assert kept["machine"].keys() >= {"cores", "processor", "memory_gb", "load_average"}


def test_a_benchmark_without_results_is_shown_as_not_run() -> None:
    page = document.draw({}, PAGE)
    for module, title in document.BENCHMARKS.values():
        assert f"## {title}\n\n`python -m {module}`: not run.\n" in page
    assert page.count("| not run |") == len(document.REQUIRED)
    partial = document.draw({"peers": _record({"plain_scrapy": 8.0})}, PAGE)
    assert partial.count("| not run |") == len(document.REQUIRED) - 1


@pytest.mark.parametrize(("value", "verdict"), [(7.99, "missed"), (8.0, "reached"), (12.0, "goal")])
def test_a_figure_is_compared_with_its_required_value_and_its_goal(
    value: float, verdict: str
) -> None:
    page = document.draw({"peers": _record({"plain_scrapy": value})}, PAGE)
    assert f"| ≥ 8 | ≥ 12 | {shown(value)} | {verdict} |" in page


@pytest.mark.parametrize(("value", "verdict"), [(151, "missed"), (150, "reached"), (99, "goal")])
def test_a_figure_of_memory_is_compared_with_its_upper_limits(value: float, verdict: str) -> None:
    record = _record({"rss_mb_greenlets_1000": value}, short=True)
    page = document.draw({"greenlets-vs-threads": record}, PAGE)
    assert f"| ≤ 150 | ≤ 100 | {value} (short run) | {verdict} |" in page


def test_the_page_names_each_figure_that_misses_its_required_value_or_goal() -> None:
    page = document.draw(
        {"peers": _record({"plain_scrapy": 7.0, "full_scrapy": 12.0})},
        PAGE,
    )
    assert "Missed: pages/s of a core ÷ Scrapy's, 20 KB pages, plain, 7 (required: 8)." in page
    said = "pages/s of a core ÷ Scrapy's, 20 KB pages, with text and storage, 12 (goal: 16)."
    assert f"Reached, but short of the goal: {said}\n" in page
    assert "Missed: " not in document.draw({}, PAGE)


def test_the_page_shows_tables_and_plots_as_they_were_recorded() -> None:
    tables = [{"title": "T", "columns": ["a", "n"], "rows": [["x|y", "1"], ["z", "-2 (-3–1)"]]}]
    plots = [{"file": "peers-t.svg", "caption": "What it shows"}]
    page = document.draw(
        {"peers": _record({}, short=True) | {"tables": tables, "plots": plots}},
        PAGE,
    )
    assert "### T\n\n| a | n |\n| --- | ---: |\n| x\\|y | 1 |\n| z | -2 (-3–1) |\n" in page
    assert "![What it shows](benchmarks/peers-t.svg)" in page
    assert "`python -m bench.peers.compare --short`, 2026-01-02, 60 s, on 2 cores (P), 8 GB" in page


def _record(figures: dict[str, float], *, short: bool = False) -> dict[str, Any]:
    machine = {"cores": 2, "processor": "P", "memory_gb": 8, "system": "Linux", "load_average": 0}
    return {
        "when": "2026-01-02T03:04:05Z",
        "seconds": 60.0,
        "short": short,
        "machine": machine,
        "versions": {"python": "3.11.7"},
        "notes": ["A note."],
        "figures": figures,
        "tables": [],
        "plots": [],
    }


def test_a_benchmark_that_hangs_is_interrupted_and_counts_as_failed(tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    script = (
        "import pathlib, time\n"
        "try:\n    time.sleep(60)\n"
        f"finally:\n    pathlib.Path({str(stopped)!r}).touch()\n"
    )
    assert all_of_them.run([sys.executable, "-c", script], 2.0) != 0
    assert stopped.exists()
    assert all_of_them.run([sys.executable, "-c", "raise SystemExit(3)"], 10.0) == 3
    assert all_of_them.run([sys.executable, "-c", ""], 10.0) == 0


def test_a_program_in_a_namespace_is_stopped_when_the_benchmark_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = tmp_path / "stopped"
    script = (
        "import pathlib, time\n"
        "try:\n    print('one', flush=True); print('two', flush=True)\n"
        # short sleeps: a signal just before a long one would be noticed only at its end
        "    for _ in range(600): time.sleep(0.1)\n"
        f"finally:\n    pathlib.Path({str(stopped)!r}).touch()\n"
    )

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(namespace, "prefix", tuple)
    with pytest.raises(KeyboardInterrupt):
        namespace.run_inside([sys.executable, "-c", script], interrupt)
    assert stopped.exists()


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(SystemExit, match="no-such-package is missing: make setup-bench"):
        versions(["no-such-package"])


def test_the_headline_of_the_readme_states_the_measured_figures() -> None:
    readme = (document.DOCUMENT.parents[1] / "README.md").read_text(encoding="utf-8")
    found = re.search(
        r"stored ([\d,]+) pages of 20 KB a second; Scrapy read ([\d,.]+) and stored none. In the "
        r"median of all rounds Greencrawl was ([\d.]+) times",
        " ".join(readme.split()),  # line breaks do not matter
    )
    assert found is not None
    peers = document.read()["peers"]
    if peers["short"]:
        return  # the headline is that of a full run
    runs = peers["runs"]["synthetic"]
    ours, theirs = (
        statistics.median(one["rate"] for one in runs[who])
        for who in ("ours, full", "Scrapy, plain")
    )
    measured = (shown(ours), shown(theirs), shown(peers["figures"]["plain_scrapy"]))
    assert found.groups() == measured


def test_each_plot_is_shown_on_one_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in PLOTS.parent.glob("*.md"))
    shown_times = {plot.name: pages.count(f"(benchmarks/{plot.name})") for plot in PLOTS.iterdir()}
    assert shown_times == dict.fromkeys(shown_times, 1)


def test_the_page_about_scaling_is_drawn_from_the_kept_results(tmp_path: Path) -> None:
    scaling.write(document=tmp_path / "scaling.md")
    said = scaling.DOCUMENT.read_text(encoding="utf-8")
    assert said == (tmp_path / "scaling.md").read_text(encoding="utf-8"), (
        "stale: run `python -m bench.scale.scaling`"
    )


def test_the_page_in_the_docs_is_drawn_from_the_kept_results() -> None:
    records = document.read()
    said = document.DOCUMENT.read_text(encoding="utf-8")
    assert said == document.draw(records, said), "stale: run `python -m bench.document`"
    for record in records.values():
        assert all((PLOTS / plot["file"]).exists() for plot in record["plots"])
