"""URLs that were refused for their address, and are allowed now."""

from __future__ import annotations

from pathlib import Path

import pytest

from greencrawl.cli.local.allowed import allowed_now
from greencrawl.schema.records import Commit, CrawlOptions, Final
from greencrawl.schema.settings import load
from greencrawl.store import open_store

REFUSED = {
    "http://127.0.0.1/": "127.0.0.1 (loopback)",
    "http://127.0.0.2/": "127.0.0.2 is 127.0.0.2 (loopback)",  # an older worker's
    "http://intern.example/": "intern.example is 192.168.1.2 (private), 10.0.0.7 (private)",
    "http://six.example/": "six.example is fd00::5 (unique local)",
    "http://search.example:9200/": "port 9200 is not in the worker's GREENCRAWL_ALLOW_PORTS",
    "http://mail.example:25/": "port 25 of mail.example belongs to another protocol",
}


@pytest.mark.parametrize(
    ("settings", "again"),
    [
        ({}, []),
        ({"ALLOW_NETWORKS": "127.0.0.0/8"}, ["http://127.0.0.1/", "http://127.0.0.2/"]),
        (
            {"ALLOW_NETWORKS": "10.0.0.0/8,fd00::/8"},
            ["http://intern.example/", "http://six.example/"],
        ),
        ({"ALLOW_NETWORKS": "172.16.0.0/12"}, []),
        ({"ALLOW_PORTS": "9200,9300"}, ["http://search.example:9200/"]),
        ({"ALLOW_PORTS": "25"}, []),
    ],
)
def test_only_refused_urls_whose_address_is_allowed_now_are_found(
    tmp_path: Path, settings: dict[str, str], again: list[str]
) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'c.sqlite'}")
    crawl = store.put_crawl("x", CrawlOptions(seeds=tuple(REFUSED)), [])
    finals = [
        Final(
            crawl=crawl.id, fingerprint=number, url=url, state="excluded",
            kind="address_forbidden", detail=detail,
        )
        for number, (url, detail) in enumerate(REFUSED.items(), 1)
    ]  # fmt: skip
    other = Final(
        crawl=crawl.id, fingerprint=99, url="http://127.0.0.1/robots", state="excluded",
        kind="robots", detail="127.0.0.1 is 127.0.0.1 (loopback)",
    )  # fmt: skip
    store.commit(Commit(finals=[*finals, other]))
    environ = {f"GREENCRAWL_{name}": value for name, value in settings.items()}
    assert sorted(allowed_now(store, crawl, load(environ))) == again
    store.close()
