"""The crawl of the wiki, logged in, and its checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.traps.crawl import Failed, Manner, Result, parked, run
from bench.traps.debian import Missing
from bench.traps.wiki import CATEGORIES, FREE_LOGINS, MAIN, USER, Wiki, WikiHit, changed

WITHIN = 120
"""After this many fetches all private pages must be found."""
MOST = 400
"""The greatest number of pages, since PHP's own server is slow."""

CRAWL = """seeds = ["{origin}/index.php/{main}"]

[[auth]]
kind = "form"
name = "wiki"
hosts = ["{origin}"]
login_url = "{origin}/index.php?title=Special:UserLogin"
"""


def crawl_wiki(folder: Path, manner: Manner, seed: object = 1) -> Result:
    """Make a wiki, crawl it as one of its users, and compare its database before and after."""
    result = Result("MediaWiki, logged in")
    given = min(manner.requests or MOST, MOST)
    try:
        with Wiki(folder / "wiki", seed) as wiki:
            before = wiki.dump()
            file = folder / "wiki.toml"
            file.write_text(CRAWL.format(origin=wiki.origin, main=MAIN))
            names = {"USERNAME": USER, "PASSWORD": wiki.password, "HOSTS": wiki.origin}
            secrets = {f"GREENCRAWL_AUTH_WIKI_{name}": value for name, value in names.items()}
            result.seconds, summary = run(
                [str(file)], folder / "crawl", replace(manner, requests=given), secrets
            )
            result.notes |= parked(summary)
            judge(result, wiki.hits(), wiki.titles)
            result.why_not += [f"changed: {one}" for one in changed(before, wiki.dump())]
    except (Missing, Failed) as error:
        result.why_not.append(str(error))
    return result


def judge(result: Result, hits: Sequence[WikiHit], titles: Sequence[str]) -> None:
    """Fill in ``result`` from the requests, in their order."""
    wasted, useful, seen, logins, fetches, last = Counter[str](), Counter[str](), set(), 0, 0, 0
    index = {MAIN, "", *(f"Category:{name}" for name in CATEGORIES)}
    private: set[str] = set()
    for hit in hits:
        if hit.what == "Special:UserLogin" and logins < FREE_LOGINS:
            logins += 1
            continue
        fetches += 1
        known = hit.title in index or hit.title in titles
        if hit.what not in ("read", "start") or not known:
            wasted[hit.what if known or hit.what != "read" else "other page"] += 1
        elif hit.title in seen:
            wasted["again"] += 1
        else:
            seen.add(hit.title)
            useful["private page" if hit.title in titles else "index"] += 1
            if hit.title in titles and hit.status == 200:
                private.add(hit.title)
                last = fetches
    result.requests, result.of, result.content = fetches, len(titles), len(private)
    result.missing = sorted(set(titles) - private)
    result.wasted, result.useful = dict(wasted.most_common()), dict(useful)
    result.notes |= {"requests of the login": logins, "fetches until the last private page": last}
    if last > WITHIN:
        result.why_not.append(f"the last private page came with fetch {last}, not by {WITHIN}")
    posts = [hit.target for hit in hits if hit.method == "POST"]
    if len(posts) != 1:
        result.why_not.append(f"{len(posts)} POSTs: {posts[:3]}")
