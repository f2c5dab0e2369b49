"""Sums of shapes, and the record of a host that keeps them."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from greencrawl.schema.records import TRAPS_BYTES
from greencrawl.worker.traps.evidence import Evidence, count_text
from greencrawl.worker.traps.queries import query_of
from greencrawl.worker.traps.record import pack, pages_of, unpack
from greencrawl.worker.traps.yields import (
    FIRST_PROBE,
    GOOD,
    MORE,
    PACKED_SHAPES,
    PARKED,
    SHAPES,
    Yields,
    key_of,
)

POOR = Evidence(new=0.0, own=3)
NEW = Evidence(new=1.0)
INNER = Evidence(new=1.0, inner=True)


def test_a_shape_that_yields_only_more_urls_of_itself_is_parked() -> None:
    sums = Yields()
    one = sums.begin("https://h/a/{n}", "https://h/a", 0.0)
    fetches = 0
    while not one.is_parked:
        sums.judge(one, "https://h/a", POOR)
        fetches += 1
    assert 4 <= fetches <= 10


def test_pages_without_new_text_or_links_do_not_make_their_shape_poor() -> None:
    sums = Yields()
    one = sums.begin("https://h/a/{n}", "https://h/a", 0.0)
    for _ in range(10_000):
        sums.judge(one, "https://h/a", Evidence(new=0.0))
    assert not one.is_poor


def test_a_shape_is_parked_later_if_it_has_yielded_more() -> None:
    def patience(yields: int) -> int:
        sums = Yields()
        one = sums.begin("https://h/a/{n}", "https://h/a", 0.0)
        for _ in range(yields):
            sums.judge(one, "https://h/a", NEW)
        fetches = 0
        while not one.is_parked:
            sums.judge(one, "https://h/a", POOR)
            fetches += 1
        return fetches

    assert patience(0) < patience(1) < patience(20) == patience(1000) < 30


def test_the_score_of_a_shape_falls_step_by_step_with_pages_that_yield() -> None:
    def least(yields: int) -> float:
        sums = Yields()
        one = sums.begin("https://h/a/{n}", "https://h/a", 0.0)
        for _ in range(yields):
            sums.judge(one, "https://h/a", NEW)
        return one.score

    assert [least(yields) for yields in (1, 2, 3, 30)] == [-2.0, -4.0, -5.5, -12.0]


def test_a_shape_with_new_text_in_40_percent_of_its_pages_is_not_parked() -> None:
    chance = random.Random(7)
    sums = Yields()
    one = sums.begin("https://h/a/{n}", "https://h/a", 0.0)
    for n in range(20_000):
        sums.judge(one, "https://h/a", NEW if n == 0 or chance.random() < 0.4 else POOR)
        assert not one.is_parked


def test_probes_of_a_parked_shape_become_rarer_and_two_that_yield_end_its_parking() -> None:
    sums = Yields()
    one = sums.begin("https://h/a/{n}", "https://h/a", 0.0)
    for _ in range(20):
        sums.judge(one, "https://h/a", POOR)
    probes = [n for n in range(1, 2000) if one.due()]
    assert probes == [FIRST_PROBE, FIRST_PROBE * MORE, FIRST_PROBE * MORE**2, FIRST_PROBE * MORE**3]
    sums.judge(one, "https://h/a", NEW)
    assert one.is_parked
    assert [one.due() for _ in range(4)] == [False, False, True, False]
    sums.judge(one, "https://h/a", NEW)
    assert not one.is_parked


def test_probes_are_a_small_part_of_a_host_s_pages() -> None:
    sums = Yields()
    sums.pages = 200
    shapes = [sums.begin(f"https://h/{n}/{{n}}", f"https://h/{n}", 10.0) for n in range(30)]
    probes = [(one.name, n) for n in range(500) for one in shapes if sums.due(one)]
    assert len(probes) == 4
    assert {one.parked for one in shapes} == {500}
    sums.pages = 300
    assert [sums.due(one) for one in shapes].count(True) == 1, "it is still due"
    sums.judge(shapes[0], "https://h/0", NEW)
    assert [sums.due(one) for one in shapes[1:]].count(True) == 1, "one that yields costs none"


def test_a_shape_in_a_poor_section_of_a_host_is_parked_sooner() -> None:
    def pages(section: str) -> int:
        sums = Yields()
        for name in "ab":
            one = sums.begin(f"https://h/x/{name}/{{n}}", "https://h/x", 0.0)
            for _ in range(6):
                sums.judge(one, "https://h/x", POOR)
        assert sums.against("https://h/x") == 12
        one = sums.begin(f"{section}/c/{{n}}", section, 0.0)
        one.score = 0.0
        while not one.is_parked:
            sums.judge(one, section, POOR)
        return one.pages

    assert pages("https://h/x") == 3 < pages("https://h/y") == 6


def test_a_page_with_many_links_to_its_own_shape_is_worth_less() -> None:
    sums = Yields()
    one = sums.begin("https://h/find?a={w}", "https://h/find?", 0.0)
    few, many = (Evidence(new=1.0, own=own, query=True) for own in (7, 8))
    assert sums.judge(one, "https://h/find?", few) < sums.judge(one, "https://h/find?", many) < 0
    few, many = (Evidence(new=0.0, own=own, query=True) for own in (7, 8))
    assert 0 < sums.judge(one, "https://h/find?", few) < sums.judge(one, "https://h/find?", many)


def test_a_yield_of_an_odd_shape_is_worth_less() -> None:
    sums = Yields()
    one = sums.begin("https://h/find?q={w}", "https://h/find?", 3.0)
    assert sums.judge(one, "https://h/find?", Evidence(new=1.0, query=True, odd=True)) == -1.5


def test_linked_pages_with_the_same_text_count_even_if_their_links_have_unknown_shapes() -> None:
    def weight(bred: bool) -> float:
        sums = Yields()
        one = sums.begin("https://h/go/a-{n}", "https://h/go", 0.0)
        return sums.judge(one, "https://h/go", Evidence(new=0, unknown=8, equal=True, bred=bred))

    assert (weight(False), weight(True)) == (0.0, 1.5)


def test_a_new_shape_in_a_poor_section_begins_with_a_worse_score() -> None:
    sums = Yields()
    for name in "abc":
        one = sums.begin(f"https://h/x/{name}/{{n}}", "https://h/x", 0.0)
        for _ in range(5):
            sums.judge(one, "https://h/x", POOR)
    assert sums.begin("https://h/x/d/{n}", "https://h/x", 0.0).score > 3
    assert sums.begin("https://h/y/d/{n}", "https://h/y", 0.0).score == 0


def filled(seed: int = 1) -> Yields:
    chance = random.Random(seed)
    sums = Yields()
    sums.pages = chance.randrange(1, 10**6)
    for n in range(200):
        one = sums.begin(f"https://h/{n}/{{n}}", f"https://h/{n}", 0.0)
        for _ in range(chance.randrange(6)):
            sums.judge(one, f"https://h/{n}", chance.choice((POOR, NEW, INNER)))
        sums.found_on(f"https://h/{n}/{{n}}", chance.getrandbits(32))
        sums.weigh_parameter(f"p{n}", chance.choice((1.0, -6.0)))
        name = f"https://h{n % 20 * '/a'}/{{n}}"
        count_text(sums.texts, n, key_of(name), name)
        sums.remember(b"\3\0\0" + chance.randbytes(80))
        one.parked = chance.randrange(10**6)
    return sums


def test_a_record_keeps_the_most_important_sums_within_its_size_limit() -> None:
    sums = filled()
    full = {n: frozenset(random.Random(n).sample(range(2**32), 20)) for n in range(40)}
    record = pack(sums, full, 4711, True)
    assert len(record) <= TRAPS_BYTES
    assert pages_of(record) == sums.pages
    found = unpack(record)
    assert found is not None
    assert (found.software, found.asks) == (4711, True)
    assert found.full
    assert all(full[prefix] == words for prefix, words in found.full.items())
    assert len(sums.sums) == SHAPES
    kept = sorted(sums.sums.items(), key=lambda pair: (-pair[1].score, -pair[1].pages))
    for name, one in kept[:PACKED_SHAPES]:
        other = found.yields.sum_of(name)
        assert other is not None
        assert (other.name, other.score, other.pages, other.yields, other.parked) == (
            name, one.score, one.pages, one.yields, one.parked,
        )  # fmt: skip
        assert (round(other.inner, 2), other.inners) == (round(one.inner, 2), one.inners)
    assert found.yields.against("https://h/199") == sums.against("https://h/199")
    assert found.yields.parameter("p199") == sums.parameter("p199")
    assert pack(found.yields, found.full, 4711, True) == record or len(record) > 3000


def test_a_parked_shape_stays_parked_for_the_next_worker() -> None:
    sums = Yields()
    sums.pages = 20
    one = sums.begin("https://h/a/{n}", "https://h/a", 0.0)
    for _ in range(10):
        sums.judge(one, "https://h/a", POOR)
    found = unpack(pack(sums, {}, 0))
    assert found is not None
    assert not found.asks
    other = found.yields.sum_of("https://h/a/{n}")
    assert other is not None
    assert other.score == one.score >= PARKED
    assert found.yields.sum_of("https://h/b/{n}") is None


@given(st.binary(max_size=300))
def test_unpacking_an_invalid_record_does_not_raise(record: bytes) -> None:
    unpack(record)
    unpack(b"\3" + record)
    whole = pack(filled(2), {}, 0)
    unpack(whole[: len(record) * 7])


def test_memory_for_the_sums_of_a_host_is_bounded() -> None:
    sums = filled()
    assert len(sums.sums) + len(sums.packed) <= SHAPES
    assert len(sums.by_key) == len(sums.sums)
    assert len(sums.texts) <= 64
    assert len(sums.parameters) <= 128
    assert len(sums.templates) <= 200


def test_a_settled_shape_counts_pages_as_any_other_does() -> None:
    sums, other = Yields(), Yields()
    one, same = (each.begin("https://h/a/{n}", "https://h/a", 0.0) for each in (sums, other))
    for n in range(60):
        if one.is_settled:
            sums.yielded(one, "https://h/a")
        else:
            sums.judge(one, "https://h/a", NEW)
        other.judge(same, "https://h/a", NEW)
        assert one.is_settled == (n >= 7)
        assert (one.score, one.pages, one.yields, one.text) == (
            same.score, same.pages, same.yields, same.text,
        )  # fmt: skip
    assert sums.against("https://h/a") == other.against("https://h/a")


def test_a_host_is_troubled_once_a_shape_was_poor() -> None:
    sums = Yields()
    one = sums.begin("https://h/a/{n}", "https://h/a", 0.0)
    sums.judge(one, "https://h/a", NEW)
    assert not sums.troubled
    while not one.is_poor:
        sums.judge(one, "https://h/a", POOR)
    sums.pages = 20
    found = unpack(pack(sums, {}, 0))
    assert found is not None
    assert sums.troubled
    assert found.yields.troubled
    other = Yields()
    other.begin("https://h/far", "https://h", 3.0)
    assert other.troubled


def test_shapes_that_lead_only_to_each_other_do_not_stay_good() -> None:
    sums = Yields()
    one, other = (sums.begin(f"https://h/{name}/{{n}}", f"https://h/{name}", 0.0) for name in "ab")
    for _ in range(20):
        sums.judge(one, "https://h/a", Evidence(new=0.0, good=1))
    for _ in range(40):
        for this, that in ((other, one), (one, other)):
            leads = max(that.leads, that.further)
            leading = 0.8 * leads if leads >= GOOD else 0.0
            sums.judge(this, "https://h/a", Evidence(new=0.0, leading=leading))
    assert max(one.leads, one.further, other.leads, other.further) < GOOD


def test_numbered_pages_without_new_text_count_against_a_shape_that_never_yielded() -> None:
    sums = Yields()
    numbered = Evidence(new=0.0, numbered=True)
    for name, yields in (("a", 0), ("b", 2)):
        one = sums.begin(f"https://h/{name}/{{n}}", f"https://h/{name}", 0.0)
        for _ in range(yields):
            sums.judge(one, f"https://h/{name}", NEW)
        for _ in range(20):
            sums.judge(one, f"https://h/{name}", numbered)
        assert one.is_parked == (yields == 0)


def test_an_odd_shape_is_parked_sooner_than_others_even_after_many_yields() -> None:
    def patience(odd: bool) -> int:
        sums = Yields()
        one = sums.begin("https://h/a?q={w}", "https://h/a?", 3.0 if odd else 0.0)
        for _ in range(20):
            sums.judge(one, "https://h/a?", Evidence(new=1.0, query=True, odd=odd))
        pages = one.pages
        while not one.is_parked:
            sums.judge(one, "https://h/a?", Evidence(new=0.0, own=3, query=True, odd=odd))
        return one.pages - pages

    assert patience(True) == 6
    assert patience(False) == 18


def test_three_pages_that_lead_to_unknown_urls_do_not_make_a_shape_poor() -> None:
    sums = Yields()
    one = sums.begin("https://h/{n}/{n}", "https://h/", 0.0)
    for _ in range(3):
        seen = Evidence(new=0.0, own=1, unknown=1, equal=True, numbered=True)
        sums.judge(one, "https://h/", seen)
    assert not one.is_poor
    while not one.is_parked:
        sums.judge(one, "https://h/", Evidence(new=0.0, own=1, unknown=1, equal=True))
    assert one.pages == 6


def test_a_text_repeated_in_many_places_counts_more_against_a_shape() -> None:
    def pages(wide: int) -> int:
        sums = Yields()
        one = sums.begin("https://h/a?b={n}", "https://h/a?", 0.0)
        while not one.is_parked:
            sums.judge(one, "https://h/a?", Evidence(new=0.0, wide=wide, query=True))
        return one.pages

    assert pages(8) == 3 < pages(7) == 6


def test_the_yield_of_pages_found_within_a_shape_is_known_after_three_of_them() -> None:
    sums = Yields()
    one = sums.begin("https://h/{w}", "https://h/", 0.0)
    for n in range(20):
        assert one.inner_known == (n >= 3)
        sums.judge(one, "https://h/", INNER)
        sums.judge(one, "https://h/", Evidence(new=0.0))
    assert one.inner > 0.9
    for _ in range(6):
        sums.judge(one, "https://h/", Evidence(new=0.0, inner=True))
    assert one.inner < GOOD


def test_views_that_yield_nothing_do_not_count_against_their_folder() -> None:
    sums = Yields()
    for name in ("a", "b", "c"):
        one = sums.begin(f"https://h/x/{name}/{{w}}/feed/", "https://h/x", 0.0)
        for _ in range(8):
            sums.judge(one, "https://h/x", Evidence(new=0.0, data=True))
    assert sums.against("https://h/x") == 0
    assert sums.against(query_of("https://h/x/{w}/feed/")) == 16
    assert sums.begin("https://h/y/{w}/feed/", "https://h/y", 0.0).score == PARKED - 1
    assert sums.begin("https://h/x/{w}/{w}/", "https://h/x", 0.0).score == 0
