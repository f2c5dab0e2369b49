"""One crawl: its progress, and actions on it."""

from __future__ import annotations

from urllib.parse import quote

from greencrawl.broker.service import seeding
from greencrawl.broker.service.shared import crawl_actions
from greencrawl.monitor.figures import SPANS
from greencrawl.monitor.page_request import (
    Action,
    ActionPage,
    Data,
    Form,
    PageRequest,
    Redirect,
    View,
)
from greencrawl.monitor.views.overview import failures_of
from greencrawl.schema.errors import Unavailable
from greencrawl.schema.records import WITHHELD, SeedReply
from greencrawl.store.export.formats import FORMATS

SHOWN_SEEDS = 100
"""At most this many refused seeds are shown."""


def place(name: str, more: str = "") -> str:
    """Return the address of a crawl's page."""
    return f"/monitor/crawls/{quote(name, safe='')}{more}"


def part(request: PageRequest) -> Data:
    """Return the state of the crawl, its counters and its plot."""
    crawl = request.figures.crawl(request.path["crawl"])
    going = crawl.state in ("active", "paused")  # other crawls have nothing new in the last hour
    span = request.asked("span") if request.asked("span") in SPANS else "hour" if going else "month"
    stats, why = None, ""
    try:
        stats = request.figures.stats(crawl)
    except Unavailable as error:
        why = str(error)
    failures = failures_of(stats) if stats is not None else {}
    withheld = stats.failures if stats is not None else {}
    return {
        "crawl": crawl,
        "stats": stats,
        "why": why,
        "workers": _workers(request) if stats is not None else None,
        "silent": request.figures.silent() if stats is not None and stats.leased else [],
        "rate": request.figures.rate(crawl.name) if crawl.state == "active" else None,
        "plot": request.figures.plot([crawl], span),
        "span_of": span,
        "spans": tuple(SPANS),
        "failures": failures,
        "withheld": {kind: n for kind, n in withheld.items() if n and kind in WITHHELD},
    }


def _workers(request: PageRequest) -> int | None:
    """Return the number of reporting processes; None if a Redis node does not answer."""
    try:
        system = request.figures.system()
    except Unavailable:
        return None
    return system.workers if not system.away else None


def frame(request: PageRequest) -> Data:
    """Return the data that do not change: the name, and the formats of an export."""
    formats = [(name, choice.label) for name, choice in FORMATS.items()]
    return {"crawl": request.figures.crawl(request.path["crawl"]), "formats": formats}


def pause(request: PageRequest, form: Form) -> Redirect:
    """Pause the crawl: no more of its tasks are leased."""
    crawl_actions.pause(request.service, request.path["crawl"])
    return Redirect(place(request.path["crawl"]), "paused")


def resume(request: PageRequest, form: Form) -> Redirect:
    """Resume the crawl: its tasks are leased again."""
    crawl_actions.resume(request.service, request.path["crawl"])
    return Redirect(place(request.path["crawl"]), "resumed")


def stop(request: PageRequest, form: Form) -> Redirect:
    """End the crawl; with ``now`` its leased tasks are given back."""
    crawl_actions.stop(request.service, request.path["crawl"], now=form.text("now") == "1")
    return Redirect(place(request.path["crawl"]), "stopped")


def seed(request: PageRequest, form: Form) -> Redirect | ActionPage:
    """Queue URLs, and show why some were not queued."""
    name = request.path["crawl"]
    urls = form.lines("urls")
    if not urls:
        return Redirect(place(name), "no_seeds")
    force = form.text("force") == "1"
    reply = seeding.seed(request.service, name, urls, force)
    if reply.rejected or reply.pending:
        return ActionPage("seeded", _of_reply(request, reply))
    queued = reply.added + reply.again
    return Redirect(place(name), "seeded" if queued else "seeds_known", queued)


def _of_reply(request: PageRequest, reply: SeedReply) -> Data:
    left = [item for item in reply.items if item.status in ("rejected", "pending")]
    return {"name": request.path["crawl"], "reply": reply, "items": left[:SHOWN_SEEDS]}


VIEWS = (View(name="crawl", path="/monitor/crawls/{crawl}", part=part, frame=frame, plots=True),)
ACTIONS = (
    Action(path="/monitor/crawls/{crawl}/pause", run=pause),
    Action(path="/monitor/crawls/{crawl}/resume", run=resume),
    Action(path="/monitor/crawls/{crawl}/stop", run=stop),
    Action(path="/monitor/crawls/{crawl}/seeds", run=seed),
)
