"""Templates: all values in them are escaped, and a missing name is an error."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from greencrawl.monitor.beside.gently import gently
from greencrawl.monitor.words import Words

TEMPLATES = Path(__file__).parent / "templates"


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
    made.filters["gently"] = gently
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


def outside(url: str) -> bool:
    """Return whether a link may lead there: a crawled page may name schemes that run scripts."""
    return url.startswith(("http://", "https://"))
