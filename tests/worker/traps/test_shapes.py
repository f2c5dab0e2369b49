"""URLs and their shapes: which part is a hole, what is learnt, and what is odd."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.urls import canonicalise
from greencrawl.worker.traps.figures import ends_in_number
from greencrawl.worker.traps.queries import view_of, without
from greencrawl.worker.traps.shapes import LONGEST, Shaper

SHAPES = {
    "/": "/",
    "/about.html": "/{w}.html",
    "/docs/lib/os.html": "/docs/lib/{w}.html",
    "/archive/2024/05/": "/archive/{n}/{n}/",
    "/archive/2024-05-17/x": "/archive/{date}/{w}",
    "/topic-12.html": "/topic-{n}.html",
    "/o/6f3a9b2c11": "/o/{id}",
    "/o/550e8400-e29b-41d4-a716-446655440000": "/o/{id}",
    "/list?page=3&sort=price": "/list?page={n}&sort={w}",
    "/list?sort=price&page=3": "/list?page={n}&sort={w}",
    "/index.php?title=Foo&action=edit": "/index.php?action=edit&title={w}",
    "/wiki/Talk:Foo": "/wiki/Talk:{w}",
    "/p;jsessionid=0A1B2C3D4E": "/{w}",
    "/p?sid=0a1b2c3d4e5f6a7b8c": "/{w}",
    "/index.php?id=4&route=product/list": "/index.php?route=product/list&id={n}",
    "/p?sid=news": "/p?sid={w}",
    "/%E6%96%B0%E9%97%BB/%E4%B8%80": "/%E6%96%B0%E9%97%BB/{w}",
    "/t/a-long-title-of-words/12/": "/t/{w}/{n}/",
    "/item/facade-bed": "/item/{w}",
}


@pytest.mark.parametrize("path", SHAPES)
def test_parts_of_a_url_that_vary_are_holes_in_its_shape(path: str) -> None:
    assert Shaper(2026).shape(f"https://h.example{path}").name == f"https://h.example{SHAPES[path]}"


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/a/b/a/b/", "repeats"),
        ("/a/b/a/c/a/d", "repeats"),
        ("/" + "/".join("abcdefghijklmn") + "/o", "deep"),
        ("/calendar/2031/04/", "far"),
        ("/calendar?date=2031-04-01", "far"),
        ("/calendar?year=1850", "far"),
        ("/l?f[]=1&f[]=2&f[]=3", "many"),
        ("/l?" + "&".join(f"{name}=1" for name in "abcdefgh"), "many"),
        ("/p?PHPSESSID=0a1b2c3d4e5f", "session"),
        ("/2019/01/01/", ""),
        ("/topic/2045", ""),
        ("/list?start=2045", ""),
        ("/a/b/c/a", ""),
        ("/p?s=shoes", "search"),
        ("/p?s=12", ""),
        ("/p?query=2031-04-01", "far"),
    ],
)
def test_an_odd_url_has_a_hint_in_its_shape(path: str, hint: str) -> None:
    assert Shaper(2026).shape(f"https://h.example{path}").hint == hint


def test_many_combinations_of_parameters_make_a_shape_odd_except_for_pages_of_lists() -> None:
    shaper = Shaper(2026)
    pairs = [f"{one}=x&{two}=y" for one in "bcde" for two in "fghi"]
    hints = [shaper.shape(f"https://h.example/find?{pair}").hint for pair in pairs]
    assert hints == [""] * 12 + ["mixed"] * 4
    assert shaper.shape("https://h.example/find?b=x&z=y&page=2").hint == ""


def test_the_first_folders_have_shapes_of_their_own_and_later_ones_share_one() -> None:
    shaper = Shaper(2026)
    for name in ("forum", "calendar", "shop"):
        assert shaper.shape(f"https://h.example/{name}/7").name == f"https://h.example/{name}/{{n}}"
    found = {
        shaper.shape(f"https://h.example/x{chr(97 + n)}{chr(97 + n)}/7").name for n in range(26)
    }
    assert len(found) == 18
    assert "https://h.example/{w}/{n}" in found
    assert shaper.shape("https://h.example/forum/8").name == "https://h.example/forum/{n}"


def test_a_word_that_ends_urls_in_many_folders_stays_in_the_shape() -> None:
    shaper = Shaper(2026)
    names = [shaper.shape(f"https://h.example/2024/{n}/feed/").name for n in range(9)]
    assert names[0] == "https://h.example/{n}/{n}/{w}/"
    assert names[-1] == "https://h.example/{n}/{n}/feed/"
    assert len(set(names)) == 2
    assert view_of(names[-1]) == "feed"
    assert view_of(names[0]) == view_of("https://h.example/feed/") == ""
    for n in range(9):
        assert shaper.shape(f"https://h.example/2024/1/word{'abcdefghi'[n]}/").name == names[0]
    for n in range(500):
        shaper.shape(f"https://h.example/2024/1/w{chr(97 + n % 26)}{chr(97 + n // 26)}/")
    assert shaper.shape("https://h.example/2024/77/feed/").name == names[-1]


def test_each_program_behind_one_path_has_its_own_shapes() -> None:
    shaper = Shaper(2026)
    for n in range(14):
        shaper.shape(f"https://h.example/i.php?route=shop/list&{'abcdefghijklmn'[n]}=1")
    shape = shaper.shape("https://h.example/i.php?route=shop/list&z=1")
    assert shape.name == "https://h.example/i.php?route=shop/list&{other}"
    assert shape.section == f"{shape.path}?" == "https://h.example/i.php?route=shop/list?"
    assert shaper.is_late(shape)
    other = shaper.shape("https://h.example/i.php?id=4&route=shop/item")
    assert other.name == "https://h.example/i.php?route=shop/item&id={n}"
    assert not shaper.is_late(other)
    assert shaper.shape("https://h.example/i.php?route=shop/item").name == other.path


@pytest.mark.parametrize(
    ("path", "ends"),
    [("/{n}", True), ("/a/{id}/", True), ("/space-uid-{n}.html", True), ("/{n}/{w}.html", False),
     ("/{w}.php", False), ("/v{n}.x/a", False)],
)  # fmt: skip
def test_a_path_that_ends_in_a_number_is_recognised(path: str, ends: bool) -> None:
    assert ends_in_number(f"https://h.example{path}") == ends


def test_another_worker_gives_the_same_shapes_after_it_learnt_the_folders() -> None:
    one, other = Shaper(2026), Shaper(2026)
    for n in range(30):
        one.shape(f"https://h.example/{'abcdefghijklmnopqrstuvwxyzäöüß'[n]}q/7")
    other.learn(one.full())
    for url in ("https://h.example/aq/1", "https://h.example/zq/1", "https://h.example/new/1"):
        assert one.shape(url).name == other.shape(url).name
    assert one.shape("https://h.example/new/1").name == "https://h.example/{w}/{n}"


def test_parameters_are_taken_away_with_their_brackets() -> None:
    assert without("https://h/a?b=1&sid=2&c=3", ["sid"]) == "https://h/a?b=1&c=3"
    assert without("https://h/a?f[]=1&f%5B%5D=2", ["f"]) == "https://h/a"


PIECES = [
    *("a", "b", "/", "//", "?", "&", "=", ";", ".", "..", "-", "_", ":", "%20", "%E4%B8%AD", "é"),
    *("2031", "12", "sid", "jsessionid=", "[", "]", "+", "~", "x" * 50, "1" * 30, "a1" * 20),
    *("/a/b" * 40, "&x=1" * 40, "f[]=", "0a1b2c3d4e5f", "A1b2C3d4E5f6"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=20))
def test_every_url_has_a_short_shape(pieces: list[str]) -> None:
    try:
        url = canonicalise("https://h.example/" + "".join(pieces))
    except InvalidUrl:
        return
    shaper = Shaper(2026)
    first = shaper.shape(url)
    assert len(first.name) <= LONGEST
    assert shaper.shape(url) == first
    assert without(url, [])


def test_memory_for_the_shapes_of_a_host_is_bounded() -> None:
    shaper = Shaper(2026)
    for n in range(20_000):
        shaper.shape(
            f"https://h.example/{n:x}q/{n * 7:x}r/{n * 31:x}s/a{n}.php?k{n}=w{n}&mode=m{n}x"
        )
    assert shaper.size < 1500


LEAVES = """7 08 7.html a.html a-b.html a_b.html b7.html 2026 13 a 2026-11-25 7.a:b a.b:c a.b.c
    x.php?id=7 7;a=b é.html 7.é .7 a/"""


def test_the_shape_remembered_for_a_folder_equals_the_computed_one() -> None:
    """Where all files of a folder have one shape, their names are enough."""
    quick, slow = Shaper(2026), Shaper(2026)
    folders = ("", "/a", "/a/a", "/a/2026", "/2099", "/2099/1", "/a.html/b/a.html", "/a/b/c/d")
    for _ in range(3):
        for folder in folders:
            for leaf in ["", *LEAVES.split()]:
                url = f"https://h.example{folder}/{leaf}"
                assert quick.shape(url) == slow._shape(url), url
