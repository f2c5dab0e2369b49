"""Parameters that make a difference, and those that make none."""

from __future__ import annotations

from greencrawl.worker.traps.evidence import Evidence
from greencrawl.worker.traps.hosts import DONE, HostTraps
from greencrawl.worker.traps.novelty import Novelty
from greencrawl.worker.traps.parameters import key_met, learn, learn_keys, plain_of
from greencrawl.worker.traps.shapes import Shaper
from greencrawl.worker.traps.yields import Yields

SAME = Evidence(new=0.0, query=True)
NEW = Evidence(new=1.0, query=True)
SHOP = "https://h.example/shop/"


class World:
    """A host of which ten lists were fetched."""

    def __init__(self) -> None:
        self.novelty = Novelty(None, 1 << 12, 1 << 12)
        self.state = HostTraps(1, Shaper(2026), Yields())
        self.novelty.fresh([f"{SHOP}{n}" for n in range(10)], self.state.salt + DONE)

    def fetch(self, path: str, seen: Evidence = SAME) -> None:
        url = SHOP + path
        learn(self.state, self.novelty, self.state.shaper.shape(url), url, seen)
        self.novelty.fresh([url], self.state.salt + DONE)

    def plain(self, path: str) -> tuple[str, str]:
        url = SHOP + path
        return plain_of(self.state, self.novelty, self.state.shaper.shape(url), url)


def test_a_sort_parameter_is_ignored_after_three_lists_were_the_same() -> None:
    world = World()
    for n in range(3):
        assert world.plain("7?sort=price") == ("", "")
        world.fetch(f"{n}?sort=price")
    assert world.plain("7?sort=price") == (f"{SHOP}7", "sort")
    assert world.plain("7?sort=name") == ("", ""), "another order may show something else"
    assert world.plain("11?sort=price") == ("", ""), "that list was not met"
    assert world.plain("7?sort=price&page=2") == ("", "")
    world.fetch("7?page=2", NEW)
    assert world.plain("7?sort=price&page=2") == (f"{SHOP}7?page=2", "sort")


def test_all_values_of_a_sort_parameter_are_ignored_after_three_made_no_difference() -> None:
    world = World()
    for order in ("price", "name", "date"):
        for n in range(3):
            world.fetch(f"{n}?sort={order}")
    assert world.plain("7?sort=weight") == (f"{SHOP}7", "sort")
    world.fetch("4?sort=weight", NEW)
    assert world.plain("7?sort=size") == ("", "")


def test_the_page_parameter_of_a_list_is_never_ignored() -> None:
    world = World()
    for n in range(6):
        world.fetch(f"{n}?page=2")
    assert world.plain("7?page=2") == ("", "")
    for n in range(8):
        world.fetch(f"{n}?lang=1")
    assert world.plain("8?lang=1") == (f"{SHOP}8", "lang")
    world.fetch("8?lang=2", NEW)
    assert world.plain("9?lang=1") == ("", ""), "it is the first of several"


def test_a_parameter_whose_pages_lead_to_good_pages_is_not_ignored() -> None:
    world = World()
    for n in range(6):
        world.fetch(f"{n}?view=all", Evidence(new=0.0, good=1, query=True))
    assert world.plain("7?view=all") == ("", "")


class Keys(World):
    """Programs that are called by number."""

    def fetch(self, path: str, seen: Evidence = SAME) -> None:
        url = SHOP + path
        learn_keys(self.state, self.novelty, self.state.shaper.shape(url), url, seen)

    def met(self, path: str) -> str:
        url = SHOP + path
        return key_met(self.state, self.novelty, self.state.shaper.shape(url), url)


def test_a_number_that_alone_identifies_a_page_is_found() -> None:
    world = Keys()
    for n in range(10):
        world.fetch(f"item.php?id={n}", NEW)
    for n in range(4):
        assert world.met("item.php?id=7&from=a") == ""
        world.fetch(f"item.php?id={n}&from={'abcd'[n]}")
    assert world.met("item.php?id=7&from=z") == "id=7"
    assert world.met("item.php?id=11&from=z") == "", "nobody has asked for it"
    assert world.met("item.php?id=7&tab=z") == "", "of another query nothing is known"
    assert world.met("other.php?id=7&from=z") == ""


def test_a_number_does_not_identify_a_page_if_another_parameter_changes_it() -> None:
    world = Keys()
    for n in range(20):
        world.fetch(f"topic.php?t={n}", NEW)
        world.fetch(f"topic.php?t={n}&part=2", NEW if n % 5 == 4 else SAME)
        world.fetch(f"topic.php?t={n}&all=1", Evidence(new=0.0, unknown=1, query=True))
        assert n < 4 or world.met(f"topic.php?t={n}&part=3") == ""
        assert world.met(f"topic.php?t={n}&all=2") == ""


def test_the_page_number_of_a_list_does_not_identify_a_page() -> None:
    world = Keys()
    for n in range(9):
        world.fetch(f"list.php?page={n}", NEW)
        world.fetch(f"list.php?page={n}&sort=a")
    assert world.met("list.php?page=3&sort=b") == ""


PAGE = Evidence(new=0.0, numbered=True)


def test_pages_with_the_same_name_and_number_are_one_page_whatever_their_extension() -> None:
    world = Keys()
    for n in range(20):
        world.fetch(f"page-{n}.html", NEW)
    assert world.met("page-7.jsp") == ""
    for n in range(2):
        world.fetch(f"page-{n}.jsp", PAGE)
        world.fetch(f"page.php?id={n}")
    assert world.met("page-7.jsp") == "page 7"
    assert world.met("page.php?id=7") == "page 7"
    assert world.met("page-21.jsp") == "", "nobody has asked for it"
    assert world.met("page-7.asp") == "", "nothing of this shape was fetched"
    assert world.met("image-7.jsp") == "", "another name is another page"
    for n in range(7, 9):
        world.fetch(f"page.php?id={n}", NEW)
    assert world.met("page-9.jsp") == "", "it is not so in this folder"


def test_pages_with_different_names_and_equal_numbers_are_different_pages() -> None:
    world = Keys()
    for name in ("VisitorOf", "ScannerOf", "ElementOf", "KindOf", "TypeOf", "ValueOf"):
        for n in range(6, 12):
            assert world.met(f"{name}{n}.html") == ""
            world.fetch(f"{name}{n}.html", PAGE)


def test_one_of_several_numbers_in_a_path_can_be_ignored() -> None:
    world = Keys()
    for n in range(9):
        world.fetch(f"thread-{n}-1-1.html", NEW)
        world.fetch(f"thread-{n}-2-1.html", NEW)
    for n in range(4):
        assert world.met("thread-7-1-5.html") == ""
        world.fetch(f"thread-{n}-1-{n + 2}.html", PAGE)
    assert world.met("thread-7-1-5.html") == "thread-7-1-*.html"
    assert world.met("thread-7-2-5.html") == "thread-7-2-*.html"
    assert world.met("thread-7-3-1.html") == "", "that page differs from others"
    assert world.met("thread-9-1-5.html") == "", "nobody has asked for it"
    world.fetch("thread-5-2-3.html", NEW)
    assert world.met("thread-7-1-6.html") == ""
