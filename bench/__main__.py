"""``python -m bench SHOW…``: what the project must show; exit code 1 if a claim fails."""

from gevent import monkey

monkey.patch_all()

import importlib
import sys

SHOWS = {
    "1": ("shows.setup", "a fresh clone crawls its first site in under five minutes"),
    "2": ("shows.site", "a real site is stored as an independent walk finds it"),
    "3": ("shows.politeness", "delays hold with three workers, one of them killed"),
    "4": ("shows.kill", "kill -9 at named points loses nothing"),
    "5": ("peers.speed", "pages a second and CPU a page beside Scrapy"),
    "6": ("shows.idle", "an idle system is quiet and wakes at once"),
    "7": ("shows.memory", "300 busy greenlets in under 150 MB"),
    "8": ("shows.nodes", "three Redis nodes give the same result"),
    "9": ("shows.gbk", "queries of a GBK page go out as a browser sends them"),
    "10": ("shows.stores", "a real site through MySQL equals the same through SQLite"),
    "mysql": ("store.mysql", "pages a second into MariaDB beside a bare executemany"),
    "warc": ("shows.warc", "a crawled site as WARC equals the site, byte for byte"),
}


def main(arguments: list[str]) -> int:
    """Run the shows named; their worst exit code, or 2 with a list of them."""
    if not arguments or not set(arguments) <= set(SHOWS):
        print("usage: python -m bench SHOW…\n", file=sys.stderr)
        for number, (module, title) in SHOWS.items():
            print(f"  {number}  {title} (bench/{module.replace('.', '/')}.py)", file=sys.stderr)
        return 2
    modules = [importlib.import_module(f"bench.{SHOWS[number][0]}") for number in arguments]
    return max(int(module.show()) for module in modules)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
