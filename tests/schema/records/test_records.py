"""Records as they are kept."""

from __future__ import annotations

import json

from greencrawl.schema.records import CrawlOptions, HostReport, kept_options
from greencrawl.schema.records.auth import Basic
from greencrawl.schema.wire import from_json, to_json


def test_options_that_an_earlier_version_does_not_know_are_kept_only_where_used() -> None:
    plain = CrawlOptions(seeds=("https://a.org/",), depth=3)
    assert {"auth", "sources"}.isdisjoint(json.loads(kept_options(plain)))
    assert from_json(kept_options(plain), CrawlOptions) == plain
    entry = CrawlOptions(auth=(Basic(name="a", hosts=("a.org",)),))
    assert from_json(kept_options(entry), CrawlOptions) == entry


def test_a_report_without_reason_is_one_that_an_earlier_broker_takes() -> None:
    assert "why" not in json.loads(to_json(HostReport(failed="refused", requests=1)))
