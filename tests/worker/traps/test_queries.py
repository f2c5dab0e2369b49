"""Ids of sessions: what counts as one; each page is fetched with only one of them."""

from __future__ import annotations

import pytest

from greencrawl.schema.records import Admission, Crawl, CrawlOptions, StoredPage, Task
from greencrawl.worker.kernels.reading import Reading
from greencrawl.worker.traps.novelty import Novelty
from greencrawl.worker.traps.queries import plain
from greencrawl.worker.traps.traps import Traps

HOST = "h.example"
AT = f"https://{HOST}"
ONE, OTHER = "0a1b2c3d4e5f60718293a4b5c6d7e8f9", "9f8e7d6c5b4a39281706f5e4d3c2b1a0"
CRAWL = Crawl(id=1, name="c", state="active", options=CrawlOptions(traps="on"))


@pytest.mark.parametrize(
    ("path", "bare"),
    [
        (f"/p?PHPSESSID={ONE[:26]}&a=1", "/p?a=1"),
        (f"/p?a=1&sid={ONE}", "/p?a=1"),
        (f"/p?s={ONE}", "/p"),
        (f"/p;jsessionid={ONE}.node1?a=1", "/p?a=1"),
        ("/a/(S(abcdefghijklmnopqrstu12345))/p.aspx", "/a/p.aspx"),
        ("/p?CFID=1234&CFTOKEN=56789012", "/p"),
        (f"/p?osCsid={ONE}", "/p"),
        (f"/p?zenid={ONE}", "/p"),
        (f"/p?ASPSESSIONIDQACQBTTA={ONE[:24].upper()}", "/p"),
    ],
)
def test_session_ids_are_recognised_by_the_names_of_their_parameters(path: str, bare: str) -> None:
    assert plain(AT + path) == AT + bare


@pytest.mark.parametrize(
    "path",
    ["/", "/p?sid=12", "/p?sid=20260101", "/p?s=python3", "/p?id=4&story=a", "/w/Foo_(S)", "/;s=1",
     "/p?session=spring-2024", f"/p?q={ONE}", "/a;b=c/d", "/p?classes=1&cfi=3"],
)  # fmt: skip
def test_parameters_that_only_look_like_session_ids_are_kept(path: str) -> None:
    assert plain(AT + path) == AT + path


class World:
    """A judge of one host; the next page that it fetches has the text ``text``."""

    def __init__(self) -> None:
        self.traps = Traps(Novelty(None, 1 << 12, 1 << 12))
        state = self.traps.open(CRAWL, HOST, b"")
        assert state is not None
        self.state = state

    def parked(self, path: str) -> bool:
        return self.traps.verdict(self.state, CRAWL, Task(1, AT + path, 1, 1)) is not None

    def fetch(self, path: str, status: int = 200, link: str = "") -> None:
        links = [Admission(AT + link, 2, 2)] if link else []
        row = StoredPage(
            crawl=1, fingerprint=1, url=AT + path, status=status, text="", title="",
            body=b"<p>A page", links=links,
        )  # fmt: skip
        reading = Reading(text="A page", samples=b"") if status == 200 else None
        self.traps.note(self.state, CRAWL, Task(1, AT + path, 1, 1), row, reading)


def test_a_page_is_fetched_with_one_session_id_only() -> None:
    world = World()
    assert not world.parked(f"/p?t=1&sid={ONE}")
    world.fetch(f"/p?t=1&sid={ONE}")
    assert world.parked(f"/p?t=1&sid={OTHER}")
    assert not world.parked(f"/p?t=2&sid={OTHER}")
    assert not world.parked("/p?t=1"), "it has none"


def test_a_url_with_the_same_session_id_is_fetched_again() -> None:
    world = World()
    world.fetch(f"/p?t=1&sid={ONE}")
    assert not world.parked(f"/p?t=1&sid={ONE}")


def test_a_page_that_redirects_to_itself_with_a_new_session_id_is_fetched() -> None:
    world = World()
    world.fetch(f"/p?t=1&sid={ONE}", 302, f"/p?t=1&sid={OTHER}")
    assert not world.parked(f"/p?t=1&sid={OTHER}")
