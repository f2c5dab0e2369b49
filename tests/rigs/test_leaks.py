"""The search for secrets finds planted ones, wherever and however they are hidden."""

from __future__ import annotations

import gzip
import json
import sqlite3
from base64 import b64encode
from pathlib import Path
from urllib.parse import urlencode

import pytest
import zstandard

from tests.support.leaks import exported, in_files, in_redis, leaks, told
from tests.support.redis_server import RedisServer
from tests.support.site_server import SiteServer
from tests.support.sites import graph_site
from tests.support.system import System

SECRET = 'p"ss/wörd+1'


@pytest.mark.parametrize(
    "text",
    [
        SECRET.encode(),
        b"user=x&" + urlencode({"password": SECRET}).encode(),
        json.dumps({"password": SECRET}).encode(),
        json.dumps(json.dumps({"password": SECRET})).encode(),
        b64encode(f"u:{SECRET}".encode()),
        b64encode(f"us:{SECRET} and more".encode()),
        b64encode(f"usr:{SECRET}".encode()),
        SECRET.encode().hex().encode(),
    ],
)
def test_a_secret_is_found_in_each_of_its_forms(text: bytes) -> None:
    assert leaks([SECRET], [("here", b"before " + text + b" after")]) == ["here: " + SECRET + "…"]
    assert leaks([SECRET], [("here", text.replace(b"1", b"2"))]) == [] or b"1" not in text


def test_files_are_unpacked_and_only_files_that_may_hold_secrets_are_left_out(
    tmp_path: Path,
) -> None:
    text = SECRET.encode()
    (tmp_path / "data" / "logins").mkdir(parents=True)
    (tmp_path / "data" / "logins" / "shop.json").write_bytes(text)
    (tmp_path / "data" / "credentials.toml").write_bytes(text)
    (tmp_path / "a.log").write_bytes(b"token " + text)
    (tmp_path / "b.warc.gz").write_bytes(gzip.compress(b"nothing") + gzip.compress(text))
    with sqlite3.connect(tmp_path / "c.sqlite") as db:
        db.execute("CREATE TABLE t (x BLOB)")
        db.execute("INSERT INTO t VALUES (?)", [zstandard.compress(b"a" * 100 + text)])
    found = {one.partition(": ")[0] for one in leaks([SECRET], in_files(tmp_path))}
    found.discard("file c.sqlite")  # zstd may leave the secret readable
    assert found == {"file a.log", "unpacked b.warc.gz", "table t of c.sqlite"}


def test_every_type_of_value_in_redis_is_searched(redis_server: RedisServer) -> None:
    client = redis_server.client
    client.set("string", SECRET)
    client.hset("hash", SECRET, "x")
    client.rpush("list", SECRET)
    client.sadd("set", SECRET)
    client.zadd("zset", {SECRET: 1})
    client.set(SECRET, "x")
    client.set("other", "x")
    found = leaks([SECRET], in_redis(redis_server.url))
    names = {one.rpartition(": ")[0] for one in found}
    assert names == {f"redis {n}" for n in ("string", "hash", "list", "set", "zset", SECRET)}
    aof = redis_server.folder
    assert leaks([SECRET], in_files(aof)) != []


def test_the_search_for_secrets_covers_every_place_of_a_crawl(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with SiteServer(graph_site(5)) as server, System(tmp_path, [redis_server.url]) as system:
        start = server.url("/p/0")
        name = "searched-crawl"
        system.start().crawl([start], name, delay=0)
        system.wait_done(30, name)
        host = start.split("/")[2]
        places = [*told(system, name, [start]), *exported(system, name, tmp_path)]
        places += in_redis(redis_server.url)
        system.stop()
        places += in_files(tmp_path)
    found = " ".join(leaks([host, name], places))
    for where in (
        "api /v1/hosts/",
        "api /v1/pages?",
        "api /v1/crawls",
        "explain ",
        "export jsonl",
        "export csv",
        "export warc",
        "redis gc:",
        ".aof",
        "content.sqlite",
        "table pages",
    ):
        assert where in found, where
