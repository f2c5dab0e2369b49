"""Figures about main text, and their intervals."""

from __future__ import annotations

from collections.abc import Callable

import pytest

np = pytest.importorskip("numpy")

from bench.extract import __main__ as bench  # noqa: E402
from bench.extract import intervals, readers  # noqa: E402
from greencrawl.worker.extract.train.samples import SNIPPETS, Sample  # noqa: E402


def sample(kind: str, site: str, text: str | None) -> Sample:
    return Sample("k", kind, site, "http://x/", b"", text, ("a b",), ("c", "d"), "", "", "")


def test_an_interval_contains_its_figure_and_treats_the_pages_of_a_site_as_one() -> None:
    values = np.array([[1.0, 1], [0, 1], [1, 1], [0, 1]] * 10)
    many = [str(i) for i in range(40)]
    middle, low, high = intervals.interval(values, many, intervals.mean)
    assert (middle, 0.3 < low < 0.5 < high < 0.7) == (0.5, True)
    one_site = intervals.interval(values, ["x"] * 40, intervals.mean)
    assert one_site == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("figure", "value"),
    [(intervals.precision, 0.75), (intervals.recall, 0.6), (intervals.snippet_f1, 2 / 3)],
)
def test_precision_recall_and_f1_are_computed_from_counts_of_snippets(
    figure: Callable[..., object], value: float
) -> None:
    assert np.allclose(figure(np.array([[3.0, 2, 1]])), value)
    assert np.allclose(figure(np.zeros((1, 3))), 0)


def test_pages_are_grouped_by_kind_and_pages_with_snippets_form_their_own_group() -> None:
    samples = [sample("forum", "x", "t"), sample(SNIPPETS, "x", None), sample("article", "y", "t")]
    groups = {name: list(places) for name, places in bench._groups(samples).items()}
    assert groups == {"all": [0, 2], "article": [2], "forum": [0], SNIPPETS: [1]}


def test_each_page_adds_its_counts_of_snippets_and_its_score() -> None:
    assert bench._addends(sample("forum", "x", "a b"), "a b c") == (1, 0, 1, pytest.approx(0.8), 1)
    assert bench._addends(sample(SNIPPETS, "x", None), "d") == (0, 1, 1, 0, 1)


def test_our_reader_and_the_reader_of_the_whole_text_take_bytes() -> None:
    assert readers.whole(b"<p>a<p>b") == "a b"
    assert readers.whole(b"") == readers.ours(b"") == ""


@pytest.mark.parametrize("name", readers.OTHERS)
def test_other_libraries_read_bytes_in_the_encoding_that_they_declare(name: str) -> None:
    line = "The café stood by the water, and was seen from afar. "
    page = f"<head><meta charset=latin1><title>T</title></head><body><p>{line * 20}</p></body>"
    try:
        text = readers.OTHERS[name](page.encode("latin1"))
    except ModuleNotFoundError as error:
        pytest.skip(f"{error.name} is not installed")
    assert line.strip() in text


def test_a_library_that_raises_an_error_counts_as_finding_no_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def reader(body: bytes) -> str:
        if body == b"x":
            raise ValueError("x")
        return "t"

    pages = [sample("forum", "x", "t")]
    texts, millis = bench._timed(pages, {"a": reader})
    assert (texts, len(millis["a"])) == ({"a": ["t"]}, 1)
    broken = Sample("k2", "forum", "x", "http://x/", b"x", "t", (), (), "", "", "")
    both = {"a": reader, "b": lambda body: "u"}
    assert bench._timed([*pages, broken], both)[0] == {"a": ["t", ""], "b": ["u", "u"]}
    assert "k2, a: ValueError: x" in capsys.readouterr().err
