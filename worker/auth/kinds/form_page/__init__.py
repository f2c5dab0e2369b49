"""Reads pages that may hold a login form, and tells whether an answer asks for a login.

The other modules of this folder read the controls of forms, choose the login form, fill it in, and
find the complaint of a site. They do no I/O.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lxml import etree

from greencrawl.schema.net.origins import is_root, same_page
from greencrawl.schema.records import Fetched
from greencrawl.schema.text.encodings import decode
from greencrawl.worker.auth.kinds.form_page.controls import mark_legends
from greencrawl.worker.auth.kinds.form_page.document import Document, joined
from greencrawl.worker.auth.kinds.form_page.login_form import LoginForm, asking_forms
from greencrawl.worker.extract.charset import sniff, to_utf8
from greencrawl.worker.extract.hostile import TooExpensive, hides_attribute_bomb, is_doubtful
from greencrawl.worker.extract.links import refresh_target
from greencrawl.worker.extract.media import is_html
from greencrawl.worker.extract.page import parsed, stops

MAX_BYTES = 2 * 1024 * 1024
"""A form is searched in pages of at most this many bytes; a login page is not longer."""

HUB_SECONDS = 0.25
"""A parse may take this many CPU seconds if all other sessions wait for it."""
OWN_PROCESS_SECONDS = 2.0
"""A parse may take this many CPU seconds in a separate process."""

_own_process = False

_parser = etree.HTMLParser(
    encoding="utf-8", no_network=True, remove_comments=True, remove_pis=True, collect_ids=False
)
# These are matched against a body in lower case, in linear time whatever it contains.
_PASSWORD = re.compile(rb"type\s*+=\s*+[\"']?\s*+password")
_REFRESH = re.compile(rb"http-equiv\s*+=\s*+[\"']?\s*+refresh")


@dataclass(frozen=True)
class Known:
    """Properties of the login's form, by which a page with the same form is recognised."""

    action: str = ""
    username: str = ""
    password: str = ""


def in_own_process() -> None:
    """Allow pages to take longer: from now on nothing else waits for this process."""
    global _own_process
    _own_process = True


def read(body: bytes, url: str, content_type: str) -> Document | None:
    """Parse a page that was fetched from the canonical ``url``; None if it is not HTML.

    A parse that takes too long raises TooExpensive if other sessions wait for it; in a process of
    its own it gives None.
    """
    if not is_html(content_type, body[:1024]):
        return None
    body = body[:MAX_BYTES]
    encoding, skipped = sniff(body, content_type)
    text = to_utf8(body[skipped:], encoding)
    # If a page hangs the process here, no supervisor blames the page.
    if hides_attribute_bomb(text):
        return None
    if not (_own_process or stops()) and is_doubtful(text):
        raise TooExpensive(0.0)
    try:
        root = parsed(text, _parser, OWN_PROCESS_SECONDS if _own_process else HUB_SECONDS)
    except TooExpensive:
        if not _own_process:
            raise
        return None
    if root is None:
        return None
    mark_legends(root)
    base = url
    for element in root.iter("base"):
        href = element.get("href")
        if href is not None:
            base = joined(href, url, encoding) or url
            break
    return Document(root, url, base, encoding)


def text_of(body: bytes, content_type: str) -> str:
    """Return the body as text, for the patterns."""
    encoding, skipped = sniff(body, content_type)
    return decode(body[skipped:], encoding)


def redirects_to(fetched: Fetched, login_url: str) -> bool:
    """Return whether an answer leads to the login page."""
    target = joined(fetched.location, fetched.url, "utf-8") if fetched.location else ""
    return bool(target and login_url) and same_page(target, login_url)


def asks_for_login(fetched: Fetched, login_url: str, known: Known) -> bool:
    """Return whether a page asks for a login: by a form, or by a refresh to a page with one.

    The form counts if it is sent to ``login_url``, or is the ``known`` one. If neither is known,
    any form counts that asks for a name and one password. This is cheap for pages without forms.
    """
    lowered = fetched.body[:MAX_BYTES].lower()
    shows_form = b"password" in lowered and _PASSWORD.search(lowered) is not None
    refreshes = b"http-equiv" in lowered and _REFRESH.search(lowered) is not None
    refreshes = refreshes and bool(login_url) and not is_root(login_url)
    if not shows_form and not refreshes:
        return False
    document = read(fetched.body, fetched.url, fetched.content_type)
    if document is None:
        return False
    if refreshes and _refreshes_to(document, login_url):
        return True
    for form, controls in asking_forms(document) if shows_form else ():
        if _is_the_login(form, controls, login_url, known):
            return True
    return False


def _is_the_login(
    form: LoginForm, controls: list[etree._Element], login_url: str, known: Known
) -> bool:
    if known.password and form.password == known.password:
        names = {control.get("name") for control in controls}
        if not known.username or known.username in names:
            return True
    sent_to = [url for url in (login_url, known.action) if url]
    if not sent_to:
        return bool(form.username)
    return any(same_page(form.action, url) for url in sent_to if form.action)


def _refreshes_to(document: Document, login_url: str) -> bool:
    for meta in document.root.iter("meta"):
        reference = refresh_target(meta)
        if reference:
            target = joined(reference, document.base, document.encoding)
            if same_page(target, login_url) and not same_page(document.url, login_url):
                return True
    return False
