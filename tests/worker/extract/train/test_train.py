"""``python -m greencrawl.worker.extract.train``: it writes a model, or explains why not."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

from greencrawl.worker.extract import train
from greencrawl.worker.extract.main.text import MODEL
from greencrawl.worker.extract.page import tree_of
from greencrawl.worker.extract.text import compiled
from greencrawl.worker.extract.train import __main__ as command
from greencrawl.worker.extract.train.__main__ import main

NAV = "<ul class=menu>" + "<li><a href=/x>Some topic</a>" * 20 + "</ul>"


def fill(folder: Path, pages: int) -> None:
    """Write this many pages, each of a site of its own, with a menu and a text. Every third
    page has only snippets as labels."""
    (folder / "pages").mkdir(parents=True)
    lines = []
    for i in range(pages):
        text = [f"The {word} of page {i} stood by the water, and was seen." for word in "abcdefgh"]
        body = f"<html>{NAV}<article>{''.join(f'<p>{line}' for line in text)}</article>"
        (folder / "pages" / f"{i}.html.gz").write_bytes(gzip.compress(body.encode()))
        known = {"with": text[:2], "without": ["Some topic"]} if i % 3 == 0 else {
            "type": "article", "main_content": "\n".join(text)
        }  # fmt: skip
        lines.append(json.dumps({"id": str(i), "url": f"https://site{i}.example/"} | known))
    (folder / "truth.jsonl").write_text("\n".join(lines))


def test_training_writes_a_model_and_its_card(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("lightgbm")
    if compiled is None:
        pytest.skip("nothing was compiled")
    fill(tmp_path / "pages of mine", 60)
    out = tmp_path / "out"
    assert main([str(tmp_path / "pages of mine"), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "60 pages" in said
    assert "part 5 of 5" in said
    card = (out / "MODEL.md").read_text()
    assert "| all | 40 | 1.000 |" in card
    assert "20 articles by snippets: precision 1.000, recall 1.000" in card
    model = compiled.main_model((out / MODEL.name).read_bytes())
    root, _ = tree_of(f"<html>{NAV}<article><p>The z of page 99 stood by the water.".encode())
    assert compiled.main_text(root, model, None, False) == "The z of page 99 stood by the water."


def test_a_model_that_is_too_large_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("lightgbm")
    if compiled is None:
        pytest.skip("nothing was compiled")
    fill(tmp_path / "some", 30)
    monkeypatch.setattr(command, "MOST_BYTES", 1000)
    out = tmp_path / "out"
    assert main([str(tmp_path / "some"), "--out", str(out), "--no-scores"]) == 1
    assert "more than 1000" in capsys.readouterr().err
    assert not out.exists()


def test_training_says_what_to_install_if_lightgbm_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("fit", "card"):
        monkeypatch.delitem(sys.modules, f"{train.__name__}.{name}", raising=False)
        monkeypatch.delattr(train, name, raising=False)
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    assert main([str(tmp_path)]) == 1
    assert "is missing: pip install -r requirements-train.txt" in capsys.readouterr().err


def test_training_fails_with_a_message_if_the_folder_has_no_pages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("lightgbm")
    assert main([str(tmp_path)]) == 1
    assert "the pages cannot be read" in capsys.readouterr().err
