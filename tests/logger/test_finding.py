"""Any lines in any frames: pages have the matching lines, each once and in order."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from greencrawl.logger import finding
from greencrawl.logger.archive import DAY_MS, Archive
from greencrawl.logger.finding import find
from greencrawl.logger.intake import Intake
from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.logs.records import LEVELS, LogLine, LogsQuery
from tests.support.effort import cases, examples
from tests.support.logger_process import line

NOW_MS = epoch_ms()
ALL = LogsQuery(since="9d", limit=1000)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Archive, Intake]:
    """Lines of four members over three days, some of one moment and some out of order; the last of
    each are in memory."""
    chance = random.Random(7)
    archive = Archive(tmp_path_factory.mktemp("logs"), 14)
    intake = Intake(archive)
    for member in ("w-0", "w-1", "w", "other-broker-8765"):
        at_ms, first = NOW_MS - 2 * DAY_MS, 1
        for number in range(20):
            count = chance.randrange(1, 12)
            texts = []
            for _ in range(count):
                at_ms += chance.choice([0, 0, 1, 5000, 600_000])
                moment = at_ms - chance.choice([0, 0, 0, 30_000])
                level = chance.choice(LEVELS)
                crawl = chance.choice(["docs", 3, "none"])
                url = f"http://h{chance.randrange(9)}.example/é"
                texts.append(line("said", moment, level, crawl=crawl, url=url).encode())
            intake.take(member, 5, first, texts, 0, flush=number < 18)
            first += count + chance.choice([0, 0, 3])
    return archive, intake


def pages(filled: tuple[Archive, Intake], query: LogsQuery) -> list[LogLine]:
    found: list[LogLine] = []
    for _ in range(2000):
        reply = find(*filled, query, NOW_MS)
        assert [one.key for one in reply.items] == sorted(one.key for one in reply.items)
        assert len(reply.items) <= query.limit
        found = [*reply.items, *found] if query.newest else [*found, *reply.items]
        if not reply.next:
            return found
        query = replace(query, after=reply.next)
    raise AssertionError("no end of it")


def test_a_search_without_conditions_finds_every_line_once(filled: tuple[Archive, Intake]) -> None:
    found = pages(filled, ALL)
    assert len(found) == filled[1].taken_lines > 300
    assert len({(one.member, one.sequence) for one in found}) == len(found)


FILTERS: list[dict[str, Any]] = [
    {},
    {"level": "error"},
    {"node": "w"},
    {"node": "w-1"},
    {"crawl": "docs,3"},
    {"url": "h3.example/é"},
    {"level": "warning", "crawl": "docs", "node": "w", "url": "h1"},
]


@pytest.mark.parametrize("wanted", FILTERS, ids=str)
@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize("look_bytes", cases([0], [finding.LOOK_BYTES]))
def test_pages_of_any_size_list_each_matching_line_once_and_in_order(
    filled: tuple[Archive, Intake],
    wanted: dict[str, Any],
    newest: bool,
    look_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everything = find(*filled, ALL, NOW_MS).items
    monkeypatch.setattr(finding, "LOOK_BYTES", look_bytes)
    expected = [one for one in everything if matches(one, **wanted)]
    assert expected
    for limit in random.Random(str(wanted)).sample(range(1, 300), examples(1, 20)):
        query = replace(ALL, limit=limit, newest=newest, **wanted)
        assert pages(filled, query) == expected


def matches(
    one: LogLine, level: str = "debug", node: str = "", crawl: str = "", url: str = ""
) -> bool:
    return (
        LEVELS.index(one.level) >= LEVELS.index(level)
        and (not node or one.member == node or one.member[:-1] == f"{node}-")
        and (not crawl or str(one.said["crawl"]) in crawl.split(","))
        and url in one.said["url"]
    )


def test_since_and_until_bound_the_lines_that_are_found(filled: tuple[Archive, Intake]) -> None:
    everything = find(*filled, ALL, NOW_MS).items
    low, high = everything[50].at_ms, everything[250].at_ms

    def iso(at_ms: int) -> str:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")

    for newest in (False, True):
        query = replace(ALL, since=iso(low), until=iso(high), limit=7, newest=newest)
        found = pages(filled, query)
        assert found == [one for one in everything if low <= one.at_ms < high]


def test_a_search_does_not_unpack_frames_of_another_time_or_level(
    filled: tuple[Archive, Intake], monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked: list[object] = []

    def unpack(path: Path, frame: Any) -> list[Any]:
        unpacked.append(frame)
        return []

    monkeypatch.setattr(finding, "_unpacked", unpack)
    archive, _ = filled
    paths = [path for day in archive.days() for _, path in archive.files(day)]
    frames = [frame for path in paths for frame in archive.frames(path)]
    find(*filled, replace(ALL, level="critical", limit=1), NOW_MS)
    assert unpacked == sorted((f for f in frames if f.levels[4]), key=lambda f: unpacked.index(f))
    assert 0 < len(unpacked) < len(frames)
    unpacked.clear()
    find(*filled, replace(ALL, since="1h"), NOW_MS)
    assert len(unpacked) < len(frames) / 4


def test_a_line_that_is_written_during_a_search_is_found_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive(tmp_path, 14)
    intake = Intake(archive)
    intake.take("w-0", 5, 1, [line("said").encode()] * 9, 0, False)
    snapshot = list(intake.waiting())
    intake.flush()
    monkeypatch.setattr(intake, "waiting", lambda: iter(snapshot))  # the state of a moment before
    assert [one.sequence for one in pages((archive, intake), ALL)] == list(range(1, 10))
    assert len(pages((archive, intake), replace(ALL, limit=2))) == 9


@pytest.mark.parametrize("after", ["x", "1-2-3", "a-b-c-d"])
def test_a_cursor_that_cannot_be_read_is_an_error(
    filled: tuple[Archive, Intake], after: str
) -> None:
    with pytest.raises(ValueError):
        find(*filled, replace(ALL, after=after), NOW_MS)
