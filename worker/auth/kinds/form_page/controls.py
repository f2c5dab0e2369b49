"""Forms and their controls, by https://html.spec.whatwg.org/#form-control-infrastructure.

JavaScript is not run. Elements are lxml's; there is no I/O here.
"""

from __future__ import annotations

from collections.abc import Iterator

from lxml import etree

_CONTROLS = ("input", "select", "textarea", "button")
_FIRST = "greencrawl-first-legend"
"""This attribute marks the legend whose controls stay usable in a disabled fieldset. So each
fieldset is searched for it only once."""
TEXTS = frozenset({"text", "email", "tel", "number", "search", "url", ""})
"""Types of fields with one line of text."""
BUTTONS = frozenset({"submit", "image", "button", "reset"})
_KNOWN_TYPES = TEXTS | BUTTONS | frozenset(
    {"hidden", "password", "checkbox", "radio", "file", "color", "range"}
    | {"date", "month", "week", "time", "datetime-local"}
)  # fmt: skip


def mark_legends(root: etree._Element) -> None:
    """Mark the legends whose controls a disabled fieldset leaves usable; call this before the other
    functions of this module."""
    for fieldset in root.iter("fieldset"):
        legend = fieldset.find("legend") if "disabled" in fieldset.attrib else None
        if legend is not None:
            legend.set(_FIRST, "")


def each_form(root: etree._Element) -> Iterator[tuple[etree._Element, list[etree._Element]]]:
    """Yield each form with its controls, in the order of the page.

    A form that was opened in one element and closed in another loses its controls in the tree. So a
    control without a form that comes after a form without a password belongs to that form.
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
        if not any(type_of(control) == "password" for control in controls):
            controls = controls + lost
        yield form, controls


def data_set(
    controls: list[etree._Element], button: etree._Element | None, encoding: str
) -> Iterator[tuple[str, str]]:
    """Yield names and values that a form sends when ``button``, if any, is pressed.

    See https://html.spec.whatwg.org/#constructing-the-form-data-set.
    """
    for control in controls:
        name, kind = control.get("name", ""), type_of(control)
        if disabled(control) or (kind in BUTTONS and control is not button):
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
        # The last selected one; if none is selected, the first that can be.
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


def disabled(control: etree._Element) -> bool:
    """Return whether a control sends nothing, because it or a fieldset around it is disabled."""
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


def type_of(control: etree._Element) -> str:
    """Return the type of an input or a button; for a select or a textarea, its name."""
    if control.tag == "button":
        kind = control.get("type", "").strip().lower()
        return kind if kind in ("reset", "button") else "submit"
    if control.tag != "input":
        return str(control.tag)
    kind = control.get("type", "").strip().lower()
    return kind if kind in _KNOWN_TYPES else "text"


def completes(control: etree._Element, token: str) -> bool:
    """Return whether ``autocomplete`` of a control names ``token``, which is in lower case."""
    return token in control.get("autocomplete", "").lower().split()


def words_of(control: etree._Element) -> str:
    """Return how a control is named: name, id, labels and a button's text, between spaces."""
    text = "".join(map(str, control.itertext()))[:200] if control.tag == "button" else ""
    keys = ["name", "id", "aria-label", "title", "placeholder", "alt"]
    if type_of(control) in BUTTONS:
        keys.append("value")
    return " ".join([*(control.get(key, "") for key in keys), text])
