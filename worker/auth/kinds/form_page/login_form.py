"""The login form of a page: which one it is, and its values before it is filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lxml import etree

from greencrawl.schema.text.encodings import standard_name
from greencrawl.worker.auth.kinds.form_page.controls import (
    TEXTS,
    completes,
    data_set,
    disabled,
    each_form,
    type_of,
    words_of,
)
from greencrawl.worker.auth.kinds.form_page.document import Document, joined

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


@dataclass(frozen=True)
class LoginForm:
    """A form that asks for a password. ``username`` and ``password`` are names of its fields.

    ``username`` is "" if it has no such field. ``action`` is a canonical URL, "" if it is invalid;
    ``method`` is "post" or "get"; the form is sent in ``encoding``.
    """

    action: str
    method: str
    multipart: bool
    encoding: str
    username: str
    password: str
    values: tuple[tuple[str, str], ...]
    """What the form sends before it is filled in, in the order of the page."""


def login_form(
    document: Document, username_field: str = "", password_field: str = ""
) -> LoginForm | None:
    """Return the form of ``document`` that logs in, None if no form asks for a password.

    A form with one password is preferred to one that asks twice, as registrations do. A form that
    is named as a login is preferred to any other. Fields that are given must be in the form.
    """
    best: tuple[int, LoginForm] | None = None
    for form, controls in each_form(document.root):
        passwords = [c for c in controls if type_of(c) == "password" and c.get("name")]
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
    """Return the names of all fields that one could fill in, for a message."""
    return [
        name
        for _, controls in each_form(document.root)
        for control in controls
        if (name := control.get("name")) and type_of(control) in TEXTS | {"password"}
    ]


def asking_forms(document: Document) -> Iterator[tuple[LoginForm, list[etree._Element]]]:
    """Yield each form that asks for one present password, with its controls."""
    for form, controls in each_form(document.root):
        passwords = [c for c in controls if type_of(c) == "password"]
        if len(passwords) != 1 or completes(passwords[0], "new-password"):
            continue
        username = _username(controls, passwords[0], "") or ""
        made = _made(document, form, controls, username, passwords[0].get("name", ""))
        yield made, controls


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
    if completes(passwords[0], "current-password"):
        score += 4
    if all(completes(password, "new-password") for password in passwords):
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
    """Return the name of the user name's field; "" if the form has none; None if ``given`` is
    missing.

    It is found by autocomplete, else by its name, else it is the field right before the password.
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
            and type_of(control) in TEXTS
            and control.get("name")
            and "readonly" not in control.attrib
            and not disabled(control)
        ):
            texts.append(control)
    for control in texts:
        if completes(control, "username"):
            return control.get("name", "")
    for control in reversed(before):
        if completes(control, "email") or _USERNAME.search(words_of(control)):
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
    # An empty action is the page's own URL, even with another base.
    url = joined(action, document.base, document.encoding) if action else document.url
    return LoginForm(
        action=url,
        method="post" if said("method").lower() == "post" else "get",
        multipart=said("enctype").lower() == "multipart/form-data",
        encoding=encoding,
        username=username,
        password=password,
        values=tuple(data_set(controls, button, encoding)),
    )


def _button(controls: list[etree._Element]) -> etree._Element | None:
    """Return the button that a person would press: the first whose text says so, else the first
    whose text says nothing else, else the first button."""
    buttons = [
        c
        for c in controls
        if not disabled(c)
        and (type_of(c) in ("submit", "image") or (c.tag == "button" and type_of(c) == "submit"))
    ]
    plain = [c for c in buttons if not _NO_LOG_IN.search(words_of(c))]
    for button in plain:
        if _LOG_IN.search(words_of(button)):
            return button
    return next(iter(plain or buttons), None)
