"""Forms that a crawl may send without a person: of the method GET, with nothing to fill in."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import cast

from lxml import etree

from greencrawl.schema.text.encodings import encode_form

MOST_FORMS = 20
MOST_FIELDS = 100
MOST_BUTTONS = 20
MOST_ELSEWHERE = 2000
MOST_CONTROLS = 10_000
"""A page with more forms, and a form with more fields or buttons, is a trap: its rest is not read.

If a page has more fields that name their form, or more fields in all, none of its forms is read:
nobody can know what they send.
"""

_OWN = frozenset({"hidden", "submit", "image", "button", "reset"})
"""Types of ``input`` that a person does not fill in; unknown ones are texts."""
_CONTROLS = ("input", "select", "textarea", "button")
_ELSEWHERE = etree.XPath(f"(//*[@form])[position() <= {MOST_ELSEWHERE + 1}]")
"""Controls that name the form they belong to, wherever they are."""


def submissions(root: etree._Element, base: str, encoding: str) -> Iterator[str]:
    """Yield the URLs of a tree's forms that have no field for a person: one for each button.

    The URLs carry hidden fields, the button's value, and the default choices of lists.

    The parser closes forms early in tables and the like. So a control outside of all forms may
    belong to the last form that began before it: if a person fills in the control, that form is not
    sent.
    """
    elsewhere: dict[str, list[etree._Element]] = {}
    named = cast("list[etree._Element]", _ELSEWHERE(root))
    if len(named) > MOST_ELSEWHERE:
        return
    for control in named:
        elsewhere.setdefault(control.get("form", ""), []).append(control)
    asking = _asking(root)
    for number, form in enumerate(islice(root.iter("form"), MOST_FORMS)):
        if asking is None or number in asking:
            continue
        inside = (one for one in form.iter(*_CONTROLS) if one.get("form") is None)
        controls = [*islice(inside, MOST_FIELDS + 1), *elsewhere.get(form.get("id", ""), ())]
        if len(controls) > MOST_FIELDS or any(map(_is_a_persons, controls)):
            continue
        fields = [field for control in controls if (field := _field(control)) is not None]
        buttons = [control for control in controls if _submits(control)]
        for button in buttons[:MOST_BUTTONS] or [None]:
            reference = _submitted(form, button, fields, base, encoding)
            if reference is not None:
                yield reference


def _asking(root: etree._Element) -> set[int] | None:
    """Return the indexes of forms that are followed by a person's control outside of any form.

    None if there are too many controls to tell.
    """
    asking: set[int] = set()
    number, open_ = -1, 0
    tags = ("form", *_CONTROLS)
    walk = etree.iterwalk(root, events=("start", "end"), tag=tags)
    for looked, (event, element) in enumerate(walk):
        if looked >= 2 * MOST_CONTROLS:
            return None
        if element.tag == "form":
            open_ += 1 if event == "start" else -1
            number += event == "start"
            if number >= MOST_FORMS:
                break
        elif not open_ and element.get("form") is None and _is_a_persons(element):
            asking.add(number)
    return asking


def _submitted(
    form: etree._Element,
    button: etree._Element | None,
    fields: list[tuple[str, str]],
    base: str,
    encoding: str,
) -> str | None:
    """Return the reference that a button leads to; None for another method than GET."""
    method, action, sent = form.get("method", ""), form.get("action", ""), fields
    if button is not None:
        method = button.get("formmethod", method)
        action = button.get("formaction", action)
        name = button.get("name", "")
        if name and button.get("type", "").lower() != "image":
            sent = [*fields, (name, button.get("value", ""))]
    if method.strip().lower() not in ("", "get"):
        return None
    query = "&".join(
        f"{encode_form(name, encoding)}={encode_form(value, encoding)}" for name, value in sent
    )
    action = (action.strip() or base).partition("#")[0].partition("?")[0]
    return f"{action}?{query}" if query else action


def _type(control: etree._Element) -> str:
    kind: str = control.get("type", "")
    return kind.strip().lower()


def _is_a_persons(control: etree._Element) -> bool:
    if control.tag == "input":
        return _type(control) not in _OWN
    return control.tag == "textarea" or (
        control.tag == "select" and control.get("multiple") is not None
    )


def _is_disabled(control: etree._Element) -> bool:
    return control.get("disabled") is not None or any(
        fieldset.get("disabled") is not None for fieldset in control.iterancestors("fieldset")
    )


def _submits(control: etree._Element) -> bool:
    if _is_disabled(control):
        return False
    if control.tag == "button":
        return _type(control) in ("", "submit")
    return control.tag == "input" and _type(control) in ("submit", "image")


def _field(control: etree._Element) -> tuple[str, str] | None:
    """Return the name and the value that a control sends with every button; None if it sends
    nothing."""
    name = control.get("name", "")
    if not name or _is_disabled(control):
        return None
    if control.tag == "input" and _type(control) == "hidden":
        return name, control.get("value", "")
    if control.tag == "select":
        options = list(islice(control.iter("option"), MOST_FIELDS))
        chosen = next((one for one in options if one.get("selected") is not None), None)
        chosen = options[0] if chosen is None and options else chosen
        if chosen is not None:
            return name, chosen.get("value", (chosen.text or "").strip())
    return None
