"""Further actions of people with the Monitor, in a real Chromium, which take longer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.monitor import scenery
from tests.monitor.world import World, a_world
from tests.support.axe import findings
from tests.support.effort import by_night
from tests.support.system import wait_until

pytestmark = by_night
SLOW = 2.0
"""The delay that a crawl gets by its form, in seconds."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with a_world(tmp_path_factory.mktemp("monitor")) as made:
        yield made


def test_logs_of_a_logger_are_read_and_followed(world: World, tmp_path: Path) -> None:
    logger = world.logger(tmp_path / "logger")
    try:
        with world.page() as page:
            page.goto(f"{world.home}logs")
            assert "There is no logger" in page.text(".empty")
            logger.start()
            page.until("document.querySelector('#lines') !== null", 40)
            page.fill(".filter [name=url]", "crawl_done")
            page.click(".filter button", goes=True)
            assert "No line matches" in page.text(".empty")
            # New lines appear by themselves.
            world.crawl("said", "0")
            page.until("document.querySelector('#lines tbody tr') !== null", 40)
            assert "crawl_done" in page.text("#lines")
            page.run("document.querySelector('.filter [name=level]').value = 'error'")
            page.click(".filter button", goes=True)
            assert "No line matches" in page.text(".empty")
    finally:
        logger.stop()


PATHS = (
    "", "crawls/gardens", "crawls/shops", "crawls/botany-papers", "crawls/shops/edit", "new",
    "pages?crawl=herbarium-2025", "url", "url?url=http://www.gardens.example/",
    "failures?crawl=shops",
    "traps?crawl=gardens", "hosts", "hosts/www.gardens.example", "frontier", "store", "nodes",
    "nodes/*", "orders", "logs", "nothing",
)  # fmt: skip
LINKS = (
    ("pages?crawl=herbarium-2025", "#pages th a"),
    ("failures?crawl=shops", "#letters th a"),
    ("nodes", "#nodes th a"),
)


@pytest.fixture(scope="module")
def painted(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A system with something to see on every page."""
    store = world.store()
    scenery.paint(store, 80, pages=2000)
    store.put_block("slow.example", 2**45, "timeout")
    store.put_delay("shy.example", 2500)
    store.close()
    world.system.call("PATCH", "/v1/orders", {"member": "*", "options": {"log_level": "info"}})
    logger = world.logger(tmp_path_factory.mktemp("logger"))
    try:
        logger.start()
        with world.page() as page:
            world.crawl("heard", "0")  # otherwise the logs may be empty
            page.goto(f"{world.home}logs?level=debug")
            page.until("document.querySelector('#lines tbody tr') !== null", 40)
        yield world
    finally:
        logger.stop()


@pytest.mark.parametrize("language", ["en", "zh-CN"])
@pytest.mark.parametrize("dark", [True, False])
def test_axe_finds_nothing_serious_on_any_page(painted: World, language: str, dark: bool) -> None:
    found = {}
    with painted.page(dark=dark, language=language) as page:
        for path in PATHS:
            page.goto(painted.home + path)
            page.run("document.querySelectorAll('details').forEach((one) => { one.open = true })")
            found[path] = findings(page)
        for start, link in LINKS:
            page.goto(painted.home + start)
            page.click(link, goes=True)
            found[link] = findings(page)
    with painted.browser.page(dark=dark, language=language) as page:
        page.goto(painted.home)
        found["login"] = findings(page)
    assert {path: bad for path, bad in found.items() if bad} == {}


@pytest.mark.parametrize("language", ["en", "zh-CN"])
def test_every_page_fits_a_phone(painted: World, language: str) -> None:
    wide = {}
    with painted.page(width=390, language=language) as page:
        page.resize(390, 800, phone=True)
        for path in PATHS:
            page.goto(painted.home + path)
            wide[path] = page.run("document.documentElement.scrollWidth")
    assert {path: found for path, found in wide.items() if found > 390} == {}


def test_a_delay_that_a_person_changes_takes_effect_in_the_sites_log(world: World) -> None:
    world.crawl("paced", "slow/0")
    host = world.url("paced").partition("//")[2].partition(":")[0]

    def asked() -> list[float]:
        return [hit.arrived for hit in world.web.log() if hit.address == host]

    wait_until(lambda: len(asked()) > 20, 20, "it is under way")
    with world.page() as page:
        page.goto(f"{world.home}crawls/paced/edit")
        page.fill("#o-delay", f"{SLOW:g}")
        page.click("form.options button.main", goes=True)
        page.click("button[value=save]", goes=True)
        saved = len(asked())

    def gaps() -> list[float]:
        times = asked()[saved:]
        return [after - before for before, after in pairwise(times)]

    wait_until(lambda: sum(gap > SLOW - 0.1 for gap in gaps()) >= 3, 60, "the site is left alone")
    kept = gaps()
    followed = next(n for n, gap in enumerate(kept) if gap > SLOW - 0.1)
    assert min(kept[followed:]) > SLOW - 0.1  # permanently from then on
    assert max(kept[followed:]) < 2 * SLOW + 1
    world.system.call("POST", "/v1/crawls/paced/stop", {"now": True})
