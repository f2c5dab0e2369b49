"""The costs of two checkouts, side by side: which one crawls what, and the ratios."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.peers import trees
from bench.peers.crawls import served
from bench.peers.trees import Pair, Spent, one_round, option, running, table
from bench.rig.sites import SYNTHETIC
from tests.support.checkout import ROOT
from tests.support.effort import by_night
from tests.support.system import wait_until


def spent(worker: float, memory: float = 100.0) -> Spent:
    return Spent({"worker": worker, "broker": 1.0, "redis": 0.0}, memory)


@by_night
def test_two_checkouts_crawl_different_hosts_at_the_same_time(tmp_path: Path) -> None:
    site = replace(SYNTHETIC, pages=50)
    with served(site, 4, tmp_path / "site") as on:
        old, new = one_round(on, [ROOT, ROOT], {}, tmp_path / "round", 1)
        pages = [hit for hit in on.nginx.hits(0) if hit.page]
    assert len(pages) == len({(hit.address, hit.path) for hit in pages}) == 4 * 50
    for one in (old, new):
        assert one.cpu["worker"] > 0
        assert one.all_cpu == sum(one.cpu.values())
        assert 30 < one.memory < 300


def test_a_crawl_that_ends_early_raises_an_error_instead_of_a_figure(tmp_path: Path) -> None:
    with (
        served(replace(SYNTHETIC, pages=50), 1, tmp_path / "site") as on,
        running(ROOT, tmp_path / "run", on) as tree,
    ):
        tree.crawl(on.seeds(1), {"depth": 0})

        def ended() -> bool:
            return tree.spent(50) is not None

        with pytest.raises(RuntimeError, match="1 of 50 pages"):
            wait_until(ended, 10, "the crawl is done")


def test_the_table_compares_the_medians_of_all_rounds() -> None:
    pairs: list[Pair] = [(spent(1), spent(1)), (spent(1), spent(2, 110)), (spent(3), spent(7))]
    lines = table(pairs)
    assert lines[0].split() == ["old", "new", "more"]
    assert lines[1].split() == [
        "CPU",
        "ms",
        "a",
        "page",
        "2",
        "3",
        "+50.0%",
        "(+0.0%",
        "to",
        "+100.0%)",
    ]
    assert lines[2].split() == ["worker", "1", "2", "+100.0%", "(+0.0%", "to", "+133.3%)"]
    assert lines[4].split() == ["redis", "0", "0", "+0.0%", "(+0.0%", "to", "+0.0%)"]
    assert lines[5].split()[-3:] == ["(+0.0%", "to", "+10.0%)"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("traps=on", ("traps", "on")),
        ("address_rate=1000", ("address_rate", 1000)),
        ('exclude=["a=b"]', ("exclude", ["a=b"])),
    ],
)
def test_the_value_of_an_option_is_read_as_json_or_as_text(text: str, found: object) -> None:
    assert option(text) == found


def test_a_comparison_without_venv_or_with_a_wrong_option_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, said in {
        (str(ROOT), str(tmp_path)): f"{tmp_path} has no .venv: make setup there",
        (str(ROOT), str(ROOT), "--with", "traps"): "invalid option value: 'traps'",
    }.items():
        with pytest.raises(SystemExit) as left:
            trees.main(arguments)
        assert left.value.code == 2
        assert said in capsys.readouterr().err
