"""The measured cost of main text when a page is read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from bench.extract import reading
from greencrawl.store.rows import Codec
from greencrawl.worker.extract import main
from tests.worker.extract.main.test_main_text import ARTICLE

BODY = ARTICLE.encode()


def test_the_cost_of_a_page_is_measured_with_main_text_and_without() -> None:
    cost = reading._cost(Codec(), BODY, 1)
    assert cost is not None
    assert min(cost.without, cost.beside) > 0
    assert 0 < cost.bytes_without < len(BODY) * 2
    added = cost.bytes_beside - cost.bytes_without
    assert (0 < added < 40) == main.available()
    line = reading._line("kind", [cost, reading.Cost(3.0, 5.0, 10, 30)])
    assert line.split()[:2] == ["kind", "2"]
    assert float(line.split()[-1]) == pytest.approx((added + 20) / 2, abs=0.51)


def test_the_measured_pages_come_from_the_benchmarks_and_from_given_folders(tmp_path: Path) -> None:
    rows = [
        {"id": "1", "url": "http://a.example/", "type": "article", "main_content": "x"},
        {"id": "2", "url": "http://b.example/", "with": ["x"], "without": []},
    ]
    (tmp_path / "pages").mkdir()
    for row in rows:
        (tmp_path / "pages" / f"{row['id']}.html.gz").write_bytes(gzip.compress(BODY))
    (tmp_path / "truth.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = reading._pages([tmp_path])
    made, *others = found.values()
    assert len(set(made)) == reading.MADE
    assert all(18_000 < len(body) < 22_000 for body in made)
    assert others == [[BODY], [BODY]]
