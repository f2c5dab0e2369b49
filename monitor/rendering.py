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

from greencrawl.broker.service.shared.crawl_actions import said
from greencrawl.monitor.access import Session
from greencrawl.monitor.background.yielding import yielding
from greencrawl.monitor.look import Data, Look, View, whole
from greencrawl.monitor.shared import Shared
from greencrawl.monitor.words import Words
from greencrawl.schema.errors import GreencrawlError
from greencrawl.schema.log import logger

log = logger("monitor")

TEMPLATES = Path(__file__).parent / "templates"
PLACE = Markup("<!-- part -->")
"""The place of a part that comes later. Nobody else can write this: all text is escaped."""
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
    """All templates. Each of them knows the ``constants``."""

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


class Drawn(Struct, frozen=True):
    """A part as it is sent, without form tokens."""

    html: str
    status: int = 200


class Pages:
    """Draws pages and their parts; parts are drawn once for all readers with the same rights."""

    def __init__(self, templates: Templates, shared: Shared, *, can_log_out: bool) -> None:
        self.templates = templates
        self._shared = shared
        self._can_log_out = can_log_out

    def part(self, view: View, look: Look, seconds: float) -> Drawn:
        """Return a part of a page, at most ``seconds`` old, for all readers with the same rights.

        A part that failed is at most a second old.
        """
        key = _key(view, look)
        draw = partial(self._draw, view, look)
        drawn = self._shared.get(key, draw, seconds)
        return drawn if drawn.status == 200 else self._shared.get(key, draw)

    def comes_later(self, view: View, look: Look, seconds: float) -> bool:
        """Return whether the part is new, can be made, and the page need not wait for it."""
        if view.early is None or self._shared.has(_key(view, look), seconds):
            return False
        try:
            view.early(look)
        except GreencrawlError:
            return False
        return True

    def in_two(self, view: View, look: Look, seconds: float) -> Iterator[bytes]:
        """Yield a page as far as its part, then the part, drawn meanwhile, and the rest."""
        before, _, after = self.framed(view, look, PLACE).partition(PLACE)

        def chunks() -> Iterator[bytes]:
            yield self.own(before, look.session)
            try:
                html = self.part(view, look, seconds).html
            except Exception:  # the answer has begun
                log.exception("page_failed", method="GET", path=view.path)
                data = {"status": 500, "detail": look.words("failed.broken")}
                html = self.render("parts/failed.html", look, view, data)
            yield self.own(html + after, look.session)

        return chunks()

    def framed(self, view: View, look: Look, part: Markup) -> str:
        """Return a page around its part."""
        data = view.frame(look) if view.frame is not None else {}
        return self.page(f"pages/{view.name}.html", look, view, {**data, "part": part})

    def _draw(self, view: View, look: Look) -> Drawn:
        assert view.part is not None
        try:
            data, status, name = view.part(look), 200, view.name
        except GreencrawlError as error:
            status, detail, _ = said(error) or (500, str(error), ())
            data, name = {"status": status, "detail": detail}, "failed"
        html = self.render(f"parts/{name}.html", look, view, data)
        return Drawn(html, status)

    def page(self, template: str, look: Look, view: View | None, data: Data) -> str:
        """Return a page of that template, with the message of the last action."""
        given, noticed = look.query.get("n", ""), look.query.get("said", "")
        notice = ""
        if noticed and look.words.has(f"said.{noticed}"):
            notice = look.words(f"said.{noticed}", n=whole(given) or 0)
        around = {"notice": notice, "can_log_out": self._can_log_out, "look": look}
        return self.render(template, look, view, {**around, **data})

    def render(self, template: str, look: Look, view: View | None, data: Data) -> str:
        """Return the text of a template for one reader."""
        more = {"view": view, "may_change": look.session.may_change, "query": look.query}
        return self.templates.render(template, look.words, look.now_ms, {**more, **data})

    def own(self, html: str, session: Session) -> bytes:
        """Return what a reader gets: with the token of that reader's forms."""
        return html.replace(self.templates.form_token, session.form_token).encode()


def _key(view: View, look: Look) -> Hashable:
    """Return what a part depends on, but for time."""
    query = tuple(sorted((k, v) for k, v in look.query.items() if k not in _APART))
    path = tuple(sorted(look.path.items()))
    return "part", view.name, path, query, look.words.language, look.session.role


def outside(url: str) -> bool:
    """Return whether a link may lead there: a crawled page may name schemes that run scripts."""
    return url.startswith(("http://", "https://"))
