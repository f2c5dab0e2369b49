"""The part in C under sanitizers: a short form of ``python -m bench.extract.fuzz``."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path

import pytest

from bench.extract.fuzz import __main__ as fuzz
from bench.extract.fuzz import defects, pages, reader
from greencrawl.worker.extract.compile import compile
from greencrawl.worker.extract.text import compiled
from tests.support.effort import by_night, cases

needs_sanitizers = pytest.mark.skipif(
    shutil.which("cc") is None or not fuzz.sanitizer(), reason="there is no compiler with them"
)


def test_each_planted_defect_replaces_a_text_that_occurs_once(tmp_path: Path) -> None:
    assert len(defects.DEFECTS) == 10
    for number, defect in enumerate(defects.DEFECTS):
        made = defects.copied(tmp_path / str(number), defect)
        assert defect.instead in (tmp_path / str(number) / defect.file).read_text()
        assert {path.suffix for path in made} == {".c", ".h"}
    with pytest.raises(ValueError, match="has 0 times"):
        defects.copied(tmp_path / "x", defects.Defect("x", "bounds.c", "no such text", ""))


def test_the_same_random_seed_breaks_pages_in_the_same_way() -> None:
    first, again, other = (list(islice(pages.broken(pages.OWN, seed), 20)) for seed in (1, 1, 2))
    assert first == again != other
    assert all(len(page) <= pages.MOST_BYTES for page in first)
    assert len({*first}) == 20


def test_pages_of_a_folder_are_read_up_to_the_size_limit(tmp_path: Path) -> None:
    assert pages.read([tmp_path]) == pages.OWN
    (tmp_path / "a.html").write_bytes(b"a" * 70_000)
    assert pages.read([tmp_path]) == [b"a" * pages.MOST_BYTES]


@needs_sanitizers
@pytest.mark.parametrize("number", cases([5], [n for n in range(10) if n != 5]))
def test_sanitizers_find_each_planted_defect(number: int, tmp_path: Path) -> None:
    one = fuzz.planted(defects.DEFECTS[number], [], tmp_path, 1, "-O0")
    assert fuzz.found_by(one.said), one


@needs_sanitizers
@by_night
def test_sanitizers_find_no_defect_in_the_present_sources_for_some_seconds(tmp_path: Path) -> None:
    assert compile(tmp_path, *fuzz.FLAGS, "-O0") == ""
    one = fuzz.tried([], seed=3, seconds=2, compiled=tmp_path)
    assert one.said == ""
    assert one.pages > 20


@pytest.mark.skipif(compiled is None, reason="nothing was compiled")
def test_the_fuzzer_measures_the_cpu_time_of_each_page() -> None:
    assert 0 < reader.read(pages.OWN[0]) < 1
    one = fuzz.tried([], seed=1, pages=20)
    assert (one.pages, one.said) == (20, "")
    assert 0 < one.dearest < fuzz.DEAREST_SECONDS


def test_only_the_report_of_a_sanitizer_counts_as_a_finding() -> None:
    assert fuzz.found_by("Traceback\nKeyError: 'x'") == ""
    address = "==7==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x1"
    assert fuzz.found_by(f"x\n{address}\n") == "heap-buffer-overflow"
    undefined = "a.c:3:5: runtime error: index 64 out of bounds"
    assert fuzz.found_by(undefined) == "index 64 out of bounds"
