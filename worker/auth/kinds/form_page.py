"""Pages with login forms: finding the form, filling it in, and what a page says of a login.

Forms are read and sent as https://html.spec.whatwg.org/#form-control-infrastructure says, as far as
a form without JavaScript goes. No I/O here.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote, quote_plus

from lxml import etree

from greencrawl.schema.errors import InvalidUrl
from greencrawl.schema.net.origins import is_root, same_page
from greencrawl.schema.net.urls import canonicalise
from greencrawl.schema.records import Fetched
from greencrawl.schema.text.encodings import decode, encode_form, encode_text, standard_name
from greencrawl.worker.extract.charset import sniff, to_utf8
from greencrawl.worker.extract.hostile import hides_attribute_bomb
from greencrawl.worker.extract.links import refresh_target
from greencrawl.worker.extract.media import is_html

MAX_BYTES = 2 * 1024 * 1024
"""Of a page that are looked at for a form; a login page is no longer than that."""

MAX_SAID = 200
"""Characters of what a page says that are shown."""

_parser = etree.HTMLParser(
    encoding="utf-8", no_network=True, remove_comments=True, remove_pis=True, collect_ids=False
)
# Of a body in lower case; linear, whatever stands there.
_PASSWORD = re.compile(rb"type\s*+=\s*+[\"']?\s*+password")
_REFRESH = re.compile(rb"http-equiv\s*+=\s*+[\"']?\s*+refresh")
_CONTROLS = ("input", "select", "textarea", "button")
_FIRST = "greencrawl-first-legend"
"""Marks the legend whose controls a disabled fieldset leaves usable: found once a fieldset."""
_NOTICES = 100
"""So many elements that seem to hold a complaint are looked into."""
_TEXTS = frozenset({"text", "email", "tel", "number", "search", "url", ""})
_BUTTONS = frozenset({"submit", "image", "button", "reset"})
_KNOWN_TYPES = _TEXTS | _BUTTONS | frozenset(
    {"hidden", "password", "checkbox", "radio", "file", "color", "range"}
    | {"date", "month", "week", "time", "datetime-local"}
)  # fmt: skip

_LOG_IN = re.compile(
    r"log[-_ ]?[io]n|sign[-_ ]?[io]n|auth|einloggen|anmelden|connexion|connecter|acceder|entrar"
    r"|accedi|inloggen|zaloguj|войти|вход|登录|登入|登錄|ログイン|로그인|submit|continue|ok\b",
    re.IGNORECASE,
)
_NO_LOG_IN = re.compile(
    r"register|regist|sign[-_ ]?up|create|join|forgot|forgotten|reset|lost|recover|cancel|search"
    r"|subscribe|newsletter|registrieren|vergessen|abbrechen|注册|註冊|忘记|取消|登録|회원가입|регист",
    re.IGNORECASE,
)
_USERNAME = re.compile(
    r"user|login|log_?in|email|e-mail|mail|account|name|ident|benutzer|usuario|utilisateur|uid"
    r"|phone|mobile|nick|用户|账号|帳號",
    re.IGNORECASE,
)
_COMPLAINT = re.compile(r"error|alert|invalid|fail|warn|danger|fehler|erreur", re.IGNORECASE)
_NOTICE = re.compile(r"message|notice|flash|feedback|help-block|info", re.IGNORECASE)
_INVISIBLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)


@dataclass(frozen=True)
class Document:
    """A page that was parsed. ``base`` is what its references count from."""

    root: etree._Element
    url: str
    base: str
    encoding: str


@dataclass(frozen=True)
class LoginForm:
    """A form that asks for a password. ``username`` and ``password`` are names of its fields.

    ``username`` is "" where it has no field for one.
    """

    action: str
    method: str
    multipart: bool
    encoding: str
    username: str
    password: str
    values: tuple[tuple[str, str], ...]
    """What it sends before anything is filled in, in the order of the page."""


@dataclass(frozen=True)
class Known:
    """What is known of the form that the login went through; of the form that a page shows now,
    it tells whether that is the same."""

    action: str = ""
    username: str = ""
    password: str = ""


def read(body: bytes, url: str, content_type: str) -> Document | None:
    """Parse a page that was fetched from the canonical ``url``; None if it is no HTML."""
    if not is_html(content_type, body[:1024]):
        return None
    body = body[:MAX_BYTES]
    encoding, skipped = sniff(body, content_type)
    text = to_utf8(body[skipped:], encoding)
    # No supervisor charges a page that hangs the process here.
    if hides_attribute_bomb(text):
        return None
    root: etree._Element | None = etree.fromstring(text, _parser)
    if root is None:
        return None
    for fieldset in root.iter("fieldset"):
        legend = fieldset.find("legend") if "disabled" in fieldset.attrib else None
        if legend is not None:
            legend.set(_FIRST, "")
    base = url
    for element in root.iter("base"):
        href = element.get("href")
        if href is not None:
            base = _joined(href, url, encoding) or url
            break
    return Document(root, url, base, encoding)


def text_of(body: bytes, content_type: str) -> str:
    """The body as text, for patterns to be searched in."""
    encoding, skipped = sniff(body, content_type)
    return decode(body[skipped:], encoding)


# --- finding the form ------------------------------------------------------------------------


def login_form(
    document: Document, username_field: str = "", password_field: str = ""
) -> LoginForm | None:
    """The form of ``document`` that logs in, None where none asks for a password.

    A form with one password is preferred to one that asks twice, as registrations do, and one that
    calls itself a login to any other. Given fields are those it must have.
    """
    best: tuple[int, LoginForm] | None = None
    for form, controls in _forms(document.root):
        passwords = [c for c in controls if _type(c) == "password" and c.get("name")]
        if password_field:
            passwords = [c for c in controls if c.get("name") == password_field]
        if not passwords:
            continue
        username = _username(controls, passwords[0], username_field)
        if username is None:
            continue
        score = _score(form, controls, passwords, username)
        if best is None or score > best[0]:
            best = score, _made(document, form, controls, username, passwords[0].get("name", ""))
    return None if best is None else best[1]


def field_names(document: Document) -> list[str]:
    """The names of all fields that one could fill in, for a message."""
    return [
        name
        for _, controls in _forms(document.root)
        for control in controls
        if (name := control.get("name")) and _type(control) in _TEXTS | {"password"}
    ]


def _forms(root: etree._Element) -> Iterator[tuple[etree._Element, list[etree._Element]]]:
    """Each form with its controls, in the order of the page.

    A form that was opened in one element and closed in another loses its controls in the tree:
    what belongs to no form, and comes after one that asks for no password, belongs to that.
    """
    forms: dict[etree._Element, list[etree._Element]] = {}
    orphans: dict[etree._Element, list[etree._Element]] = {}
    ids = {form.get("id"): form for form in reversed(list(root.iter("form"))) if form.get("id")}
    last: etree._Element | None = None
    for element in root.iter("form", *_CONTROLS):
        if element.tag == "form":
            forms[element] = []
            last = element
            continue
        named = element.get("form")
        owner = ids.get(named) if named is not None else next(element.iterancestors("form"), None)
        if _within(element, ("template", "datalist")):
            continue
        if owner is not None:
            forms.setdefault(owner, []).append(element)
        elif last is not None and named is None:
            orphans.setdefault(last, []).append(element)
    for form, controls in forms.items():
        lost = orphans.get(form, [])
        if not any(_type(control) == "password" for control in controls):
            controls = controls + lost
        yield form, controls


def _score(
    form: etree._Element,
    controls: list[etree._Element],
    passwords: list[etree._Element],
    username: str,
) -> int:
    named = " ".join(form.get(key, "") for key in ("id", "name", "class", "action"))
    score = 0
    if len(passwords) == 1:
        score += 8
    if _completes(passwords[0], "current-password"):
        score += 4
    if all(_completes(password, "new-password") for password in passwords):
        score -= 8
    if username:
        score += 4
    if form.get("method", "").strip().lower() == "post":
        score += 2
    if _LOG_IN.search(named):
        score += 2
    if _NO_LOG_IN.search(named):
        score -= 2
    return score


def _username(controls: list[etree._Element], password: etree._Element, given: str) -> str | None:
    """The name of the field for the user's name; "" if the form has none; None if not ``given``'s.

    By autocomplete, else by its name, else what stands right before the password.
    """
    if given:
        return given if any(c.get("name") == given for c in controls) else None
    texts: list[etree._Element] = []
    before: list[etree._Element] = []
    for control in controls:
        if control is password:
            before = list(texts)
        elif (
            control.tag == "input"
            and _type(control) in _TEXTS
            and control.get("name")
            and "readonly" not in control.attrib
            and not _disabled(control)
        ):
            texts.append(control)
    for control in texts:
        if _completes(control, "username"):
            return control.get("name", "")
    for control in reversed(before):
        if _completes(control, "email") or _USERNAME.search(_named(control)):
            return control.get("name", "")
    nearest = before[-1:] or texts[:1]
    return nearest[0].get("name", "") if nearest else ""


def _made(
    document: Document,
    form: etree._Element,
    controls: list[etree._Element],
    username: str,
    password: str,
) -> LoginForm:
    button = _button(controls)

    def said(name: str) -> str:
        of_button = "" if button is None else button.get(f"form{name}", "")
        return str(of_button or form.get(name, "")).strip()

    encoding = document.encoding
    for label in form.get("accept-charset", "").replace(",", " ").split():
        found = standard_name(label)
        if found is not None:
            encoding = found
            break
    if encoding.startswith("utf-16") or encoding == "replacement":
        encoding = "utf-8"
    action = said("action")
    # An empty action is the page's own URL, whatever its base says.
    url = _joined(action, document.base, document.encoding) if action else document.url
    return LoginForm(
        action=url,
        method="post" if said("method").lower() == "post" else "get",
        multipart=said("enctype").lower() == "multipart/form-data",
        encoding=encoding,
        username=username,
        password=password,
        values=tuple(_values(controls, button, encoding)),
    )


def _button(controls: list[etree._Element]) -> etree._Element | None:
    """What a person would press: the button that says so, else the first that says nothing else."""
    buttons = [
        c
        for c in controls
        if not _disabled(c)
        and (_type(c) in ("submit", "image") or (c.tag == "button" and _type(c) == "submit"))
    ]
    plain = [c for c in buttons if not _NO_LOG_IN.search(_named(c))]
    for button in plain:
        if _LOG_IN.search(_named(button)):
            return button
    return next(iter(plain or buttons), None)


def _values(
    controls: list[etree._Element], button: etree._Element | None, encoding: str
) -> Iterator[tuple[str, str]]:
    """https://html.spec.whatwg.org/#constructing-the-form-data-set"""
    for control in controls:
        name, kind = control.get("name", ""), _type(control)
        if _disabled(control) or (kind in _BUTTONS and control is not button):
            continue
        if kind == "image":
            prefix = f"{name}." if name else ""
            yield from ((f"{prefix}x", "0"), (f"{prefix}y", "0"))
        elif not name or kind == "file":
            continue
        elif control.tag == "select":
            yield from ((name, value) for value in _selected(control))
        elif control.tag == "textarea":
            yield name, "".join(str(text) for text in control.itertext()).removeprefix("\n")
        elif kind in ("checkbox", "radio"):
            if "checked" in control.attrib:
                yield name, control.get("value", "on")
        elif kind == "hidden" and name.lower() == "_charset_":
            yield name, encoding
        else:
            yield name, control.get("value", "")


def _selected(select: etree._Element) -> list[str]:
    options = list(select.iter("option"))
    chosen = [option for option in options if "selected" in option.attrib]
    if "multiple" not in select.attrib:
        # The last of several; without any the first that can be chosen.
        enabled = [option for option in options if not _option_disabled(option)]
        shown_one = select.get("size", "1").strip() in ("", "0", "1")
        chosen = chosen[-1:] or (enabled[:1] if shown_one else [])
    return [
        option.get("value", " ".join("".join(map(str, option.itertext())).split()))
        for option in chosen
        if not _option_disabled(option)
    ]


def _option_disabled(option: etree._Element) -> bool:
    group = option.getparent()
    return "disabled" in option.attrib or (
        group is not None and group.tag == "optgroup" and "disabled" in group.attrib
    )


def _disabled(control: etree._Element) -> bool:
    if "disabled" in control.attrib:
        return True
    child = control
    for parent in control.iterancestors():
        if parent.tag == "fieldset" and "disabled" in parent.attrib and _FIRST not in child.attrib:
            return True
        child = parent
    return False


def _within(element: etree._Element, tags: tuple[str, ...]) -> bool:
    return next(element.iterancestors(*tags), None) is not None


def _type(control: etree._Element) -> str:
    """The state of an input or a button; a select's and a textarea's is its name."""
    if control.tag == "button":
        kind = control.get("type", "").strip().lower()
        return kind if kind in ("reset", "button") else "submit"
    if control.tag != "input":
        return str(control.tag)
    kind = control.get("type", "").strip().lower()
    return kind if kind in _KNOWN_TYPES else "text"


def _completes(control: etree._Element, token: str) -> bool:
    return token in control.get("autocomplete", "").lower().split()


def _named(control: etree._Element) -> str:
    """What a control calls itself."""
    text = "".join(map(str, control.itertext()))[:200] if control.tag == "button" else ""
    keys = ["name", "id", "aria-label", "title", "placeholder", "alt"]
    if _type(control) in _BUTTONS:
        keys.append("value")
    return " ".join([*(control.get(key, "") for key in keys), text])


def _joined(reference: str, base: str, encoding: str) -> str:
    """The canonical URL, "" if it is none."""
    try:
        return canonicalise(reference, base, encoding)
    except InvalidUrl:
        return ""


# --- filling it in ---------------------------------------------------------------------------


def filled(form: LoginForm, values: Mapping[str, str]) -> tuple[str, bytes]:
    """Content-Type and body of ``form`` with ``values`` in the place of its own."""
    left = dict(values)
    pairs: list[tuple[str, str]] = []
    for name, value in form.values:
        if name in left:
            pairs.append((name, left.pop(name)))
        elif name not in values:
            pairs.append((name, value))
    pairs += left.items()
    if form.multipart:
        return _multipart(pairs, form.encoding)
    body = "&".join(
        f"{encode_form(_lines(name), form.encoding)}={encode_form(_lines(value), form.encoding)}"
        for name, value in pairs
    )
    return "application/x-www-form-urlencoded", body.encode("ascii")


def _multipart(pairs: Iterable[tuple[str, str]], encoding: str) -> tuple[str, bytes]:
    """RFC 7578, with names escaped as browsers do."""
    boundary = f"----{secrets.token_hex(16)}".encode()
    parts = bytearray()
    for name, value in pairs:
        shown = encode_text(_lines(name), encoding)
        for raw, escaped in ((b"\r", b"%0D"), (b"\n", b"%0A"), (b'"', b"%22")):
            shown = shown.replace(raw, escaped)
        parts += b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n' % (boundary, shown)
        parts += encode_text(_lines(value), encoding) + b"\r\n"
    parts += b"--%b--\r\n" % boundary
    return f"multipart/form-data; boundary={boundary.decode()}", bytes(parts)


def _lines(text: str) -> str:
    return re.sub(r"\r\n|\r|\n", "\r\n", text)


# --- what a page says ------------------------------------------------------------------------


def redirects_to(fetched: Fetched, login_url: str) -> bool:
    """Whether an answer leads to the login page."""
    target = _joined(fetched.location, fetched.url, "utf-8") if fetched.location else ""
    return bool(target and login_url) and same_page(target, login_url)


def asks_for_login(fetched: Fetched, login_url: str, known: Known) -> bool:
    """Whether a page asks to log in: by a form for it, or by a refresh that leads to one.

    The form counts if it is sent to ``login_url``, or is the one that is ``known``; without either
    of them any form does that asks for a name and one password. Cheap for pages without.
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
    for form, controls in _forms(document.root) if shows_form else ():
        passwords = [c for c in controls if _type(c) == "password"]
        if len(passwords) != 1 or _completes(passwords[0], "new-password"):
            continue
        username = _username(controls, passwords[0], "") or ""
        made = _made(document, form, controls, username, passwords[0].get("name", ""))
        if _is_the_login(made, controls, login_url, known):
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
            target = _joined(reference, document.base, document.encoding)
            if target and same_page(target, login_url) and not same_page(document.url, login_url):
                return True
    return False


def complaint(document: Document | None, hidden: Iterable[str]) -> str:
    """What a page tells a person who was not let in, "" if nothing stands out.

    Shortened, and without the ``hidden`` words.
    """
    if document is None:
        return ""
    notices = ""
    looked = 0
    for element in document.root.iter(etree.Element):
        named = f"{element.get('class', '')} {element.get('id', '')} {element.get('role', '')}"
        if len(named) < 4 or element.tag in ("html", "body", "form", "script", "style", "input"):
            continue
        complains = _COMPLAINT.search(named)
        if not complains and (notices or not _NOTICE.search(named)):
            continue
        if "hidden" in element.attrib or _INVISIBLE.search(element.get("style", "")):
            continue
        looked += 1
        if looked > _NOTICES:
            break
        text = _text(element)
        if not text or len(text) > 4 * MAX_SAID:
            continue
        if complains:
            return shortened(masked(text, hidden))
        notices = text
    return shortened(masked(notices, hidden))


def _text(element: etree._Element) -> str:
    """The text of an element: more than a person reads of a complaint is not looked at."""
    pieces: list[str] = []
    length = 0
    for event, child in etree.iterwalk(element, events=("start", "end")):
        if event == "end":
            piece = child.tail if child is not element else ""
        else:
            piece = "" if child.tag in ("script", "style", "textarea") else child.text
        pieces.append(piece or "")
        length += len(piece or "") + 1
        if length > 20 * MAX_SAID:
            break
    return " ".join(" ".join(pieces).split())


def masked(text: str, hidden: Iterable[str]) -> str:
    """``text`` without the ``hidden`` words, as they are and as URLs have them."""
    forms = {
        form
        for word in hidden
        for form in (word, " ".join(word.split()), quote(word), quote(word, ""), quote_plus(word))
    }
    for form in sorted(filter(None, forms), key=len, reverse=True):
        text = re.sub(re.escape(form), "…", text, flags=re.IGNORECASE)
    return text


def shortened(text: str) -> str:
    """One line of at most ``MAX_SAID`` characters, nothing that a terminal would obey."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= MAX_SAID else f"{text[: MAX_SAID - 1]}…"
