"""Parts that are rendered once a second for all viewers."""

from __future__ import annotations

import gevent
import gevent.event
import pytest

from greencrawl.monitor import shared as module
from greencrawl.monitor.shared import Shared
from greencrawl.schema.errors import Unavailable
from tests.monitor.rig import Desk


def test_a_part_is_rendered_once_for_viewers_who_ask_at_the_same_time() -> None:
    now, made = [0.0], []

    def make() -> int:
        made.append(len(made))
        gevent.sleep(0.01)
        return made[-1]

    shared = Shared(lambda: now[0])
    asking = [gevent.spawn(shared.get, "a", make) for _ in range(20)]
    gevent.joinall(asking)
    assert [one.value for one in asking] == [0] * 20
    now[0] = 0.9
    assert shared.get("a", make) == 0
    assert shared.get("b", make) == 1
    now[0] = 1.0
    assert shared.get("a", make) == 2


def test_an_unavailable_part_is_tried_once_a_second() -> None:
    now, asked = [0.0], []

    def make() -> int:
        asked.append(1)
        raise Unavailable("away")

    shared = Shared(lambda: now[0])
    for _ in range(3):
        with pytest.raises(Unavailable):
            shared.get("a", make)
    assert len(asked) == 1
    now[0] = 1.0
    assert shared.get("a", lambda: 5) == 5


def test_the_number_of_kept_parts_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    shared = Shared(lambda: 0.0)
    for number in range(10):
        shared.get(number, lambda: number)  # noqa: B023 - called at once
    assert len(shared._made) == 3
    assert shared.get(9, lambda: -1) == 9
    assert shared.get(0, lambda: -1) == -1


def test_a_hundred_viewers_cost_as_much_as_one(admin: Desk) -> None:
    admin.crawl()
    asked: list[str] = []
    ask = admin.queue.stats
    admin.queue.stats = lambda crawl: asked.append(crawl.name) or ask(crawl)  # type: ignore[method-assign,func-returns-value]
    looking = [gevent.spawn(admin.get, "/monitor/?part=1") for _ in range(100)]
    gevent.joinall(looking)
    assert {one.value.status_code for one in looking} == {200}
    assert len(asked) <= 2, "once for the page, and perhaps for a sample"


def test_a_part_is_rendered_again_if_a_change_came_while_it_was_rendered() -> None:
    shared, go = Shared(lambda: 0.0), gevent.event.Event()

    def old() -> str:
        go.wait()
        return "old"

    asking = gevent.spawn(shared.get, "a", old)
    gevent.sleep(0)
    shared.forget()
    go.set()
    assert asking.get() == "old"
    assert shared.get("a", lambda: "new") == "new"


def test_an_unchanged_part_is_not_sent_again(admin: Desk) -> None:
    admin.crawl()
    first = admin.get("/monitor/?part=1")
    again = admin.get("/monitor/?part=1", If_None_Match=first.headers["etag"])
    assert again.status_code == 304
    assert again.text == ""
    admin.post("/monitor/crawls/blog/pause", admin.stamp())
    changed = admin.get("/monitor/?part=1", If_None_Match=first.headers["etag"])
    assert changed.status_code == 200
    assert "paused" in changed.text
