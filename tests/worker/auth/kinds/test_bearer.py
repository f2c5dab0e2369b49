"""Tokens and API keys: they go to their origin only and do not come back."""

from __future__ import annotations

from typing import Any

import pytest

from greencrawl.schema.records import Fetched
from greencrawl.schema.records.auth import Basic, Bearer
from greencrawl.worker.auth.base import LoginRefused
from greencrawl.worker.auth.kinds.registry import make

TOKEN = "s3cr3t/token+1=&x"
QUOTED = "s3cr3t%2Ftoken%2B1%3D%26x"


def kind(token: str = TOKEN, **given: Any) -> Any:
    return make(Bearer(name="api", hosts=("a.example",), **given), {"token": token})


def test_token_goes_in_its_header_to_its_origins_only() -> None:
    assert kind().prove("https://a.example/", {"x": "y"}, None) == (
        "https://a.example/",
        {"x": "y", "Authorization": f"Bearer {TOKEN}"},
    )
    own = kind(header="X-Api-Key", prefix="")
    assert own.prove("https://a.example/", {}, None)[1] == {"X-Api-Key": TOKEN}
    for url in ("http://a.example/", "https://b.example/", "https://a.example:8443/"):
        assert kind().prove(url, {"x": "y"}, None) == (url, {"x": "y"})
        assert kind(query="key").prove(url, {}, None) == (url, {})


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://a.example/", f"https://a.example/?key={QUOTED}"),
        ("https://a.example/p?x=1", f"https://a.example/p?x=1&key={QUOTED}"),
        ("https://a.example/p?key=theirs&x=1", f"https://a.example/p?x=1&key={QUOTED}"),
        ("https://a.example/p?x=1&key=theirs", f"https://a.example/p?x=1&key={QUOTED}"),
        ("https://a.example/p?monkey=1", f"https://a.example/p?monkey=1&key={QUOTED}"),
    ],
)
def test_token_is_appended_as_the_last_query_parameter(url: str, sent: str) -> None:
    assert kind(query="key").prove(url, {"x": "y"}, None) == (sent, {"x": "y"})


def answer(body: str = "", url: str = "https://a.example/p", **headers: str) -> Fetched:
    return Fetched(url=url, status=200, headers=headers, body=body.encode())


def test_api_key_of_the_query_is_removed_from_the_answer() -> None:
    given = kind(query="key")
    page = answer(
        f"<a href='/p?page=2&amp;key={QUOTED}'>next</a><a href='/q?key={QUOTED}&amp;page=3'>…</a>"
        f'{{"next": "/p?key={QUOTED}&page=2", "self": "/p?a=1\\u0026key={QUOTED}\\u0026b=2"}}'
        f" {TOKEN}",
        url=f"https://a.example/p?key={QUOTED}",
        location=f"/next?key={QUOTED}&x=1",
        link=f'<https://a.example/p?page=2&key={QUOTED}>; rel="next"',
        other="untouched ?key=theirs",
    )
    assert given.judge(page, None) == "in"
    assert page.url == "https://a.example/p"
    assert page.headers == {
        "location": "/next?x=1",
        "link": '<https://a.example/p?page=2>; rel="next"',
        "other": "untouched ?key=theirs",
    }
    assert page.body.decode() == (
        "<a href='/p?page=2'>next</a><a href='/q?page=3'>…</a>"
        '{"next": "/p?page=2", "self": "/p?a=1\\u0026b=2"} [token]'
    )


@pytest.mark.parametrize("form", [TOKEN, QUOTED, "s3cr3t\\/token+1=&x", "s3cr3t/token+1=&amp;x"])
def test_token_is_masked_if_a_page_repeats_it(form: str) -> None:
    page = answer(f"you sent {form}!", server=f"echo {TOKEN}")
    kind().judge(page, None)
    assert page.body == b"you sent [token]!"
    assert page.headers == {"server": "echo [token]"}


def test_body_without_the_token_is_left_as_it_is() -> None:
    page = answer("ä ?key=theirs", url="https://a.example/?key=theirs")
    body = page.body
    kind(query="key").judge(page, None)
    assert page.body is body
    assert page.url == "https://a.example/?key=theirs"


def test_token_as_short_as_a_word_is_removed_only_where_it_is_a_parameter() -> None:
    page = answer("demo and /p?key=demo&x=1")
    kind("demo", query="key").judge(page, None)
    assert page.body == b"demo and /p?x=1"


def test_verdict_is_out_if_the_server_refuses_the_token() -> None:
    page = answer()
    page.status = 401
    assert kind().judge(page, None) == "out"


@pytest.mark.parametrize("token", ["", "zq\nzq", " zq", "zq ", "ключ"])
def test_token_that_cannot_be_sent_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(LoginRefused) as caught:
        kind(token)
    assert not token.strip() or token.strip() not in str(caught.value)


def test_repr_does_not_show_the_token() -> None:
    assert "s3cr3t" not in repr(kind())


# -- Basic


def basic(name: str = "Aladdin", password: str = "open sesame") -> Any:
    entry = Basic(name="b", hosts=("a.example",))
    return make(entry, {"username": name, "password": password})


def test_basic_credentials_are_sent_to_their_origins_only() -> None:
    sent = {"Authorization": "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}
    assert basic().prove("https://a.example/x", {}, None) == ("https://a.example/x", sent)
    assert basic().prove("http://a.example/x", {"x": "y"}, None)[1] == {"x": "y"}
    assert basic().account == "Aladdin"
    assert not basic().logs_in


def test_verdict_is_out_if_the_server_refuses_basic_credentials() -> None:
    page = answer()
    assert basic().judge(page, None) == "in"
    page.status = 401
    assert basic().judge(page, None) == "out"


@pytest.mark.parametrize(("name", "password"), [("a:b", "x"), ("a", "x\n"), ("a\x7f", "x")])
def test_basic_credentials_that_cannot_be_sent_are_refused(name: str, password: str) -> None:
    with pytest.raises(LoginRefused):
        basic(name, password)
