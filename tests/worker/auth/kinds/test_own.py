"""The user's own logins, from a module of theirs, against a real HTTP server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from greencrawl.schema.records import Failure, FailureKind, Fetched
from greencrawl.schema.records.auth import Own
from greencrawl.worker.auth.base import Grant, LoginFailed, LoginRefused
from greencrawl.worker.auth.kinds.own import OwnKind
from greencrawl.worker.auth.kinds.registry import make
from greencrawl.worker.session.fetcher import VisitOver
from tests.support.login_site import NAME, PASSWORD, LoginSite
from tests.worker.auth.kinds.test_form import get, session

SECRETS = {"username": NAME, "password": PASSWORD}

GOOD = """
import re
from greencrawl.worker.auth import Login

class MySite(Login):
    def user_login(self, session, name, password):
        page = session.get(self.login_url)
        token = re.search(r'name="csrf" value="(.*?)"', page.text)[1]
        answer = session.post(self.login_url, data={"username": name, "password": password,
                                                    "csrf": token, "next": "/in/"})
        session.headers["X-Extra"] = "1"
"""

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a module beside the worker; no other test has a module of this name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"own_{abs(hash(tmp_path))}"

    def written(text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        return f"{name}:MySite"

    return written


@pytest.fixture
def site() -> Iterator[LoginSite]:
    with LoginSite() as site:
        yield site


def own(login: str, site: LoginSite | None = None, **given: Any) -> OwnKind:
    hosts = (site.origin,) if site else ("a.example",)
    url = site.url("/login") if site else "https://a.example/login"
    values: dict[str, Any] = {"name": "own", "hosts": hosts, "login_url": url, "login": login}
    kind = make(Own(**(values | given)), SECRETS)
    assert isinstance(kind, OwnKind)
    return kind


def test_users_class_logs_in_and_its_cookies_and_headers_go_with_the_pages(
    site: LoginSite, write: Write
) -> None:
    kind = own(write(GOOD), site)
    grant = kind.log_in(session(), None)
    assert kind.judge(get(kind, site.url("/in/7"), grant), grant) == "in"
    assert site.log[-1].headers["x-extra"] == "1"
    assert grant.headers == {"X-Extra": "1"}, "what the session had before is not the login's"
    site.kill_sessions()
    assert kind.judge(get(kind, site.url("/in/7"), grant), grant) == "out"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise KeyError(password)", r"MySite\.user_login raised KeyError \(own_\d+\.py, line 4\)"),
        ("raise SystemExit(password)", "raised SystemExit"),
        ("session.get('nonsense')", "raised MissingSchema"),
        ("pass", "left neither a cookie nor a header"),
        ("raise LoginRefused(f'{name} and {password} are wrong')", "^… and … are wrong$"),
        ("session.headers['X-Bad'] = 'a\\nb'", "'X-Bad' cannot be sent"),
    ],
)
def test_error_in_the_users_class_is_a_refusal_without_secrets(
    site: LoginSite, write: Write, body: str, said: str
) -> None:
    text = (
        "from greencrawl.worker.auth import Login, LoginRefused\n"
        "class MySite(Login):\n    def user_login(self, session, name, password):\n"
        f"        {body}\n"
    )
    with pytest.raises(LoginRefused, match=said) as caught:
        own(write(text), site).log_in(session(), None)
    assert PASSWORD not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "error", [VisitOver("stopping"), LoginFailed(Failure(FailureKind.TIMEOUT)), LoginRefused("no")]
)
def test_crawlers_own_errors_pass_through_the_users_class(write: Write, error: Exception) -> None:
    kind = own(write(GOOD))
    held = session()

    def get(*_: Any, **__: Any) -> Any:
        raise error

    held.get = get  # type: ignore[method-assign]
    with pytest.raises(type(error)):
        kind.log_in(held, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class MySite: pass", "no class made of worker.auth.Login"),
        ("MySite = 1", "no class"),
        ("", "no class"),
        ("def", "SyntaxError"),
        (
            "from greencrawl.worker.auth import Login\nclass MySite(Login):\n"
            "    def __init__(self): raise ValueError('x')",
            r"__init__ raised ValueError",
        ),
    ],
)
def test_class_that_cannot_be_used_is_refused(write: Write, text: str, said: str) -> None:
    with pytest.raises(LoginRefused, match=said):
        own(write(text))


def test_module_that_is_not_there_is_named() -> None:
    with pytest.raises(LoginRefused, match="login: cannot import 'no_such_module'"):
        own("no_such_module:X")


def page(body: str = "", status: int = 200, **headers: str) -> Fetched:
    given = {"content-type": "text/html"} | headers
    return Fetched("https://a.example/x", status, given, body.encode())


@pytest.mark.parametrize(
    ("answer", "out"),
    [
        (page("hello"), False),
        (page(status=401), True),
        (page(status=302, location="/login?next=/x"), True),
        (page(status=302, location="/elsewhere"), False),
        (page("<form action=/login method=post><input type=password name=p></form>"), True),
        (page("<form action=/pay method=post><input type=password name=p></form>"), False),
    ],
)
def test_verdict_is_found_if_the_users_class_has_no_logged_out(
    write: Write, answer: Fetched, out: bool
) -> None:
    grant = Grant(account=NAME, generation=1, made_ms=1)
    assert own(write(GOOD)).judge(answer, grant) == ("out" if out else "in")


def test_any_form_with_name_and_password_counts_if_no_login_url_is_given(write: Write) -> None:
    kind = own(write(GOOD), login_url="")
    form = "<form method=post><input name=u><input type=password name=p></form>"
    assert kind.judge(page(form), None) == "out"
    assert kind.judge(page("<form method=post><input type=password name=p></form>"), None) == "in"
    for location in ("", "http://["):
        assert kind.judge(page(status=302, location=location), None) == "in"


def test_error_in_the_users_logged_out_is_a_refusal(write: Write) -> None:
    text = GOOD + "\n    def logged_out(self, fetched):\n        return b'bye' in fetched.nobody\n"
    with pytest.raises(LoginRefused, match=r"MySite\.logged_out raised AttributeError"):
        own(write(text)).judge(page("bye"), None)


def test_users_logged_out_decides_the_verdict(write: Write) -> None:
    text = GOOD + "\n    def logged_out(self, fetched):\n        return b'bye' in fetched.body\n"
    kind = own(write(text))
    assert kind.judge(page("bye"), None) == "out"
    assert kind.judge(page(status=401), None) == "in"
