"""Forms: sent as they are, and never where a person has to enter something."""

from __future__ import annotations

import pytest

from greencrawl.worker.extract import outline
from greencrawl.worker.extract.sources.forms import (
    MOST_BUTTONS,
    MOST_CONTROLS,
    MOST_ELSEWHERE,
    MOST_FIELDS,
    MOST_FORMS,
)
from greencrawl.worker.extract.sources.wanted import Wanted

URL = "https://h.example/dir/page?own=1"


def sent(html: str, encoding: str = "utf-8") -> list[str]:
    wanted = Wanted(Wanted().sources | {"forms"})
    body = html.encode(encoding)
    _, found = outline(body, URL, f"text/html; charset={encoding}", wanted=wanted)
    return [url.removeprefix("https://h.example/dir/") for url in found.more]


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<form action=x></form>", ["x"]),
        (
            "<form action='x?gone=1#y' method=GET><input type=hidden name=a value=1></form>",
            ["x?a=1"],
        ),
        ("<form><input type=hidden name=a value='1 &'></form>", ["page?a=1+%26"]),
        ("<form action=x><input type=hidden name=a></form>", ["x?a="]),
        (
            "<form action=x><input type=hidden value=1><input type=hidden name=b disabled></form>",
            ["x"],
        ),
        (
            "<form action=x><select name=s><option value=1>a<option selected>zwei</select></form>",
            ["x?s=zwei"],
        ),
        ("<form action=x><select name=s><option value=1>a<option>b</select></form>", ["x?s=1"]),
        ("<form action=x><select name=s></select></form>", ["x"]),
        (
            "<form action=x><button name=b value=1>y<input type=submit name=c value=2></form>",
            ["x?b=1", "x?c=2"],
        ),
        ("<form action=x><button formaction=y>z</form>", ["y"]),
        ("<form action=x method=post><button formmethod=get>z</form>", ["x"]),
        ("<form action=x id=f></form><input type=hidden name=a value=1 form=f>", ["x?a=1"]),
        ("<form action=x><input type=hidden name=a value=1 form=g></form>", ["x"]),
        ("<form action=x><input type=image name=i src=i><button type=reset name=r></form>", ["x"]),
        (
            "<form action=x><fieldset disabled><input type=hidden name=a><div><select name=s>"
            "<option>1</select><button name=b>y</button></div></fieldset></form>",
            ["x"],
        ),
        ("<input name=q><form action=x></form><input type=hidden name=a>", ["x"]),
        ("<form action=x></form><form action=y><input name=q></form>", ["x"]),
        ("<form action=x></form><input name=q form=elsewhere>", ["x"]),
        ("<form action=x></form><form action=y></form><input name=q>", ["x"]),
    ],
)
def test_form_that_needs_no_input_is_sent_with_its_own_values(
    html: str, expected: list[str]
) -> None:
    assert sent(html) == expected


@pytest.mark.parametrize(
    "html",
    [
        *(
            f"<form action=x><input name=q {attributes} value=given></form>"
            for attributes in (
                "", "type=text", "type=SEARCH", "type=password", "type=email", "type=tel",
                "type=url", "type=number", "type=date", "type=file", "type=color", "type=range",
                "type=checkbox checked", "type=radio checked", "type=unheard-of",
            )
        ),
        "<form action=x><textarea name=t>given</textarea></form>",
        "<form action=x><select name=s multiple><option selected>1</select></form>",
        "<form action=x id=f></form><input type=text name=q form=f>",
        "<table><tr><td><form action=x><input type=hidden name=h></td><td><input name=q></table>",
        "<div><form action=x></div><input name=q>", "<div><form action=x></div><p><textarea>",
        "<form action=x><fieldset disabled><input name=q></fieldset></form>",
        "<form action=x method=post></form>", "<form action=x method=Dialog></form>",
        "<form action=x><button formmethod=post>y</form>", "<form action=javascript:x()></form>",
    ],
)  # fmt: skip
def test_form_is_not_sent_if_it_needs_input_or_does_not_use_get(html: str) -> None:
    assert sent(html) == []


def test_fields_are_sent_in_the_encoding_of_the_page() -> None:
    html = "<form action=x><input type=hidden name=ü value=中></form>"
    assert sent(html, "gbk") == ["x?%A8%B9=%D6%D0"]


def test_number_of_fields_outside_of_their_form_is_bounded() -> None:
    named = "<input type=hidden form=other>" * MOST_ELSEWHERE
    assert sent(f"<form action=x id=f></form>{named}") == ["x"]
    assert sent(f"<form action=x id=f></form>{named}<input name=q form=f>") == []


def test_no_form_is_sent_on_a_page_with_too_many_controls() -> None:
    control = "<input type=hidden>"
    assert sent(f"<form action=x></form>{control * (MOST_CONTROLS - 1)}") == ["x"]
    assert sent(f"<form action=x></form>{control * MOST_CONTROLS}") == []


def test_forms_fields_and_buttons_are_bounded() -> None:
    assert (
        len(sent("".join(f"<form action={n}></form>" for n in range(MOST_FORMS + 5)))) == MOST_FORMS
    )
    field = "<input type=hidden name=a value=1>"
    assert sent(f"<form action=x>{field * (MOST_FIELDS + 1)}</form>") == []
    buttons = "".join(f"<button name=b value={n}></button>" for n in range(MOST_BUTTONS + 5))
    assert len(sent(f"<form action=x>{buttons}</form>")) == MOST_BUTTONS
