"""Templates: all that is put into them is escaped, and a name that is missing is an error."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from greencrawl.monitor.gently import gently
from greencrawl.monitor.words import Words

TEMPLATES = Path(__file__).parent / "templates"


@cache
def _environment() -> Environment:
    """One for all: templates are compiled when they are first used."""
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
    """All of them. ``constants`` are known to every one."""

    def __init__(self, constants: Mapping[str, Any]) -> None:
        self._constants = constants
        self.form_token = f"form-{secrets.token_hex(16)}"
        """Stands in parts, which all see, where each reader's own token is to be. Nobody who
        writes what is crawled can know it."""

    def render(self, name: str, words: Words, now_ms: int, data: Mapping[str, Any]) -> str:
        """The text of a template; ``t`` in it gives texts, ``when`` times."""
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
    """Whether a link may lead there: what is crawled may name schemes that run scripts."""
    return url.startswith(("http://", "https://"))
