"""One URL: where it is, why it is not fetched, its attempts, and an action to fetch it again."""

from __future__ import annotations

from urllib.parse import urlencode

from greencrawl.broker.service import explain, seeding
from greencrawl.monitor.page_request import Action, Data, Form, PageRequest, Redirect, View
from greencrawl.schema.errors import InvalidConfig

MOST_LETTERS = 8192


def show(request: PageRequest) -> Data:
    """Return what each crawl knows of the URL; only one crawl if the request names a crawl."""
    url, name = request.asked("url"), request.asked("crawl")
    if len(url) > MOST_LETTERS:
        raise InvalidConfig([("url", f"has at most {MOST_LETTERS} letters")])
    states = explain.explain(request.service, url, name or None) if url else []
    away = [one for one in states if one.state == "away"]
    known = [one for one in states if one.state not in ("unseen", "away")]
    shown = known if known or away else states[:1]
    return {
        "url": url,
        "states": shown,
        "away": away,
        "others": len(states) - len(shown) - len(away),
        "host": _host(url),
        "crawls": [crawl.name for crawl in request.figures.crawls()],
    }


def _host(given: str) -> str:
    """Return what was typed, if it looks like the name of a host rather than a URL."""
    looks = "." in given and not any(one in given for one in "/?# ")
    return given if looks else ""


def again(request: PageRequest, form: Form) -> Redirect:
    """Queue the URL for a crawl, even if the crawl knows it."""
    url, crawl = form.text("url"), form.text("crawl")
    reply = seeding.seed(request.service, crawl, [url], force=True)
    if reply.rejected:
        raise InvalidConfig([("url", reply.items[0].reason)])
    return Redirect(f"/monitor/url?{urlencode({'url': url, 'crawl': crawl})}", "queued")


VIEWS = (View(name="url", path="/monitor/url", frame=show, nav=True),)
ACTIONS = (Action(path="/monitor/url", run=again),)
