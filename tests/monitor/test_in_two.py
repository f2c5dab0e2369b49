"""A page whose part is not rendered yet is sent in two steps: the browser loads its files early."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import falcon.testing
import pytest
from markupsafe import escape

from greencrawl.broker.service.service import Service
from greencrawl.monitor.words import words
from greencrawl.schema.errors import Unavailable
from tests.monitor.rig import HOST, Desk

HOME = "/monitor/"


def steps(desk: Desk) -> Iterator[str]:
    """Yield the first page as it comes."""
    environ = falcon.testing.create_environ(HOME, host=HOST)
    sent: list[str] = []

    def start(status: str, *_: Any) -> None:
        sent.append(status)

    for chunk in desk.monitor.app().wsgi(environ, start):
        assert sent == ["200 OK"]
        yield chunk.decode()


@pytest.fixture
def counted(open_desk: Desk, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Crawls that were counted for a part."""
    found: list[str] = []
    counters: Callable[..., Any] = Service.counters

    def count(service: Service, crawls: Any) -> Any:
        found.extend(crawl.name for crawl in crawls)
        return counters(service, crawls)

    monkeypatch.setattr(Service, "counters", count)
    open_desk.crawl("blog")
    return found


def test_the_head_of_a_page_is_sent_before_its_new_part_is_rendered(
    open_desk: Desk, counted: list[str]
) -> None:
    page = steps(open_desk)
    head = next(page)
    assert "monitor.css" in head
    assert "<h1>" in head
    assert counted == []
    rest = next(page)
    assert "blog" in rest
    assert rest.rstrip().endswith("</html>")
    assert counted == ["blog"]
    assert list(page) == []
    whole = open_desk.get(HOME)
    assert counted == ["blog"], "a part that somebody just had is sent with its page"
    assert whole.text == head + rest
    assert whole.headers["ETag"]


def test_a_page_whose_part_is_unavailable_ends_with_the_reason(
    open_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_desk.crawl("blog")
    page = steps(open_desk)
    next(page)

    def away(*_: object) -> None:
        raise Unavailable("the store went away")

    monkeypatch.setattr(Service, "counters", away)
    monkeypatch.setattr("greencrawl.monitor.views.overview.open_alerts", away)
    rest = next(page)
    assert "the store went away" in rest
    assert rest.rstrip().endswith("</html>")


def test_a_page_whose_part_meets_a_bug_ends_with_an_excuse_and_without_the_error(
    open_desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    open_desk.crawl("blog")
    page = steps(open_desk)
    next(page)

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Service, "counters", broken)
    rest = next(page)
    assert "a bug" not in rest
    assert escape(words("en")("failed.broken")) in rest
    assert "page_failed" in capsys.readouterr().err
    assert rest.rstrip().endswith("</html>")
