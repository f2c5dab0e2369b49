"""The cost of observing a crawl: both sides are in the right state."""

from __future__ import annotations

import ast

import pytest

from bench.peers import seen
from bench.peers.trees import Pair, Spent
from tests.support.checkout import ROOT
from tests.support.effort import by_night


@pytest.mark.parametrize("name", seen.OUT)
def test_what_is_taken_out_is_there_once_and_the_rest_is_python(name: str) -> None:
    text = (ROOT / name).read_text()
    for piece, without in seen.OUT[name]:
        assert text.count(piece) == 1, piece
        text = text.replace(piece, without)
    ast.parse(text)


def test_the_ratio_is_that_of_the_medians() -> None:
    def spent(worker: float, **more: float) -> Spent:
        return Spent({"worker": worker, "broker": 0.0, "redis": 0.0, **more}, 100.0)

    pairs: list[Pair] = [
        (spent(2.0), spent(1.0, logger=1.04)), (spent(1.0), spent(9.0)), (spent(3.0), spent(0.5)),
    ]  # fmt: skip
    assert seen.ratio(pairs) == pytest.approx(1.02)


@by_night
def test_a_pair_is_seen_and_unseen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "src")
    monkeypatch.setattr(seen, "SCRAPE_SECONDS", 0.2)
    assert seen.main(["--pairs", "1", "--hosts", "1", "--pages", "500"]) in (0, 1)
    said = capsys.readouterr().out
    assert "ratio of the medians" in said
    (logger,) = (line.split() for line in said.splitlines() if line.startswith("  logger"))
    assert float(logger[1]) == 0 < float(logger[2])
