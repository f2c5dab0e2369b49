"""The cost of observing a crawl: both sides are in the right state."""

from __future__ import annotations

import ast
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bench.peers import seen
from bench.peers.trees import Pair, Spent
from tests.support.checkout import ROOT
from tests.support.effort import by_night


@pytest.mark.parametrize("name", seen.OUT)
def test_each_removed_piece_of_code_occurs_once_and_the_rest_is_valid_python(name: str) -> None:
    text = (ROOT / name).read_text()
    for piece, without in seen.OUT[name]:
        assert text.count(piece) == 1, piece
        text = text.replace(piece, without)
    ast.parse(text)


def test_the_cost_ratio_of_observing_is_computed_from_medians() -> None:
    def spent(worker: float, **more: float) -> Spent:
        return Spent({"worker": worker, "broker": 0.0, "redis": 0.0, **more}, 100.0)

    pairs: list[Pair] = [
        (spent(2.0), spent(1.0, logger=1.04)), (spent(1.0), spent(9.0)), (spent(3.0), spent(0.5)),
    ]  # fmt: skip
    assert seen.ratio(pairs) == pytest.approx(1.02)


def test_a_scrape_that_fails_after_its_first_answer_raises_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(seen, "SCRAPE_SECONDS", 1.0)
    asked, refused = [0], threading.Event()

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked[0] += 1
            self.send_response(200 if asked[0] == 1 else 503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            if asked[0] == 2:
                refused.set()

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        with pytest.raises(RuntimeError, match="after 1 answers"), seen.scraping([url, url]):
            assert refused.wait(10)
        server.shutdown()


@by_night
def test_a_pair_measures_one_observed_and_one_unobserved_crawl(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "src")
    monkeypatch.setattr(seen, "SCRAPE_SECONDS", 0.2)
    assert seen.main(["--pairs", "1", "--hosts", "1", "--pages", "500"]) in (0, 1)
    said = capsys.readouterr().out
    assert "ratio of the medians" in said
    (logger,) = (line.split() for line in said.splitlines() if line.startswith("  logger"))
    assert float(logger[1]) == 0 < float(logger[2])
