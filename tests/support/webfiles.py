"""The synthetic web's files beside pages: sitemaps, requisites and traps.

A file is known by its kind and a number; :func:`number_of` gives both as one number, as the web's
log has it. Everything is a function of the kind, the number and the web's sizes.

========  =======  =================================================================================
letter    path     stands there
========  =======  =================================================================================
``p``     /p/N     a page
``m``     /m/N     sitemaps, at the first host: 0 is an index of the others, which list all pages
``r``     /r/N     an image that page N of the host needs
``s``     /s/N     a style sheet: an even one imports the next, which needs a font
``f``     /f/N     that font
``t``     /t/N     a page that says nothing, and leads to three more of its kind
========  =======  =================================================================================
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable

LETTERS = "pmrsft"
KIND_STEP = 1 << 28
"""A file's number in the log is the place of its kind, times this, plus its own number."""
USUAL_PLACE = 1 * KIND_STEP + KIND_STEP - 1
"""``/sitemap.xml``, where nothing exists."""
STYLED_EVERY = 10
"""Number of pages of a host for each style sheet that one of them needs."""
TYPES = {
    "p": "text/html",
    "m": "application/xml",
    "r": "image/png",
    "s": "text/css",
    "f": "font/woff2",
    "t": "text/html",
}
_PATH = re.compile(r"/([pmrsft])/(\d{1,8})")
_WORDS = 60


def number_of(target: str) -> int:
    """Return the number in the log of the file at a path, or -1 for none."""
    if target == "/sitemap.xml":
        return USUAL_PLACE
    found = _PATH.fullmatch(target)
    return LETTERS.index(found[1]) * KIND_STEP + int(found[2]) if found else -1


def target_of(number: int) -> str:
    """Return the path of the file that has this number in the log."""
    if number == USUAL_PLACE:
        return "/sitemap.xml"
    kind, own = divmod(number, KIND_STEP)
    return f"/{LETTERS[kind]}/{own}"


def words(page: int) -> str:
    """Return text that no other page has."""
    dice = random.Random(page)
    return " ".join(f"word{dice.randrange(10**9)}" for _ in range(_WORDS))


def sitemap(number: int, urls: Iterable[str]) -> bytes:
    """Return the index, 0, whose ``urls`` are those of its files, or a file, whose ``urls`` are
    pages."""
    outer, inner = ("urlset", "url") if number else ("sitemapindex", "sitemap")
    listed = "".join(f"<{inner}><loc>{url}</loc></{inner}>" for url in urls)
    return f"<{outer}>{listed}</{outer}>".encode()


def needs(page: int) -> list[str]:
    """Return paths of requisites of a page, by the page's number on its host."""
    style = [f"/s/{2 * (page // STYLED_EVERY)}"] if page % STYLED_EVERY == 0 else []
    return [f"/r/{page}", *style]


def needed(page: int) -> list[str]:
    """Return paths of requisites of a page, and of the requisites that these need."""
    found = needs(page)
    for path in found[1:]:
        number = int(path[3:])
        found += [f"/s/{number + 1}", f"/f/{number + 1}"]
    return found


def shown(page: int) -> str:
    """Return the elements by which a page needs its requisites: its style sheet is linked, or
    imported."""
    image, *styles = needs(page)
    how = "<style>@import url({});</style>" if page % 20 else "<link rel=stylesheet href={}>"
    return f"<img src={image}>" + "".join(map(how.format, styles))


def style(number: int) -> bytes:
    """Return a style sheet's rules."""
    if number % 2:
        return f"@font-face {{font-family: a; src: url(/f/{number})}}".encode()
    return f"@import '/s/{number + 1}';\nb {{color: red}}".encode()


def below(number: int, most: int) -> range:
    """Return the numbers to which a page of the trap leads, of ``most`` in all."""
    return range(3 * number + 1, min(3 * number + 4, most))


def trap(number: int, most: int) -> bytes:
    """Return a page of the trap, which has ``most`` pages."""
    links = "".join(f"<a href=/t/{day}>more</a> " for day in below(number, most))
    return f"<!doctype html><title>Calendar</title><p>Nothing on this day.</p>{links}".encode()
