"""Pages, their parts, and templates, whose values are escaped; a missing name is an error."""

from __future__ import annotations

import json
import secrets
from collections.abc import Hashable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from msgspec import Struct

from greencrawl.broker.service.shared.crawl_actions import error_parts
from greencrawl.monitor.access import Session
from greencrawl.monitor.background.yielding import yielding
from greencrawl.monitor.page_request import Data, PageRequest, View, whole
from greencrawl.monitor.shared import Shared
from greencrawl.monitor.words import Words
from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.log import logger

log = logger("monitor")

TEMPLATES = Path(__file__).parent / "templates"
PLACE = Markup("<!-- part -->")
"""The place of a part that comes later. No other text can contain it: all text is escaped."""
_APART = frozenset({"part", "said", "n"})
"""Parameters that do not change a part."""


@cache
def _environment() -> Environment:
    """Return the common environment: templates are compiled when they are first used."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.tests["outside"] = outside
    made.filters["yielding"] = yielding
    made.filters["json"] = json.dumps
    made.filters["pretty"] = partial(json.dumps, ensure_ascii=False, indent=2)
    return made


class Templates:
    """All templates. Each template can use the ``constants``."""

    def __init__(self, constants: Mapping[str, Any]) -> None:
        self._constants = constants
        self.form_token = f"form-{secrets.token_hex(16)}"
        """Replaced by each reader's own token in parts, which all readers share.

        Nobody who writes crawled pages can know it.
        """

    def render(self, name: str, words: Words, now_ms: int, data: Mapping[str, Any]) -> str:
        """Return the text of a template; ``t`` in it returns texts, ``when`` times."""
        helpers = {
            "t": words,
            "now_ms": now_ms,
            "number": words.number,
            "size": words.size,
            "span": words.span,
            "moment": words.moment,
            "when": partial(words.when, now_ms=now_ms),
            "form_token": Markup(self.form_token),
        }
        return _environment().get_template(name).render({**self._constants, **helpers, **data})


class DrawnPart(Struct, frozen=True):
    """A part as it is sent, without form tokens."""

    html: str
    status: int = 200


class Pages:
    """Draws pages and their parts; parts are drawn once for all readers with the same rights."""

    def __init__(self, templates: Templates, shared: Shared, *, can_log_out: bool) -> None:
        self.templates = templates
        self._shared = shared
        self._can_log_out = can_log_out

    def part(self, view: View, request: PageRequest, seconds: float) -> DrawnPart:
        """Return a part of a page, at most ``seconds`` old, for all readers with the same rights.

        A part that failed is at most a second old.
        """
        key = _key(view, request)
        draw = partial(self._draw, view, request)
        drawn = self._shared.get(key, draw, seconds)
        return drawn if drawn.status == 200 else self._shared.get(key, draw)

    def comes_later(self, view: View, request: PageRequest, seconds: float) -> bool:
        """Return whether the page is sent before its part: the part is new, and can be made."""
        if view.early is None or self._shared.has(_key(view, request), seconds):
            return False
        try:
            view.early(request)
        except GreencrawlError:
            return False
        return True

    def in_two(self, view: View, request: PageRequest, seconds: float) -> Iterator[bytes]:
        """Yield a page up to its part, draw the part meanwhile, then yield it and the rest."""
        before, _, after = self.framed(view, request, PLACE).partition(PLACE)

        def chunks() -> Iterator[bytes]:
            yield self.own(before, request.session)
            try:
                html = self.part(view, request, seconds).html
            except Exception:  # the answer has begun
                log.exception("page_failed", method="GET", path=view.path)
                data = {"status": 500, "detail": request.words("failed.broken")}
                html = self.render("parts/failed.html", request, view, data)
            yield self.own(html + after, request.session)

        return chunks()

    def framed(self, view: View, request: PageRequest, part: Markup) -> str:
        """Return a page around its part."""
        data = view.frame(request) if view.frame is not None else {}
        return self.page(f"pages/{view.name}.html", request, view, {**data, "part": part})

    def _draw(self, view: View, request: PageRequest) -> DrawnPart:
        assert view.part is not None
        try:
            data, status, name = view.part(request), 200, view.name
        except GreencrawlError as error:
            status, detail, _ = error_parts(error) or (500, str(error), ())
            data, name = {"status": status, "detail": detail}, "failed"
        html = self.render(f"parts/{name}.html", request, view, data)
        return DrawnPart(html, status)

    def page(self, template: str, request: PageRequest, view: View | None, data: Data) -> str:
        """Return a page of that template, with the message of the last action."""
        given, noticed = request.query.get("n", ""), request.query.get("said", "")
        notice = ""
        if noticed and request.words.has(f"said.{noticed}"):
            notice = request.words(f"said.{noticed}", n=whole(given) or 0)
        around = {"notice": notice, "can_log_out": self._can_log_out, "request": request}
        return self.render(template, request, view, {**around, **data})

    def render(self, template: str, request: PageRequest, view: View | None, data: Data) -> str:
        """Return the text of a template for one reader."""
        more = {"view": view, "may_change": request.session.may_change, "query": request.query}
        return self.templates.render(template, request.words, request.now_ms, {**more, **data})

    def own(self, html: str, session: Session) -> bytes:
        """Return what a reader gets: with the token of that reader's forms."""
        return html.replace(self.templates.form_token, session.form_token).encode()


def _key(view: View, request: PageRequest) -> Hashable:
    """Return all that a part depends on, except time."""
    query = tuple(sorted((k, v) for k, v in request.query.items() if k not in _APART))
    path = tuple(sorted(request.path.items()))
    return "part", view.name, path, query, request.words.language, request.session.role


def outside(url: str) -> bool:
    """Return whether a link may lead there: a crawled page may name schemes that run scripts."""
    return url.startswith(("http://", "https://"))
