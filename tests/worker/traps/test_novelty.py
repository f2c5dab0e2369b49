"""Novelty: what a page shows that its host has not shown yet."""

from __future__ import annotations

from array import array
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greencrawl.schema.records import Admission
from greencrawl.worker.extract import outline
from greencrawl.worker.extract.text import compiled as speedups
from greencrawl.worker.traps import novelty
from greencrawl.worker.traps.novelty import (
    Found,
    Novelty,
    figures_of,
    samples_of,
    text_hash,
    text_of,
)
from tests.worker.traps.pages import prose

URL = "https://h.example/x"


def page(*blocks: str, url: str = URL, images: str = "") -> bytes:
    body = "".join(f"<p>{block}</p>" for block in blocks) + images
    read, _ = outline(body.encode(), url, "text/html; charset=utf-8")
    return read.samples or samples_of(read.text, url)


@pytest.fixture
def shown() -> Novelty:
    return Novelty(None, 1 << 14, 1 << 12)


compiled = pytest.mark.skipif(speedups is None, reason="nothing was compiled")


@pytest.mark.parametrize("language", ["en", "zh", "th"])
def test_a_text_is_new_once_in_any_script(shown: Novelty, language: str) -> None:
    first, second = prose(1, 200, language), prose(2, 200, language)
    assert shown.look(page(*first), 1).share == 1.0
    assert shown.look(page(*first), 1) == Found(0, shown.look(page(*first), 1).text, 0)
    assert shown.look(page(*second), 1).share > 0.5
    assert shown.look(page(*first[:2], *second[2:]), 1).share < 0.1
    assert shown.look(page(*first), 2).share == 1.0


def test_a_glance_checks_page_and_links_at_once_with_separate_hash_seeds(shown: Novelty) -> None:
    samples, salts = page(*prose(1)), (11, 12, 13)
    links = [Admission(f"{URL}/{n}", 1, 1) for n in range(70)]
    asking = [*links[:29], Admission(f"{URL}?q", 1, 1)]
    first = shown.glance(URL, samples, asking, salts, 0)
    assert first == (Novelty(None, 1 << 14, 1 << 12).look(samples, 1), list(range(30)))
    assert shown.glance(URL, page(*prose(2)), links, salts, 0) is None, "nothing else is looked at"
    assert shown.look(page(*prose(2)), 12).share == 1.0
    again = shown.glance(f"{URL}/other", samples, links, salts, 0)
    assert isinstance(again, tuple)
    assert (again[0].fresh, again[0].share, again[1]) == (0, 0.0, list(range(29, 70)))
    assert shown.glance(f"{URL}/new", page(*prose(3)), asking, salts, 0) is True, "nothing to ask"
    assert [shown.met(URL, salt) for salt in salts] == [True, False, False]
    assert [shown.met(links[0].url, salt) for salt in salts] == [False, False, True]
    assert shown.passed(f"{URL}/by", links, 11) is True
    assert shown.passed(f"{URL}/asks", asking, 11) is False
    assert shown.passed(f"{URL}/by", asking, 11) is None, "it was met"
    assert not shown.met(f"{URL}/by", 13)
    empty = shown.glance(f"{URL}/empty", b"", [], salts, 7)
    assert empty == (Found(0, 0, 0), [])


@pytest.mark.parametrize("without", [False, True])
def test_a_glance_and_a_look_agree_whether_much_is_new(
    without: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if without:
        monkeypatch.setattr(novelty, "compiled", None)
    known, told = "\n".join(prose("known", 600)), set()
    for words in (0, 1, 2, 3, 5, 8, 13, 21, 60, 200):
        one, other = Novelty(None, 1 << 14, 1 << 12), Novelty(None, 1 << 14, 1 << 12)
        for beside in ("", known[:200], known):
            text = "\n".join((beside, *prose(words, words)))
            for table in (one, other):
                table.look(samples_of(beside, URL), 2)
            samples = samples_of(text, f"{URL}/{words}")
            seen = one.glance(f"{len(beside)} {words}", samples, [], (1, 2, 3), 0)
            found = other.look(samples, 2)
            assert seen == (found.is_much or (found, []))
            told.add(found.is_much)
    assert told == {True, False}


@compiled
def test_links_of_any_python_type_are_read(shown: Novelty) -> None:
    """Each type of link has its URL in a different place."""
    links = [Admission(f"{URL}/1", 1, 1), SimpleNamespace(url=f"{URL}/2"), Admission(f"{URL}/3")]
    assert shown.fresh_links(links, 1) == [0, 1, 2]  # type: ignore[arg-type]
    assert [shown.met(f"{URL}/{n}", 1) for n in (1, 2, 3, 4)] == [True] * 3 + [False]
    with pytest.raises(AttributeError):
        shown.fresh_links([SimpleNamespace()], 1)  # type: ignore[list-item]


@compiled
def test_text_late_in_a_page_does_not_change_its_samples() -> None:
    def body(size: int) -> str:
        rows = (
            f"<div>{text}<a href=/{n}>more of <b>it</b></a></div><p>{n}</p>"
            for n, text in enumerate(line for m in range(size) for line in prose(m, 40))
        )
        return "".join(rows)

    short, long = (outline(body(size).encode(), URL, "text/html")[0] for size in (60, 300))
    assert len(short.text) > 10_000
    assert short.samples == long.samples
    assert "\n" not in long.text
    plain, _ = outline(body(300).encode(), URL, "text/html", samples=False)
    assert (plain.text, plain.samples) == (long.text, b"")


@compiled
def test_a_list_in_another_order_is_not_new(shown: Novelty) -> None:
    items = [line for n in range(60) for line in prose(n, 6)]
    assert shown.look(page(*items), 1).share == 1.0
    assert shown.look(page(*reversed(items)), 1).fresh == 0
    assert shown.look(page(*items[::3]), 1, 6).share < 0.2


@compiled
def test_whole_numbers_count_as_equal_and_decimals_do_not(shown: Novelty) -> None:
    shown.look(page("No events on day 13", "See page 4711 of 2028"), 1)
    assert shown.look(page("No events on day 9", "See page 23 of 1999"), 1).fresh == 0
    shown.look(page(*(f"{n}.{n + 3:02} degrees" for n in range(12, 60))), 1)
    assert shown.look(page(*(f"{n}.{n + 9:02} degrees" for n in range(13, 61))), 1).share > 0.5


@pytest.mark.parametrize("without", [False, True])
def test_figures_are_the_numbers_of_a_block_that_are_not_in_the_url(
    without: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if without:
        monkeypatch.setattr(novelty, "compiled", None)
    url = "https://h.example/screw/0104?of=6"

    def figures(*lines: str) -> list[tuple[int, int]]:
        return figures_of(samples_of("\n".join(lines), url))

    assert figures("Article 104 of 6", "No number at all") == []
    ((label, value),) = figures("Article 104 of 6", "Price 12 EUR for 200")
    assert label & 15 == 2
    assert figures("Price 13 EUR for 200")[0][0] == label
    assert figures("Price 13 EUR for 200")[0][1] != value
    ((other, _),) = figures("Price 12,50 EUR for 200")
    assert (other & 15, other >> 4 == label >> 4) == (3, False)
    rows = figures("from 5 to 91", "and from 7 to 95", "from 40 to 20")
    assert sorted(one & 15 for one, _ in rows) == [2, 4], "equal rows are one"
    (counted,) = figures(*map(str, range(27, 60)))
    assert counted[0] & 15 == 1, "one that is the last one's next is no figure, as in a calendar"
    many = figures(*(f"{chr(97 + n) * 9} {3 * n + 20}" for n in range(26)))
    assert len(many) == 16


def test_pages_that_differ_only_in_figures_have_the_same_text() -> None:
    one, other = (page(*prose("screw"), f"Price {n} EUR") for n in (7, 12))
    assert one != other
    assert text_hash(one) == text_hash(other) != text_hash(page(*prose("nut"), "Price 7 EUR"))
    assert text_of(one) == text_of(other)
    assert (figures_of(b""), len(text_of(b"")), text_hash(b"")) == ([], 0, 0)


@compiled
def test_the_url_path_repeated_in_a_page_is_not_new(shown: Novelty) -> None:
    for n in range(20):
        path = "/".join(prose(n, 12)[0].strip(".").split())
        url = f"https://h.example/{path}"
        found = shown.look(page(f"Sorry, /{path} was not found on this server.", url=url), 1)
    assert found.fresh == 0


@compiled
def test_an_image_is_new_once_whatever_its_query(shown: Novelty) -> None:
    assert shown.look(page("Photo", images="<img src=/1.jpg>"), 1).images == 1
    assert shown.look(page("Photo", images="<img src='/1.jpg?t=7'>"), 1).images == 0
    assert shown.look(page("Photo", images="<img src=data:x><img>"), 1).images == 0
    assert shown.look(page("Photo", images="<img src=/2.jpg>" * 20), 1).images == 1


@pytest.mark.parametrize("without", [False, True])
def test_a_url_is_new_once_and_is_forgotten_when_the_table_is_full(
    without: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if without:
        monkeypatch.setattr(novelty, "compiled", None)
    shown = Novelty(None, 1 << 14, 1 << 12)
    assert shown.fresh(["a", "b", "a"], 1) == [0, 1]
    assert shown.fresh(["c", "b"], 1) == [0]
    assert shown.met("a", 1)
    assert not shown.met("a", 2)
    assert not shown.met("d", 1)
    assert shown.fresh(["d"], 1) == [0]
    shown.fresh([f"x{n}" for n in range(60_000)], 1)
    assert not shown.met("a", 1)


def test_novelty_is_found_without_the_compiled_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(novelty, "compiled", None)
    shown = Novelty(None, 1 << 16, 1 << 12)
    for language in ("en", "zh"):
        first, second = (" ".join(prose((language, n), 300, language)) for n in (1, 2))
        assert shown.look(samples_of(first, URL), 1).share == 1.0
        assert shown.look(samples_of(first, URL), 1).fresh == 0
        assert shown.look(samples_of(second, URL), 1).share > 0.5


@compiled
def test_processes_with_the_same_file_share_what_a_host_has_shown(tmp_path: Path) -> None:
    one, other = (Novelty(tmp_path / "shown", 1 << 14, 1 << 12) for _ in range(2))
    text = page(*prose(1, 200))
    assert one.look(text, 1).share == 1.0
    assert other.look(text, 1).fresh == 0
    one.fresh(["https://h.example/a"], 1)
    assert other.met("https://h.example/a", 1)
    assert (tmp_path / "shown").stat().st_size == 4 * ((1 << 14) + (1 << 12))


def test_novelty_works_in_memory_if_its_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "shown").mkdir()
    shown = Novelty(tmp_path / "shown", 1 << 14, 1 << 12)
    assert shown.fresh(["a"], 1) == [0]
    assert shown.fresh(["a"], 1) == []


@compiled
def test_hostile_samples_and_tables_are_refused() -> None:
    table = bytearray(4 << 10)
    assert speedups is not None
    for wrong in (b"\x03\x00\x00" + b"x" * 4 * 200, "text", None):
        with pytest.raises((TypeError, ValueError)):
            speedups.novel(wrong, 1, table, 3)
    for wrong_table in (bytearray(12), bytearray(0), b"\0" * 4096):
        with pytest.raises((TypeError, ValueError, BufferError)):
            speedups.novel(b"\x03\x00\x00abcd", 1, wrong_table, 3)
    assert speedups.novel(b"\x03\xff\x00abcd", 1, table, 3) == (0, 0, 1, 0)
    assert speedups.novel(b"\x03\x00\xffabcd", 1, table, 3) == (0, 0, 0, 0)
    assert speedups.novel(b"", 1, table, 3) == (0, 0, 0, 0)
    with pytest.raises(TypeError):
        speedups.unmet(["a", 7], 1, table, True)


@compiled
def test_the_text_of_links_and_words_of_the_url_are_not_new(shown: Novelty) -> None:
    for n in range(20):
        asked = "-".join(prose(n, 3)[0].strip(".").lower().split())
        there = "".join(f"<li><a href=/x/{n}{m}>{prose((n, m), 4)[0]}</a>" for m in range(9))
        body = f"<p>Sorry, there is no “{asked.replace('-', ' ')}” here.<ul>{there}</ul>"
        read, _ = outline(body.encode(), f"https://h.example/a/{asked}", "text/html")
        found = shown.look(read.samples, 1)
        assert read.samples
        assert found.fresh == 0 or n == 0


@compiled
def test_a_link_that_is_a_whole_paragraph_is_text(shown: Novelty) -> None:
    text = prose(1, 60)[0]
    assert len(text) > 200
    read, _ = outline(f"<a href=/x>{text}</a>".encode(), "https://h.example/a", "text/html")
    assert shown.look(read.samples, 1).fresh > 0


LINKS = st.lists(
    st.sampled_from(["", "a", "b", "é", "a" * 70, *(f"https://h/{n}" for n in range(90))])
)


@pytest.mark.parametrize("without", [False, True])
@settings(deadline=None)
@given(pages=st.lists(LINKS, max_size=6))
def test_novelty_of_links_equals_the_novelty_of_their_urls(
    without: bool, pages: list[list[str]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if without:
            patch.setattr(novelty, "compiled", None)
        one, other = (Novelty(None, 1 << 8, 1 << 12) for _ in range(2))
        for urls in pages:
            links = [Admission(url, 1, 1) for url in urls]
            assert one.fresh_links(links, 7) == other.fresh(urls, 7)


@compiled
def test_objects_that_are_no_links_are_refused() -> None:
    assert speedups is not None
    table = bytearray(4 << 10)
    for wrong in ([7], [Admission], ["https://h/"], [None]):
        with pytest.raises((TypeError, AttributeError)):
            speedups.unmet_links(wrong, 1, table)
    with pytest.raises(TypeError):
        speedups.unmet_links((), 1, table)


@compiled
def test_sampling_a_text_of_one_byte_does_not_change_it() -> None:
    """Python has only one object for each such byte."""
    assert speedups is not None
    speedups.sample(b"\n", "https://h.example/x/y")
    assert bytes([10])[0] == 10


@compiled
@settings(deadline=None)
@given(st.text("ab\n9. ", max_size=400), st.text("ab/", max_size=6), st.integers(0, 300))
def test_the_url_path_in_a_text_of_any_length_is_replaced_by_a_gap(
    text: str, path: str, more: int
) -> None:
    assert speedups is not None
    url = f"https://h.example/x{path}/y"
    echo = f"/x{path}/y"
    filler = "c" * (9 * more)
    with_it, with_gaps = (
        speedups.sample(f"{filler}{one.join(text.split('9'))}".encode(), url)
        for one in (echo, "\0")
    )
    assert with_it == with_gaps


@compiled
@settings(deadline=None)
@given(st.text("ab \n", max_size=600))
def test_line_feeds_between_blocks_become_spaces_in_the_text(text: str) -> None:
    body = "".join(f"<p>{block}</p>" for block in text.split("\n"))
    read, _ = outline(body.encode(), URL, "text/html")
    assert read.text == " ".join(text.split())


@compiled
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_short_excerpt_of_a_known_page_is_not_new_without_the_words_of_its_url(
    shown: Novelty, language: str
) -> None:
    """A short page without its URL's words is only pieces of the whole text."""
    text = prose(1, 400, language)
    words = "-".join(dict.fromkeys(text[0].strip(".").lower().split()[:4]))
    long = [*text, *(line for n in range(2, 8) for line in prose(n, 160, language))]
    whole = page(*long, url=f"https://h.example/{words}/")
    shown.look(whole, 1)
    print_view = page(*text, url=f"https://h.example/{words}/print/")
    found = shown.look(print_view, 1, whole[0])
    assert found.text > 0
    assert found.fresh == 0


@compiled
def test_samples_do_not_cross_a_gap() -> None:
    assert speedups is not None
    one, other = "a linen shirt of some colour ", " that is not here any more, alas"
    gap, apart = (
        array("I", speedups.sample(f"{one}{glue}{other}".encode(), URL)[3:])
        for glue in ("\0", "\n")
    )
    assert set(gap) <= set(apart)
