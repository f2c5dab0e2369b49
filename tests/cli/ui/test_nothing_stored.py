"""The message for a crawl that stored nothing."""

from __future__ import annotations

import msgspec

from greencrawl.cli.ui import summary
from greencrawl.cli.ui.nothing_stored import URLS, reasons
from greencrawl.schema.records import CrawlStats, HookRefusal, UrlState

NOTHING = summary.of_run(CrawlStats(crawl="x", state="done", reason="finished"), (), 1.0, 0)


def test_failures_are_explained_by_kind_the_most_frequent_first() -> None:
    failed = msgspec.structs.replace(
        NOTHING, failures={"timeout": 1, "dns_missing": 3, "robots": 2}
    )
    assert reasons(failed, []) == [
        "failures: dns_missing 3 (no such host name; for those of a search list see "
        "GREENCRAWL_DNS_SERVERS), robots 2 (robots.txt forbids it), timeout 1"
    ]


def test_the_message_names_limits_refused_hooks_and_the_states_of_the_seeds() -> None:
    refused = (HookRefusal("w-0", "one", "own", "no module"),)
    ended = msgspec.structs.replace(NOTHING, reason="max_seconds", refused=refused)
    begins = [
        UrlState(crawl="x", url=f"http://h/{n}", state="waiting", why=f"It waits\x1b {n}.")
        for n in range(URLS + 1)
    ]
    said = reasons(ended, begins)
    assert said[0] == "the crawl ended at its limit max_seconds"
    assert said[1] == "worker w-0 on machine one does not take hook own: no module"
    assert said[2:] == [f"http://h/{n}: It waits  {n}" for n in range(URLS)]
