"""Show 10: a real site crawled through MySQL leaves the same rows as through SQLite.

``GREENCRAWL_SHOW_STORE`` names another MySQL store, as a cluster's, with a database that may be
filled; without it a MariaDB of its own is started.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from bench.rig.report import Report
from bench.shows.site import MISSING, SITE, START, install_site
from greencrawl.store import open_store
from tests.support.equality import Rows, differences, rows
from tests.support.mariadb import MariaDb
from tests.support.redis_server import RedisServer
from tests.support.site_server import SiteServer
from tests.support.sites import folder_site
from tests.support.system import System

CLUSTER = "GREENCRAWL_SHOW_STORE"
SECONDS = 300.0


def show() -> int:
    """Try it, print what was found, and return the exit status."""
    cluster = os.environ.get(CLUSTER, "")
    report = Report("store-cluster" if cluster else "store-equal", "10. SQLite and MySQL agree")
    install_site()
    with (
        tempfile.TemporaryDirectory() as folder,
        SiteServer(folder_site(SITE)) as server,
    ):
        starts = [server.url(path) for path in (START, *MISSING)]
        home = Path(folder)
        one = None if cluster else MariaDb(home / "mariadb").start()
        try:
            file = f"sqlite:///{home / 'content.sqlite'}"
            sqlite = crawled(report, "SQLite", home / "a", starts, file)
            other = one.url if one else cluster
            mysql = crawled(report, "MySQL", home / "b", starts, other)
        finally:
            if one is not None:
                one.stop()
    for name, found in (("SQLite", sqlite), ("MySQL", mysql)):
        report.figure(f"pages through {name}", len(found.pages))
        report.figure(f"final states through {name}", len(found.finals))
        report.figure(
            f"attempts through {name}", sum(one.total() for one in found.attempts.values())
        )
        report.figure(f"body bytes through {name}", found.counts["bytes"])
    report.claim("it was a real site", len(sqlite.pages) > 1000)
    report.none(
        "every page, final state, attempt, version and count is equal", differences(sqlite, mysql)
    )
    return report.finish()


def crawled(report: Report, what: str, folder: Path, starts: list[str], store: str) -> Rows:
    """Crawl ``starts`` into ``store`` with two worker processes; all that it holds then."""
    redis = RedisServer(folder / "redis").start()
    try:
        with System(folder, [redis.url], processes=2, store=store) as system:
            system.start().crawl(starts, delay=0, slots=16)
            report.figure(f"crawl through {what}", system.wait_done(SECONDS), "s")
    finally:
        redis.stop()
    opened = open_store(store)
    try:
        return rows(opened, "test")
    finally:
        opened.close()
