"""Login forms as sites write them, and what the crawler sends for them."""

from __future__ import annotations

import signal

import pytest

from greencrawl.worker.auth.kinds import form_page
from greencrawl.worker.auth.kinds.form_page import read
from greencrawl.worker.auth.kinds.form_page.complaint import complaint, masked, shortened
from greencrawl.worker.auth.kinds.form_page.filling import filled
from greencrawl.worker.auth.kinds.form_page.login_form import LoginForm, login_form


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behave as if the reader were compiled, so that this process reads doubtful pages, too."""
    monkeypatch.setattr(form_page, "stops", lambda: True)


URL = "https://a.example/account/login?next=/in"


def form(
    html: str | bytes, url: str = URL, kind: str = "text/html; charset=utf-8", **fields: str
) -> LoginForm | None:
    body = html if isinstance(html, bytes) else html.encode()
    document = read(body, url, kind)
    assert document is not None
    return login_form(document, **fields)


def found(html: str | bytes, **given: str) -> LoginForm:
    made = form(html, **given)
    assert made is not None
    return made


USER_PASS = "<input name=u><input type=password name=p>"


# -- which form, which fields


def test_login_form_of_django_admin_is_found() -> None:
    made = found(
        '<form action="/admin/login/?next=/admin/" method="post" id="login-form">'
        '<input type="hidden" name="csrfmiddlewaretoken" value="t0k">'
        '<input type="text" name="username" autofocus autocapitalize="none" '
        'autocomplete="username" maxlength="150" required id="id_username">'
        '<input type="password" name="password" autocomplete="current-password" required>'
        '<input type="hidden" name="next" value="/admin/">'
        '<input type="submit" value="Log in"></form>'
    )
    assert made.action == "https://a.example/admin/login/?next=/admin/"
    assert (made.username, made.password) == ("username", "password")
    assert made.values == (
        ("csrfmiddlewaretoken", "t0k"),
        ("username", ""),
        ("password", ""),
        ("next", "/admin/"),
    )


def test_login_form_of_wordpress_is_found() -> None:
    made = found(
        '<form name="loginform" id="loginform" action="/wp-login.php" method="post">'
        '<p><label for="user_login">Username</label><input type="text" name="log" id="user_login">'
        '</p><div><input type="password" name="pwd" id="user_pass"><button type="button">show'
        '</button></div><p><input name="rememberme" type="checkbox" value="forever"></p>'
        '<p><input type="submit" name="wp-submit" value="Log In">'
        '<input type="hidden" name="redirect_to" value="/wp-admin/">'
        '<input type="hidden" name="testcookie" value="1"></p></form>'
    )
    assert (made.username, made.password) == ("log", "pwd")
    assert made.values == (
        ("log", ""),
        ("pwd", ""),
        ("wp-submit", "Log In"),
        ("redirect_to", "/wp-admin/"),
        ("testcookie", "1"),
    )


def test_login_form_and_button_of_mediawiki_are_found_beside_the_search_form() -> None:
    made = found(
        '<form action="/index.php" id="searchform"><input name="search"></form>'
        '<form method="post" name="userlogin" action="/index.php?title=Special:UserLogin">'
        '<input name="wpName" autocomplete="username"><input name="wpPassword" type="password">'
        '<button type="submit" name="wpForgot" value="1">Forgot your password?</button>'
        '<button type="submit" name="wploginattempt" value="Log in">Log in</button>'
        '<input type="hidden" name="wpLoginToken" value="abc+\\"></form>'
    )
    assert made.values == (
        ("wpName", ""),
        ("wpPassword", ""),
        ("wploginattempt", "Log in"),
        ("wpLoginToken", "abc+\\"),
    )


@pytest.mark.parametrize("order", [0, 1])
def test_registration_beside_the_login_is_not_taken(order: int) -> None:
    register = (
        '<form method=post action="/register"><input name=email><input type=password name=p1>'
        "<input type=password name=p2></form>"
    )
    login = f'<form method=post action="/session">{USER_PASS}</form>'
    both = [register, login] if order else [login, register]
    assert found("".join(both)).action == "https://a.example/session"
    one_password = (
        '<form method=post action="/x"><input name=email>'
        '<input type=password autocomplete="new-password" name=p></form>'
    )
    both = [one_password, login] if order else [login, one_password]
    assert found("".join(both)).action == "https://a.example/session"
    named = f'<form method=post action="/signup">{USER_PASS}</form>'
    both = [named, login] if order else [login, named]
    assert found("".join(both)).action == "https://a.example/session"


@pytest.mark.parametrize(
    ("fields", "username"),
    [
        ("<input name=captcha><input name=email type=email><input type=password name=p>", "email"),
        ("<input name=a><input name=b><input type=password name=p>", "b"),
        ("<input name=login><input name=domain><input type=password name=p>", "login"),
        ("<input name=x autocomplete='section-a username'><input name=user>"
         "<input type=password name=p>", "x"),
        ("<input type=password name=p><input name=after>", "after"),
        ("<input name=ro readonly=1 value=me><input type=password name=p>", ""),
        ("<input name=off disabled><input type=password name=p>", ""),
        ("<input type=hidden name=user value=1><input type=password name=p>", ""),
        ("<input type=tel name=phone><input type=password name=p><input name=code>", "phone"),
        ("<input type=strange name=user><input type=password name=p>", "user"),
    ],
)  # fmt: skip
def test_user_name_field_of_a_login_form_is_found(fields: str, username: str) -> None:
    assert found(f"<form method=post>{fields}</form>").username == username


def test_configured_fields_are_found_in_any_form_of_the_page() -> None:
    page = (
        f"<form method=post action=/one>{USER_PASS}</form>"
        "<form method=post action=/two><input name=kennung><input name=pin type=text></form>"
    )
    made = found(page, username_field="kennung", password_field="pin")
    assert (made.action, made.username, made.password) == (
        "https://a.example/two",
        "kennung",
        "pin",
    )
    assert form(page, username_field="nobody") is None


@pytest.mark.parametrize(
    "page",
    [
        "<form method=post><input name=u></form>",
        "<form method=post><input type=password></form>",
        f"<template><form method=post>{USER_PASS}</form></template>",
        f"<p><!-- <form method=post>{USER_PASS}</form> -->",
        "<p>",
    ],
)
def test_no_login_form_is_found_on_a_page_without_one(page: str) -> None:
    assert form(page) is None


@pytest.mark.parametrize(
    "page",
    [
        f"<table><form method=post action=/x><tr><td>{USER_PASS}</td></tr></form></table>",
        f"<div><form method=post action=/x></div><p>{USER_PASS}</p>",
        f"<form id=f method=post action=/x></form>{USER_PASS.replace('name', 'form=f name')}",
        f"<form id=f method=post action=/x></form><form id=f>{USER_PASS}</form>".replace(
            "<input", "<input form=f"
        ),
        f"<FORM METHOD=POST ACTION=/x><P>{USER_PASS.upper().replace('=U', '=u')}".replace(
            "=P>", "=p>"
        ),
    ],
)
def test_form_is_put_together_as_browsers_do(page: str) -> None:
    made = found(page)
    assert made.action == "https://a.example/x"
    assert made.values == (("u", ""), ("p", ""))


# -- where it goes


@pytest.mark.parametrize(
    ("head", "attributes", "button", "action", "method"),
    [
        ("", "method=post", "", URL, "post"),
        ("", "method=post action=''", "", URL, "post"),
        ("", "method=post action='#'", "", URL, "post"),
        ("", "method=post action=?x", "", "https://a.example/account/login?x", "post"),
        ("", "method=post action=do", "", "https://a.example/account/do", "post"),
        ("<base href=/b/>", "method=post action=do", "", "https://a.example/b/do", "post"),
        ("<base href=/b/>", "method=post", "", URL, "post"),
        ("<base href='https://b.example/'>", "method=post action=do", "",
         "https://b.example/do", "post"),
        ("", "method=POST action=' /x '", "", "https://a.example/x", "post"),
        ("", "action=/x", "", "https://a.example/x", "get"),
        ("", "method=dialog action=/x", "", "https://a.example/x", "get"),
        ("", "action=/x", "formaction=/y formmethod=post", "https://a.example/y", "post"),
        ("", "method=post action=javascript:x()", "", "", "post"),
        ("", "method=post action=mailto:x@y", "", "", "post"),
    ],
)  # fmt: skip
def test_action_and_method_of_a_form_are_read_as_browsers_do(
    head: str, attributes: str, button: str, action: str, method: str
) -> None:
    page = f"{head}<form {attributes}>{USER_PASS}<button {button}>Go</button></form>"
    made = found(page)
    assert (made.action, made.method) == (action, method)


# -- what it sends


def test_every_control_sends_what_a_browser_would() -> None:
    made = found(
        "<form method=post>" + USER_PASS + "<input type=checkbox name=c1>"
        "<input type=checkbox name=c2 checked><input type=checkbox name=c3 value=v checked>"
        "<input type=radio name=r value=1><input type=radio name=r value=2 checked>"
        "<select name=s1><option disabled>none<option value=a>A<option value=b>B</select>"
        "<select name=s2><option>x<option selected> y  z </select>"
        "<select name=s3 multiple><option selected>1<option>2<option selected>3</select>"
        "<select name=s4 multiple><option>1</select><select name=s5 size=3><option>1</select>"
        "<select name=s6><optgroup disabled><option>1</optgroup><option>2</select>"
        "<select name=s7></select><textarea name=t>\nline\n</textarea>"
        "<input type=hidden name=_charset_><input type=file name=f><input type=reset name=z>"
        "<input type=button name=b value=x><input value=nameless><input name=d disabled value=1>"
        "<fieldset disabled><legend><input name=l value=1></legend><input name=fd></fieldset>"
        "<datalist><option value=1><input name=dl></datalist>"
        "<input type=submit name=cancel value=Cancel><input type=image name=go alt='Log in'>"
        "<input type=submit name=other></form>"
    )
    assert made.values == (
        ("u", ""),
        ("p", ""),
        ("c2", "on"),
        ("c3", "v"),
        ("r", "2"),
        ("s1", "a"),
        ("s2", "y z"),
        ("s3", "1"),
        ("s3", "3"),
        ("s6", "2"),
        ("t", "line\n"),
        ("_charset_", "utf-8"),
        ("l", "1"),
        ("go.x", "0"),
        ("go.y", "0"),
    )


def body_of(html: str | bytes, values: dict[str, str], **given: str) -> str:
    return filled(found(html, **given), values)[1].decode("latin-1")


def test_given_values_replace_those_of_the_form() -> None:
    page = f"<form method=post><input type=hidden name=a value=1>{USER_PASS}</form>"
    values = {"u": "me & you", "p": "ä=+%*-._~", "new": "x\ny"}
    assert body_of(page, values) == "a=1&u=me+%26+you&p=%C3%A4%3D%2B%25*-._%7E&new=x%0D%0Ay"
    assert body_of(page, {"a": "2"}) == "a=2&u=&p="


def test_password_is_sent_once_if_two_fields_have_its_name() -> None:
    page = "<form method=post><input name=p type=hidden><input type=password name=p></form>"
    assert body_of(page, {"p": "x"}) == "p=x"


@pytest.mark.parametrize(
    ("charset", "attributes", "sent"),
    [
        ("gbk", "", "u=%D3%C3%BB%A7"),
        ("windows-1251", "", "u=%26%2329992%3B%26%2325143%3B"),
        ("gbk", "accept-charset=utf-8", "u=%E7%94%A8%E6%88%B7"),
        ("gbk", "accept-charset='x-nonsense, big5'", "u=%A5%CE%26%2325143%3B"),
        ("shift_jis", "", "u=%97p%26%2325143%3B"),
        ("euc-jp", "", "u=%CD%D1%26%2325143%3B"),
        ("utf-16", "", "u=%E7%94%A8%E6%88%B7"),
    ],
)
def test_user_names_are_sent_in_the_encoding_of_the_page_or_form(
    charset: str, attributes: str, sent: str
) -> None:
    page = f"<meta charset={charset}><form method=post {attributes}>{USER_PASS}</form>"
    body = body_of(page.encode("ascii"), {"u": "用户"}, kind="text/html")
    assert body.partition("&p=")[0] == sent


def test_login_page_in_a_legacy_encoding_is_read() -> None:
    page = '<meta charset=gbk><form method=post><input name="用户"><input type=password name=p>'
    made = found(page.encode("gbk"), kind="text/html")
    assert made.username == "用户"
    assert b"%D3%C3%BB%A7=%D5%C5" in filled(made, {"用户": "张"})[1]


def test_multipart_form_is_sent_as_multipart() -> None:
    page = (
        "<meta charset=gbk><form method=post enctype=multipart/form-data>"
        f"<input type=hidden name='a\"b' value='1\n2'>{USER_PASS}</form>"
    )
    kind, body = filled(found(page, kind="text/html"), {"u": "用户", "p": "x"})
    boundary = kind.partition("boundary=")[2].encode()
    assert kind.startswith("multipart/form-data; boundary=----")
    parts = body.split(b"--" + boundary)
    assert parts[0] == b""
    assert parts[-1] == b"--\r\n"
    assert parts[1:-1] == [
        b'\r\nContent-Disposition: form-data; name="a%22b"\r\n\r\n1\r\n2\r\n',
        b'\r\nContent-Disposition: form-data; name="u"\r\n\r\n\xd3\xc3\xbb\xa7\r\n',
        b'\r\nContent-Disposition: form-data; name="p"\r\n\r\nx\r\n',
    ]


# -- what a page says


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ('<p class="errornote">Please  enter the <b>correct</b>\n name</p>',
         "Please enter the correct name"),
        ('<div class="flash notice">Hello</div><div role="alert">Wrong.</div>', "Wrong."),
        ('<ul class="messages"><li>Try again</li></ul>', "Try again"),
        ('<p class=error hidden>a</p><p class=error style="display: none">b</p>'
         "<p class=error></p><p class=error>c</p>", "c"),
        ("<p class=error>No user crawler with s3cret or s3%20cret</p>",
         "No user … with s3cret or …"),
        ("<p class=error>" + "word " * 100, "word " * 39 + "word…"),
        ("<p class=error>a\x1b[31mb\u202ec</p>", "a [31mb c"),
        ("<p class=error><script>x()</script>plain</p>", "plain"),
        ("<p>nothing stands out</p>", ""),
        ("<body class=error-page><p>not the whole page</p>", ""),
    ],
)  # fmt: skip
def test_complaint_of_a_page_is_quoted_without_the_secrets(page: str, said: str) -> None:
    document = read(page.encode(), URL, "text/html; charset=utf-8")
    assert complaint(document, ("crawler", "s3 cret")) == said


def test_secrets_are_masked_however_a_page_writes_them() -> None:
    assert masked("Pa Ss, pa ss, pa%20ss, pa+ss", ["pa ss"]) == "…, …, …, …"
    assert masked("two  blanks and two blanks", ["two  blanks"]) == "… and …"
    assert masked("nothing", [""]) == "nothing"
    assert shortened("a\n b") == "a b"


# -- hostile pages


def test_work_for_huge_and_deep_pages_is_bounded() -> None:
    deep = "<div>" * 100_000 + f"<form method=post>{USER_PASS}</form>"
    form(deep)
    late = "<p>x</p>" * 400_000 + f"<form method=post>{USER_PASS}</form>"
    assert form(late) is None, "beyond what is looked at"
    many = "<form method=post>" + "<input name=x>" * 20_000 + "<input type=password name=p></form>"
    made = found(many)
    assert len(made.values) == 20_001


def test_page_with_a_tag_of_20_000_attributes_is_not_parsed() -> None:
    plain = "<p " + " ".join(f"a{n}" for n in range(20_000)) + f"><form>{USER_PASS}</form>"
    assert read(plain.encode(), URL, "text/html") is None
    hidden = "<p " + " ".join(f"a{n}='>'" for n in range(20_000)) + f"><form>{USER_PASS}</form>"
    assert read(hidden.encode(), URL, "text/html") is None
    drawing = f"<p style='{'a b ' * 20_000}'><form>{USER_PASS}</form>"
    assert read(drawing.encode(), URL, "text/html") is not None


def test_a_disabled_fieldset_of_thousands_of_legends_is_read_at_once() -> None:
    """A crash record never names the login page, so a slow one would hold up the whole process."""
    many = 20_000
    html = (
        "<form method=post><fieldset disabled>"
        + "<legend><input name=first></legend>"
        + "<legend></legend>" * many
        + "<input name=off>" * many
        + "</fieldset><input type=password name=p></form>"
    )
    signal.alarm(60)  # it took minutes, and blocked all greenlets
    made = found(html)
    signal.alarm(0)
    assert made.values == (("first", ""), ("p", ""))


def test_search_for_a_complaint_ends_early_on_a_page_of_empty_nested_ones() -> None:
    html = ("<i id=error>" * 250 + "</i>" * 250) * 100 + "<p class=error>late</p>"
    document = read(html.encode(), URL, "text/html")
    assert complaint(document, ()) == ""
