"""Labels: which parts of a page belong to its main text, as people marked them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from greencrawl.worker.extract.train.labels import by_shingles, labels
from greencrawl.worker.extract.train.samples import SNIPPETS, Sample, read
from greencrawl.worker.extract.train.scores import Snippets, f1, shares


def sample(**known: object) -> Sample:
    given = {
        "key": "x/1", "kind": "article", "site": "example.org", "url": "http://example.org/",
        "body": b"", "text": None, "present": (), "absent": (),
        "title": "", "author": "", "date": "",
    }  # fmt: skip
    return Sample(**(given | known))  # type: ignore[arg-type]


def test_blocks_are_marked_by_their_shingles_and_short_ones_by_lines() -> None:
    truth = "Key points\nOne two three four five six.\n\nIn short"
    blocks = [
        "Home",
        "Key points",
        "One two three four five six.",
        "four five six In short",
        "short",
        "In short",
    ]
    found = by_shingles(blocks, truth)
    assert list(found[[0, 1, 2, 5]]) == [0, 1, 1, 1]
    assert found[3] == 1
    assert found[4] == 0


def test_a_block_that_is_main_text_in_part_is_marked_in_part() -> None:
    assert by_shingles(["a b c d e f g h"], "a b c d")[0] == 0.5


def test_signs_without_spaces_are_words_of_their_own() -> None:
    assert list(by_shingles(["日本語の文章", "広告を見る人"], "これは日本語の文章です")) == [1, 0]


def test_snippets_mark_the_blocks_that_they_stand_in() -> None:
    known = sample(kind=SNIPPETS, present=("b c", "e f"), absent=("x y",))
    found = labels(["a b  c", "d e", "f g", "x y", "z"], known)
    assert list(found[:4]) == [1, 1, 1, 0]
    assert found[4] != found[4]


def test_pages_are_read_with_their_labels(tmp_path: Path) -> None:
    rows = {
        "a": [
            {"id": "1", "type": "forum", "url": "https://a.b.co.uk/x", "main_content": "t"},
            {"id": "2", "type": "forum", "url": "https://b.co.uk/", "main_content": ""},
        ],
        "a/s": [
            {"id": "1", "url": "hard::news.x.org-y.html", "with": ["a  b"], "without": []},
            {"id": "2", "url": "https://web.x.org/2/https://w.org/", "with": [], "without": []},
        ],
    }  # fmt: skip
    for folder, lines in rows.items():
        (tmp_path / folder / "pages").mkdir(parents=True)
        for line in lines:
            page = tmp_path / folder / "pages" / f"{line['id']}.html.gz"
            page.write_bytes(gzip.compress(b"<p>t"))
        text = "\n".join(json.dumps(line) for line in lines)
        (tmp_path / folder / "truth.jsonl").write_text(text)
    found = list(read(tmp_path))
    assert [one.key for one in found] == ["s/1", "s/2", "a/1", "a/2"] or [
        one.key for one in found
    ] == ["a/1", "a/2", "s/1", "s/2"]
    by_key = {one.key: one for one in found}
    assert [by_key[key].site for key in ("a/1", "a/2", "s/1", "s/2")] == [
        "b.co.uk",
        "b.co.uk",
        "x.org",
        "w.org",
    ]
    assert by_key["a/1"].fold(5) == by_key["a/2"].fold(5)
    assert (by_key["s/1"].kind, by_key["s/1"].text, by_key["s/1"].present) == (
        SNIPPETS,
        None,
        ("a b",),
    )
    assert by_key["a/1"].body == b"<p>t"


def test_a_folder_without_pages_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"truth\.jsonl"):
        list(read(tmp_path))


def test_scores_count_words_and_snippets() -> None:
    assert shares("a a b", "A b c") == (2 / 3, 2 / 3, pytest.approx(2 / 3))
    assert f1("", "a") == f1("a", "") == 0
    snippets = Snippets()
    snippets.add("one\n two three", ["one two", "four"], ["three"])
    assert (snippets.precision, snippets.recall, snippets.f1) == (0.5, 0.5, 0.5)
    assert Snippets().f1 == 0
