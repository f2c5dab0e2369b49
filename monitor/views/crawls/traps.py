"""Shapes of URLs that are parked as traps, and their release."""

from __future__ import annotations

from urllib.parse import urlencode

from greencrawl.broker.service.shared import crawl_actions
from greencrawl.monitor.page_request import Action, Data, Form, PageRequest, Redirect, View
from greencrawl.monitor.views.choosing import chosen
from greencrawl.schema.records import EVERY_SHAPE

SHOWN = 100
"""At most this many shapes are shown, those with the most URLs first."""


def part(request: PageRequest) -> Data:
    """Return the shapes of a crawl."""
    crawl = chosen(request)
    shapes = request.service.store.parked_shapes(crawl.id, SHOWN) if crawl is not None else []
    return {
        "crawl": crawl, "shapes": shapes, "every": EVERY_SHAPE, "full": len(shapes) == SHOWN,
    }  # fmt: skip


def frame(request: PageRequest) -> Data:
    """Return the chosen crawl, and the crawls to choose from."""
    return {"crawl": chosen(request), "crawls": request.figures.crawls()}


def release(request: PageRequest, form: Form) -> Redirect:
    """Release a shape; with ``all``, release every shape."""
    name = form.text("crawl")
    shape = None if form.text("all") == "1" else form.text("shape")
    reply = crawl_actions.release(request.service, name, shape)
    return Redirect(f"/monitor/traps?{urlencode({'crawl': name})}", "released", reply.added)


VIEWS = (View(name="traps", path="/monitor/traps", part=part, frame=frame, nav=True),)
ACTIONS = (Action(path="/monitor/traps/release", run=release),)
