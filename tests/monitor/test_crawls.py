"""Pages of crawls: created, changed, paused, seeded, exported."""

from __future__ import annotations

import json
import re
from html import unescape

import msgspec
import pytest

from greencrawl.broker.service import changing
from greencrawl.monitor import options
from greencrawl.monitor.page_request import Form
from greencrawl.monitor.words import words
from greencrawl.schema.records import Commit, CrawlOptions, StoredPage
from tests.monitor.rig import Desk

SEED = "http://example.org/"


def sent(given: CrawlOptions, **changes: str) -> dict[str, str]:
    """Return a browser's form with these options, after a person changed something."""
    fields = options.sent(given)
    return {**fields, **{f"o.{name}": value for name, value in changes.items()}}


def problems(html: str) -> list[str]:
    return [unescape(one) for one in re.findall(r'class="wrong">([^<]+)<', html)]


# -- options as fields


def test_the_form_asks_for_every_option_once_with_its_own_description() -> None:
    asked = [field.name for group in options.groups().values() for field in group]
    assert sorted([*asked, *options.BESIDE]) == sorted(CrawlOptions.__struct_fields__)
    assert len(asked) == len(set(asked))
    assert all(field.description for field in options.fields())


def test_options_come_back_from_a_form_unchanged() -> None:
    given = msgspec.convert(
        {
            "seeds": [SEED], "scope": "domain", "exclude": ["logout", "a{2}"], "delay": 0.25,
            "normalise": ["slashes", "index"], "address_rate": 3, "user_agent": "x/1 (ä)",
            "max_bytes": 2**40, "recrawl": {"every": "1d"},
            "auth": [{"hosts": ["http://example.org"], "kind": "basic", "name": "shop"}],
        },
        CrawlOptions,
    )  # fmt: skip
    for one in (given, CrawlOptions()):
        form = Form({name: [value] for name, value in options.sent(one).items()})
        assert options.read(form, words("en")) == (one, {})
    assert options.read(Form({}), words("en")) == (CrawlOptions(), {})


def test_a_form_names_every_wrong_field() -> None:
    fields = sent(CrawlOptions(), depth="x", delay="-1", scope="moon", auth="{", tries="0")
    form = Form({name: [value] for name, value in fields.items()})
    read, wrong = options.read(form, words("en"))
    assert read is None
    assert wrong == {
        "auth": "is not valid JSON, in line 1: Expecting property name enclosed in double quotes",
        "delay": "must be 0 or more",
        "depth": "must be a whole number",
        "scope": "must be one of: any, domain, host, prefix",
        "tries": "must be 1 or more",
    }
    assert options.read(form, words("zh"))[1]["depth"] == "须为整数"


# -- a new crawl


def test_a_form_creates_a_crawl(admin: Desk) -> None:
    fields = sent(CrawlOptions(), seeds=f"{SEED}\n{SEED}a", delay="2.5", sitemaps="off")
    answer = admin.post("/monitor/new", admin.stamp(), name="blog", **fields)
    assert answer.headers["location"] == "/monitor/crawls/blog?said=created"
    made = admin.store.crawl("blog")
    assert made.options == CrawlOptions(seeds=(SEED, f"{SEED}a"), delay=2.5, sitemaps="off")
    assert admin.queue.seen[made.id] == [SEED, f"{SEED}a"]
    assert "The crawl is created" in admin.get(answer.headers["location"]).text


def test_a_form_with_mistakes_comes_back_as_it_was_sent(admin: Desk) -> None:
    fields = sent(CrawlOptions(), seeds="ftp://x/\n<b>", delay="soon", include="(")
    answer = admin.post("/monitor/new", admin.stamp(), name="Blog!", **fields)
    assert answer.status_code == 422
    said = problems(answer.text)
    assert any("lower-case letters" in one for one in said)
    assert "must be a number" in said
    assert 'value="Blog!"' in answer.text
    assert "ftp://x/\n&lt;b&gt;</textarea>" in answer.text
    assert admin.store.crawls() == []
    mended = sent(CrawlOptions(), seeds=SEED, include="(")
    again = admin.post("/monitor/new", admin.stamp(), name="blog", **mended)
    assert again.status_code == 422
    assert len(problems(again.text)) == 1
    admin.crawl("blog")
    taken = admin.post("/monitor/new", admin.stamp(), name="blog", **sent(CrawlOptions()))
    assert problems(taken.text) == ["There is a crawl blog already."]


# -- options of an existing crawl


def test_changed_options_are_shown_before_they_are_saved(admin: Desk) -> None:
    made = admin.crawl(seeds=(SEED,))
    path, fields = "/monitor/crawls/blog/edit", sent(made.options, delay="3", exclude="<i>")
    fields["revision"] = str(made.revision)
    shown = admin.post(path, admin.stamp(), **fields)
    assert shown.status_code == 200
    rows = re.findall(
        r"<code>(\w+)</code></th><td><pre[^>]*>(.*?)</pre>.*?<pre[^>]*>(.*?)</pre>", shown.text
    )
    assert rows == [("exclude", "–", "&lt;i&gt;"), ("delay", "1", "3")]
    assert admin.store.crawl("blog").options.delay == 1.0
    back = admin.post(path, admin.stamp(), step="again", **fields)
    assert 'name="o.delay" value="3"' in back.text
    saved = admin.post(path, admin.stamp(), step="save", **fields)
    assert saved.headers["location"] == "/monitor/crawls/blog?said=saved"
    assert admin.store.crawl("blog").options == CrawlOptions(
        seeds=(SEED,), delay=3, exclude=("<i>",)
    )


def test_a_form_is_refused_if_another_person_changed_the_crawl_meanwhile(admin: Desk) -> None:
    made = admin.crawl(seeds=(SEED,))
    changing.change(
        admin.service,
        "blog",
        msgspec.to_builtins(CrawlOptions(seeds=(SEED,), depth=3)),
        revision=made.revision,
    )
    fields = {**sent(made.options, delay="3"), "revision": str(made.revision), "step": "save"}
    answer = admin.post("/monitor/crawls/blog/edit", admin.stamp(), **fields)
    assert answer.status_code == 422
    assert "has revision 2 by now" in answer.text
    assert admin.store.crawl("blog").options == CrawlOptions(seeds=(SEED,), depth=3)


def test_a_done_crawl_begins_again_for_new_seeds_but_not_for_a_new_delay(admin: Desk) -> None:
    made = admin.crawl(seeds=(SEED,))
    admin.store.set_state(made.id, "done", "finished")
    slower = changing.change(
        admin.service, "blog", msgspec.to_builtins(CrawlOptions(seeds=(SEED,), delay=9)), revision=1
    )
    assert (slower.state, slower.options.delay) == ("done", 9)
    more = CrawlOptions(seeds=(SEED, f"{SEED}b"), delay=9)
    assert (
        changing.change(
            admin.service, "blog", msgspec.to_builtins(more), revision=slower.revision
        ).state
        == "active"
    )
    assert f"{SEED}b" in admin.queue.seen[made.id]


# -- actions on a crawl


def test_a_crawl_is_paused_resumed_and_stopped(admin: Desk) -> None:
    admin.crawl()
    for action, state, reason in (
        ("pause", "paused", ""), ("resume", "active", ""), ("stop", "paused", "stopping"),
    ):  # fmt: skip
        assert admin.post(f"/monitor/crawls/blog/{action}", admin.stamp()).status_code == 303
        crawl = admin.store.crawl("blog")
        assert (crawl.state, crawl.reason) == (state, reason)
    admin.post("/monitor/crawls/blog/stop", admin.stamp(), now="1")
    assert admin.store.crawl("blog").reason == "stopping_now"
    refused = admin.post("/monitor/crawls/blog/pause", admin.stamp())
    assert refused.status_code == 409
    assert "being stopped" in refused.text


def test_seeds_are_queued_and_refused_urls_are_shown(admin: Desk) -> None:
    admin.crawl(scope="host")
    path = "/monitor/crawls/blog/seeds"
    first = admin.post(path, admin.stamp(), urls=f"{SEED}\n{SEED}b\n\n")
    assert first.headers["location"] == "/monitor/crawls/blog?said=seeded&n=2"
    assert "2 URLs are queued" in admin.get(first.headers["location"]).text
    known = admin.post(path, admin.stamp(), urls=SEED)
    assert known.headers["location"].endswith("?said=seeds_known&n=0")
    mixed = admin.post(path, admin.stamp(), urls=f"{SEED}c\njavascript:alert(1)")
    assert mixed.status_code == 200
    assert "javascript:alert(1)" in mixed.text
    assert "1 URL queued" in mixed.text
    assert admin.post(path, admin.stamp(), urls=" ").headers["location"].endswith("?said=no_seeds")


def test_messages_are_taken_from_our_own_texts_and_not_from_the_url(admin: Desk) -> None:
    admin.crawl()
    for query in ("said=<b>x</b>", "said=nothing", "said=seeded&n=<b>", "n=5"):
        html = admin.get(f"/monitor/crawls/blog?{query}").text
        assert "<b>" not in html
    assert admin.get("/monitor/crawls/nothing").status_code == 404


@pytest.mark.parametrize("name", ["jsonl", "csv", "warc"])
def test_an_export_is_sent_as_a_file_to_save(admin: Desk, name: str) -> None:
    made = admin.crawl()
    page = StoredPage(
        crawl=made.id, fingerprint=1, url=SEED, status=200, body=b"<b>x", title="t", fetched_ms=5,
        headers={"content-type": "text/html"},
    )  # fmt: skip
    admin.store.commit(Commit(pages=[page]))
    answer = admin.get(f"/monitor/crawls/blog/export?format={name}")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-security-policy"].startswith("sandbox")
    if name == "jsonl":
        assert json.loads(answer.content)["url"] == SEED
    assert admin.get("/monitor/crawls/blog/export?format=exe").status_code == 400
