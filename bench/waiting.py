"""Memory of a waiting URL in Redis: a list a level and host (as built) beside a sorted set a host.

``python -m bench.waiting [URLS]`` prints bytes a URL for 100, 3 and 1 URLs a host and paths of two
lengths: the queue alone in both shapes, and all that the frontier keeps of it (queue, host record,
due set, seen-set). Behind ``docs/decisions/0001-waiting-lists.md``.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import sys  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from pathlib import Path  # noqa: E402

import redis  # noqa: E402

from broker.frontier import Frontier  # noqa: E402
from schema.records import Admission, CrawlOptions  # noqa: E402
from store import open_store  # noqa: E402
from tests.support.redis_server import RedisServer  # noqa: E402

CHUNK = 5000


def _urls(count: int, per_host: int, length: int) -> Iterator[tuple[str, str]]:
    """(host, path), host after host."""
    for n in range(count):
        host = f"www.site-{n // per_host}.com"
        yield host, f"/section/{n % 97:02d}/article-{n:08d}-".ljust(length - 5, "x") + ".html"


def _queue_alone(client: redis.Redis, count: int, per_host: int, length: int, shape: str) -> float:
    client.flushall()
    before = client.info("memory")["used_memory"]
    pipe = client.pipeline(transaction=False)
    for n, (host, path) in enumerate(_urls(count, per_host, length)):
        if shape == "list":
            pipe.rpush(f"gc:{{7}}:w:1:{host}:A", "1s" + path)
        else:
            pipe.zadd(f"gc:{{7}}:w:1:{host}", {"1s" + path: n})
        if n % CHUNK == 0:
            pipe.execute()
    pipe.execute()
    return float(client.info("memory")["used_memory"] - before) / count


def _whole_frontier(
    server: RedisServer, folder: Path, count: int, per_host: int, length: int
) -> float:
    server.client.flushall()
    store = open_store(f"sqlite:///{folder / f'{per_host}-{length}.sqlite'}")
    frontier = Frontier([server.url], store, create=True)
    crawl = store.put_crawl("bench", CrawlOptions(), [])
    frontier.put_crawl(crawl)
    before = server.client.info("memory")["used_memory"]
    chunk: list[Admission] = []
    for host, path in _urls(count, per_host, length):
        chunk.append(Admission(f"https://{host}{path}", 1, 1))
        if len(chunk) == CHUNK:
            frontier.admit(crawl.id, chunk)
            chunk = []
    frontier.admit(crawl.id, chunk)
    used = server.client.info("memory")["used_memory"] - before
    frontier.stop()
    store.close()
    return float(used) / count


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = RedisServer(folder / "redis", None, "--appendonly", "no").start()
        try:
            print(f"{count:,} URLs; bytes a URL")
            print("URLs a host  path   list  sorted set  whole frontier with lists")
            for per_host in (100, 3, 1):
                for length in (50, 80):
                    lists = _queue_alone(server.client, count, per_host, length, "list")
                    ordered = _queue_alone(server.client, count, per_host, length, "zset")
                    whole = _whole_frontier(server, folder, count, per_host, length)
                    row = (
                        f"{per_host:>11} {length:>5} {lists:>6.0f} {ordered:>11.0f} {whole:>26.0f}"
                    )
                    print(row, flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
