"""``python -m greencrawl.logger``: who may call it, what it refuses, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from greencrawl.logger.__main__ import check_settings
from greencrawl.logger.app import MOST_BYTES, MOST_LINES
from greencrawl.logger.joining import address_of
from greencrawl.schema import file_lock
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.logs.records import MOST_LINE_BYTES
from greencrawl.schema.settings import load
from tests.support.effort import by_night
from tests.support.logger_process import LoggerProcess, everything, get, line, logger_here, post
from tests.support.system import wait_until

TOKEN = "a-token-of-workers"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with logger_here(tmp_path_factory.mktemp("open")) as (url, _):
        yield url


def status(call: Any, *arguments: Any, **named: Any) -> tuple[int, dict[str, Any]]:
    """Return the answer to a refused call."""
    with pytest.raises(urllib.error.HTTPError) as error:
        call(*arguments, **named)
    return error.value.code, json.loads(error.value.read())


def test_posted_lines_are_found_and_survive_kill_9_once_they_are_on_disk(tmp_path: Path) -> None:
    logger = LoggerProcess(tmp_path).start()
    try:
        lines = [line("a", number=n, level="error", url="https://example.org/") for n in range(3)]
        assert post(logger.url, lines, flush="true") == {"taken": 3, "kept": 3}
        assert post(logger.url, lines, first=4) == {"taken": 6, "kept": 3}
        assert len(get(logger.url)["items"]) == 6  # those in memory, too
        logger.kill()
        data = next(tmp_path.glob("logs/*/w-0.ndjson.zst"))
        with data.open("ab") as file:
            file.write(data.read_bytes()[:-3])  # a second frame, torn
        logger.start()
        assert "file_truncated" in logger.log()
        found = everything(logger.url)
        assert [one["sequence"] for one in found] == [1, 2, 3]
        assert found[0]["said"]["url"] == "https://example.org/"
        # Lines that were taken but are not on disk are requested again, and come once.
        assert post(logger.url, lines, first=7, after=6) == {"taken": 3, "kept": 3}
        assert post(logger.url, lines, first=2) == {"taken": 4, "kept": 3}
        assert logger.stop() == 0
        logger.start()
        assert [one["sequence"] for one in everything(logger.url)] == [1, 2, 3, 4]
    finally:
        logger.stop()


def test_a_second_logger_on_the_same_folder_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    first = file_lock.take(tmp_path / "logs" / "lock", b"1")
    try:
        second = LoggerProcess(tmp_path)
        assert second.spawn().wait(20) == 2
        assert "another logger uses" in second.log()
    finally:
        os.close(first)


def test_a_logger_does_not_listen_on_the_network_without_a_token() -> None:
    for bind in ("0.0.0.0:0", "[::]:0", "10.0.0.1:0"):
        with pytest.raises(InvalidConfig, match="GREENCRAWL_WORKER_TOKEN"):
            check_settings(load({}, logger_bind=bind))
        check_settings(load({}, logger_bind=bind, worker_token=TOKEN))
    check_settings(load({}, logger_bind="127.0.0.1:0"))


def test_a_logger_with_a_token_refuses_requests_without_it(tmp_path: Path) -> None:
    with logger_here(tmp_path, TOKEN) as (url, intake):
        assert status(post, url, [line("a")])[0] == 401
        assert status(post, url, [line("a")], token="another")[0] == 401
        assert status(get, url)[0] == 401
        assert intake.taken_lines == 0
        assert post(url, [line("a")], token=TOKEN)["taken"] == 1
        assert len(get(url, token=TOKEN)["items"]) == 1


def test_a_logger_without_a_token_refuses_requests_of_web_pages(here: str) -> None:
    for name, value in (("Origin", "https://evil.example"), ("Host", "evil.example")):
        request = urllib.request.Request(f"{here}/v1/logs?since=1d", headers={name: value})
        assert status(urllib.request.urlopen, request)[0] == 403


WRONG: list[dict[str, Any]] = [
    {"member": ".."},
    {"member": "..%2F..%2Fetc"},
    {"member": "a%2Fb"},
    {"member": "a%00b"},
    {"member": "a" * 101},
    {"member": ""},
    {"incarnation": -1},
    {"incarnation": 2**63},
    {"first": 0},
    {"first": "x"},
    {"flush": "perhaps"},
    {"unknown": 1},
]


@pytest.mark.parametrize("query", WRONG, ids=str)
def test_a_post_with_a_wrong_parameter_is_refused(here: str, query: dict[str, Any]) -> None:
    code, problem = status(post, here, [line("a")], **query)
    assert code == 400
    assert next(iter(query)) in problem["detail"]


@pytest.mark.parametrize(
    "query", [{"since": "when"}, {"limit": 0}, {"limit": 1001}, {"after": "x"}, {"level": "loud"}]
)
def test_a_query_that_cannot_be_read_is_refused(here: str, query: dict[str, Any]) -> None:
    assert status(get, here, **query)[0] == 400


def send(url: str, body: bytes, **headers: str) -> Any:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    asked = f"{url}/v1/logs?member=w-9&incarnation=1&first=1"
    request = urllib.request.Request(asked, body, headers, method="POST")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


def test_the_size_of_a_posted_body_is_bounded_even_if_it_is_compressed(here: str) -> None:
    assert status(send, here, b"x" * (MOST_BYTES + 1))[0] == 413
    bomb = zstandard.ZstdCompressor().compress(b"x" * (200 * MOST_BYTES))
    assert len(bomb) < MOST_BYTES / 20
    assert status(send, here, b"\n" * (MOST_LINES + 1))[0] == 413
    assert status(send, here, bomb, Content_Encoding="zstd")[0] == 413
    assert status(send, here, b"no zstd", Content_Encoding="zstd")[0] == 400
    assert status(send, here, b"{}", Content_Encoding="gzip")[0] == 415


def test_hostile_lines_are_stored_in_a_harmless_form(tmp_path: Path) -> None:
    hostile = [
        line("good"),
        b'{"event": "\x1b]0;title\x07\x1b[2J"}',
        b"\xff\xfe",
        b"[" * 9000,
        b'{"event": "a", "more": "' + b"x" * MOST_LINE_BYTES + b'"}',
        line("good"),
    ]
    with logger_here(tmp_path) as (url, _):
        assert post(url, hostile, flush="true")["kept"] == 6
        found = everything(url)
        (file,) = tmp_path.glob("*/w-0.ndjson.zst")
        raw = zstandard.ZstdDecompressor().stream_reader(file.read_bytes(), read_across_frames=True)
        content = raw.read()
    assert [one["sequence"] for one in sorted(found, key=lambda one: one["sequence"])] == [
        1, 2, 3, 4, 5, 6,
    ]  # fmt: skip
    assert sorted(one["event"] for one in found)[:3] == ["\x1b]0;title\x07\x1b[2J", "good", "good"]
    assert content.replace(b"\n", b"").decode("ascii").isprintable()
    assert content.count(b"\n") == 6


def test_a_logger_that_listens_on_all_addresses_announces_one_that_others_reach() -> None:
    settings = load({}, logger_bind="0.0.0.0:1", broker="http://127.0.0.1:8765")
    assert address_of(settings, 8766) == "http://127.0.0.1:8766"
    settings = load({}, logger_bind="[::1]:1", tls_cert="a", tls_key="b")
    assert address_of(settings, 8766) == "https://[::1]:8766"


@by_night
def test_a_full_disk_loses_no_line_that_was_acknowledged(tmp_path: Path) -> None:
    """A file system of a megabyte in memory, if we may mount one."""
    folder = tmp_path / "data"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=False
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    logger = LoggerProcess(tmp_path / "node", data=str(folder))
    try:
        logger.start()
        first, code = 1, 0
        while not code and first < 10_000:
            lines = [line("a", number=n, text=os.urandom(500).hex()) for n in range(50)]
            try:
                assert post(logger.url, lines, first=first, flush="true")["kept"] == first + 49
                first += 50
            except urllib.error.HTTPError as error:
                code = error.code
        assert code == 507
        logger.kill()
        logger.start()
        wait_until(logger.health, 10, "it answers")
        assert [one["sequence"] for one in everything(logger.url)] == list(range(1, first))
    finally:
        logger.stop()
        subprocess.run(["umount", str(folder)], check=False)
