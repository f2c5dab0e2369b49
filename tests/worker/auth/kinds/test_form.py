"""Form logins against a real HTTP server, through the crawler's own download."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_network
from typing import Any

import msgspec
import pytest
import requests

from greencrawl.schema.clock import epoch_ms, monotonic
from greencrawl.schema.records import Failure, FailureKind, Fetched
from greencrawl.schema.records.auth import Form
from greencrawl.worker.auth.base import Cookie, Grant, LoginFailed, LoginRefused
from greencrawl.worker.auth.kinds import form_page
from greencrawl.worker.auth.kinds.form import FormKind
from greencrawl.worker.auth.kinds.registry import make
from greencrawl.worker.auth.transport import session_over
from greencrawl.worker.http.client import Downloader
from tests.support.login_site import (
    FORM,
    NAME,
    PASSWORD,
    Answered,
    LoggedRequest,
    LoginSite,
    html,
    redirect,
)

LOOPBACK = (ip_network("127.0.0.0/8"),)
SECRETS = {"username": NAME, "password": PASSWORD}


@pytest.fixture
def site() -> Iterator[LoginSite]:
    with LoginSite() as site:
        yield site


@pytest.fixture
def other() -> Iterator[LoginSite]:
    with LoginSite("127.0.0.2") as other:
        yield other


def entry(site: LoginSite, **given: Any) -> Form:
    values: dict[str, Any] = {
        "name": "site",
        "hosts": (site.origin,),
        "login_url": site.url("/login"),
    }
    return Form(**(values | given))


def send(method: str, url: str, headers: Mapping[str, str], body: bytes) -> Fetched | Failure:
    """Send one request as a crawl does, without its pace."""
    downloader = Downloader(LOOPBACK, 10)
    try:
        deadline = monotonic() + 60
        return downloader.fetch(
            url, headers, max_body_bytes=2**20, deadline=deadline, method=method, body=body
        )
    finally:
        downloader.close()


def session() -> requests.Session:
    return session_over(send, {"user-agent": "test"})


def log_in(kind: FormKind, generation: int = 1) -> Grant:
    """Log in as the authenticator does."""
    grant = kind.log_in(session(), None)
    grant.generation = generation
    grant.made_ms = generation
    return grant


def get(kind: FormKind, url: str, grant: Grant) -> Fetched:
    """Get a page as the crawl does."""
    asked, headers = kind.prove(url, {"user-agent": "test"}, grant)
    answer = send("GET", asked, headers, b"")
    assert isinstance(answer, Fetched)
    return answer


# -- logging in


def test_login_form_is_found_and_sent_and_its_cookies_open_the_pages(site: LoginSite) -> None:
    kind = FormKind(entry(site, fields={"remember": "yes"}), SECRETS)
    grant = log_in(kind)
    post = next(asked for asked in site.log if asked.method == "POST")
    assert post.fields == {
        "csrf": post.cookies["csrf"],
        "username": NAME,
        "password": PASSWORD,
        "remember": "yes",
        "next": "/in/",
    }
    assert post.headers["referer"] == site.url("/login")
    assert post.headers["origin"] == site.origin
    page = get(kind, site.url("/in/7"), grant)
    assert b"Page /in/7" in page.body
    assert kind.judge(page, grant) == "in"
    assert grant.account == NAME
    assert grant.token["login"] == ["session"]


def test_grant_still_opens_pages_after_it_was_serialized(site: LoginSite) -> None:
    grant = log_in(FormKind(entry(site), SECRETS))
    kept = msgspec.json.decode(msgspec.json.encode(grant), type=Grant)
    elsewhere = FormKind(entry(site), SECRETS)
    assert elsewhere.judge(get(elsewhere, site.url("/in/7"), kept), kept) == "in"


def test_repr_does_not_show_the_password(site: LoginSite) -> None:
    kind = make(entry(site), SECRETS)
    assert isinstance(kind, FormKind)
    assert PASSWORD not in repr(kind)
    assert PASSWORD not in repr(vars(kind)["entry"])


def test_missing_secret_is_named(site: LoginSite) -> None:
    with pytest.raises(LoginRefused, match="'password'"):
        make(entry(site), {"username": NAME})


def test_refusal_of_a_wrong_password_quotes_the_page_without_the_secrets(
    site: LoginSite,
) -> None:
    kind = FormKind(entry(site), {"username": NAME, "password": "wr0ng"})
    with pytest.raises(LoginRefused) as caught:
        log_in(kind)
    assert (
        str(caught.value)
        == f"{site.url('/login')}: not let in; the page says: No, …, that is wrong"
    )
    assert site.logins == 0


@pytest.mark.parametrize("check", ["check_url", "logged_in", "logged_out"])
def test_wrong_password_is_noticed_by_each_kind_of_login_check(site: LoginSite, check: str) -> None:
    site.pages["/login"] = lambda asked: (
        html("<p>Sorry.</p>", 200, ("Set-Cookie", "a=b")) if asked.method == "POST" else site.form()
    )
    checks = {"check_url": site.url("/in/1"), "logged_in": "Log out", "logged_out": "Sorry"}
    with pytest.raises(LoginRefused):
        log_in(FormKind(entry(site, **{check: checks[check]}), SECRETS))


@pytest.mark.parametrize("check", ["check_url", "logged_in", "logged_out"])
def test_right_password_passes_the_checks(site: LoginSite, check: str) -> None:
    checks = {"check_url": site.url("/in/1"), "logged_in": "Log out", "logged_out": "Sorry"}
    kind = FormKind(entry(site, **{check: checks[check]}), SECRETS)
    grant = log_in(kind)
    assert kind.judge(get(kind, site.url("/in/7"), grant), grant) == "in"


def test_login_is_refused_if_it_sets_no_cookie(site: LoginSite) -> None:
    site.pages["/login"] = lambda asked: (
        html("<p>Welcome</p>")
        if asked.method == "POST"
        else html(FORM.format(action="", token="", error=""))
    )
    with pytest.raises(LoginRefused, match="set no cookie"):
        log_in(FormKind(entry(site), SECRETS))


def test_cookies_that_the_login_page_set_are_kept_in_the_grant(site: LoginSite) -> None:
    site.pages["/login"] = lambda asked: (
        redirect("/in/") if asked.method == "POST" else begun(site.form())
    )
    site.pages["/in/"] = lambda asked: html("<p>Welcome</p>")

    def begun(form: Answered) -> Answered:
        form.headers.append(("Set-Cookie", "PHPSESSID=abc; Path=/"))
        return form

    grant = log_in(FormKind(entry(site), SECRETS))
    assert sorted(grant.token["login"]) == ["PHPSESSID", "csrf"]


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (
            "<form method=post><input name=q></form>",
            r"no form asks for a password \(fields there: 'q'",
        ),
        ("<form><input name=u><input type=password name=p></form>", "method GET"),
        (
            '<form method=post action="http://127.0.0.9:1/x"><input type=password name=p></form>',
            r"goes to http://127\.0\.0\.9:1, which `hosts` does not name",
        ),
        (
            "<form method=post action='javascript:x()'><input type=password name=p></form>",
            "goes to no web address",
        ),
        ("<p>x" * 60_000 + FORM, "takes too much CPU to read"),
    ],
)
def test_unsuitable_login_form_is_refused_and_not_sent(
    site: LoginSite, page: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(form_page, "HUB_SECONDS", 0.005)  # every machine takes too long for a page
    monkeypatch.setattr(form_page, "_own_process", False)
    site.pages["/login"] = lambda asked: html(page)
    with pytest.raises(LoginRefused, match=said):
        log_in(FormKind(entry(site), SECRETS))
    assert [asked.method for asked in site.log] == ["GET"]


def test_login_is_refused_if_the_page_lacks_the_configured_fields(site: LoginSite) -> None:
    with pytest.raises(LoginRefused, match=r"'user' and 'pin'.*'username', 'password'"):
        log_in(FormKind(entry(site, username_field="user", password_field="pin"), SECRETS))


def test_login_page_that_is_not_html_is_refused(site: LoginSite) -> None:
    site.pages["/login"] = lambda asked: Answered(
        200, b"{}", [("Content-Type", "application/json")]
    )
    with pytest.raises(LoginRefused, match="no HTML"):
        log_in(FormKind(entry(site), SECRETS))


@pytest.mark.parametrize("status", [403, 404])
def test_login_is_refused_if_its_page_answers_403_or_404(site: LoginSite, status: int) -> None:
    site.pages["/login"] = lambda asked: html("<p class=error>Go away</p>", status)
    with pytest.raises(LoginRefused, match=f"HTTP {status}; the page says: Go away"):
        log_in(FormKind(entry(site), SECRETS))


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_login_fails_without_a_refusal_if_the_server_answers_500(
    site: LoginSite, method: str
) -> None:
    site.pages["/login"] = lambda asked: (
        html("oops", 500) if asked.method == method else site.form()
    )
    with pytest.raises(LoginFailed) as caught:
        log_in(FormKind(entry(site), SECRETS))
    assert caught.value.failure.kind == FailureKind.SERVER_ERROR


def test_refusal_quotes_the_csrf_failure_of_the_page(site: LoginSite) -> None:
    site.pages["/login"] = lambda asked: (
        site.logged_in(asked)
        if asked.method == "POST"
        else html(FORM.format(action="/login", token="stale", error=""))
    )
    with pytest.raises(LoginRefused, match="HTTP 403; the page says: CSRF verification failed"):
        log_in(FormKind(entry(site), SECRETS))


# -- where the password goes


def test_password_is_sent_to_another_origin_only_if_hosts_names_it(
    site: LoginSite, other: LoginSite
) -> None:
    site.action = other.url("/login")
    site.pages["/login"] = lambda asked: site.form()
    with pytest.raises(LoginRefused, match="does not name"):
        log_in(FormKind(entry(site), SECRETS))
    assert other.log == []
    other.pages["/login"] = lambda asked: redirect("/in/", ("Set-Cookie", "s=1; Path=/"))
    other.pages["/in/"] = lambda asked: html("<p>in</p>")
    log_in(FormKind(entry(site, hosts=(site.origin, other.origin)), SECRETS))
    assert other.log[0].fields["password"] == PASSWORD
    assert other.log[0].headers["referer"] == site.url("/"), "not the path, elsewhere"


@pytest.mark.parametrize("made", [session, requests.Session])
@pytest.mark.parametrize("status", [307, 308])
def test_redirect_that_would_send_the_password_to_another_origin_is_not_followed(
    site: LoginSite, other: LoginSite, status: int, made: Callable[[], requests.Session]
) -> None:
    """The session's own guard and the login's both stop it."""
    site.pages["/login"] = lambda asked: (
        redirect(other.url("/login"), status=status) if asked.method == "POST" else site.form()
    )
    with pytest.raises(LoginRefused, match=r"127\.0\.0\.2:\d+, which .*hosts"):
        FormKind(entry(site), SECRETS).log_in(made(), None)
    assert len(site.log) == 2
    assert other.log == []


@pytest.mark.parametrize("status", [307, 308])
def test_redirect_that_repeats_the_form_is_followed_within_the_origin(
    site: LoginSite, status: int
) -> None:
    site.pages["/login"] = lambda asked: (
        redirect("/login2", status=status) if asked.method == "POST" else site.form()
    )
    site.pages["/login2"] = site.logged_in
    log_in(FormKind(entry(site), SECRETS))
    assert site.logins == 1


def test_redirect_carries_no_login_cookies_to_another_origin(
    site: LoginSite, other: LoginSite
) -> None:
    site.pages["/login"] = lambda asked: (
        redirect(other.url("/"), ("Set-Cookie", "session=1; Path=/"))
        if asked.method == "POST"
        else site.form()
    )
    kind = FormKind(entry(site), SECRETS)
    grant = log_in(kind)
    assert other.log == []
    url, headers = kind.prove(other.url("/"), {}, grant)
    assert (url, headers) == (other.url("/"), {})


def test_redirects_without_end_are_refused(site: LoginSite) -> None:
    site.pages["/login"] = lambda asked: (
        redirect("/round") if asked.method == "POST" else site.form()
    )
    site.pages["/round"] = lambda asked: redirect("/round")
    with pytest.raises(LoginRefused, match="redirects in a row"):
        log_in(FormKind(entry(site), SECRETS))
    assert len(site.log) == 12


# -- logged out


@pytest.mark.parametrize("anonymous", ["redirect", "form", "401"])
def test_ended_login_session_is_noticed_and_a_new_login_opens_the_page(
    site: LoginSite, anonymous: Any
) -> None:
    site.anonymous = anonymous
    kind = FormKind(entry(site), SECRETS)
    grant = log_in(kind)
    assert kind.judge(get(kind, site.url("/in/7"), grant), grant) == "in"
    site.kill_sessions()
    assert kind.judge(get(kind, site.url("/in/7"), grant), grant) == "out"
    again = log_in(kind, 2)
    assert kind.judge(get(kind, site.url("/in/7"), again), again) == "in"


def fetched(url: str, body: str = "", status: int = 200, **headers: str) -> Fetched:
    given = {"content-type": "text/html; charset=utf-8"} | headers
    return Fetched(url=url, status=status, headers=given, body=body.encode())


def kind_of(**given: Any) -> FormKind:
    values: dict[str, Any] = {
        "name": "site",
        "hosts": ("a.example",),
        "login_url": "https://a.example/login",
    }
    return FormKind(Form(**(values | given)), SECRETS)


def grant_of(**token: Any) -> Grant:
    return Grant(account=NAME, generation=1, made_ms=1, token=dict(token))


KNOWN = {"action": "https://a.example/do-login", "username": "u", "password": "p"}
URL = "https://a.example/page"


@pytest.mark.parametrize(
    ("body", "out"),
    [
        ("<form method=post action=/do-login><input type=password name=x></form>", True),
        ("<form method=post action=/login?next=/><input type='PASSWORD' name=x></form>", True),
        ("<form method=post><input name=u><input type=password name=p></form>", True),
        ("<form method=post action=/pay><input type=password name=pin></form>", False),
        (
            "<form method=post action=/settings><input type=password name=p></form>",
            False,
        ),
        (
            "<form method=post><input name=u><input type=password name=p>"
            "<input type=password name=p2></form>",
            False,
        ),
        ("<p>The input type=password of a form</p>", False),
        ("<pre>&lt;input type=password&gt;</pre>", False),
        ("<meta http-equiv=refresh content='0; url=/login?next=/page'>", True),
        ("<meta http-equiv=refresh content='600'>", False),
        ("<meta http-equiv=refresh content='0; url=/next'>", False),
        ("<meta http-equiv=refresh content='0; url=http://['>", False),
        ("<p>hello</p>", False),
    ],
)
def test_verdict_is_out_if_a_page_asks_for_the_login_and_not_for_other_passwords(
    body: str, out: bool
) -> None:
    assert kind_of().judge(fetched(URL, body), grant_of(**KNOWN)) == ("out" if out else "in")


def test_page_full_of_blanks_is_judged_in_linear_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quadratic work would take hours here."""
    # Otherwise the separate reader gets large pages.
    monkeypatch.setattr(form_page, "stops", lambda: True)
    blanks = " " * 2_000_000
    for body in (f"password type={blanks}", f"password type{blanks}", "password type= " * 100_000):
        assert kind_of().judge(fetched(URL, body), grant_of(**KNOWN)) == "in"


def test_verdict_is_out_if_a_page_deletes_the_login_cookie() -> None:
    given = grant_of()
    given.cookies = [Cookie("s", "1", "a.example")]
    given.token["login"] = ["s"]
    answer = fetched(URL, "<p>See you soon</p>")
    answer.cookies = ("other=; Max-Age=0; Path=/",)
    assert kind_of().judge(answer, given) == "in"
    answer.cookies = ("s=; Max-Age=0; Path=/",)
    assert kind_of().judge(answer, given) == "out"


def test_login_form_in_plain_text_does_not_change_the_verdict() -> None:
    answer = fetched(URL, FORM, **{"content-type": "text/plain"})
    assert kind_of().judge(answer, grant_of(**KNOWN)) == "in"


@pytest.mark.parametrize(
    ("status", "out"), [(200, True), (403, True), (401, True), (404, False), (500, False)]
)
def test_login_form_is_ignored_in_answers_with_status_404_or_500(status: int, out: bool) -> None:
    body = "<form method=post action=/login><input type=password name=x></form>"
    verdict = kind_of().judge(fetched(URL, body, status), grant_of(**KNOWN))
    assert verdict == ("out" if out else "in")


@pytest.mark.parametrize(
    ("location", "out"),
    [
        ("/login?next=/page", True),
        ("https://a.example/login", True),
        ("/login/reset", False),
        ("https://b.example/login", False),
        ("/other", False),
    ],
)
def test_verdict_is_out_if_a_page_redirects_to_the_login_page(location: str, out: bool) -> None:
    answer = fetched(URL, status=302, location=location)
    assert kind_of().judge(answer, grant_of(**KNOWN)) == ("out" if out else "in")


def test_redirect_to_a_login_on_the_start_page_is_ignored_if_a_new_login_meets_it_again() -> None:
    kind = kind_of(login_url="https://a.example/")
    first = grant_of()
    answer = fetched(URL, status=302, location="/")
    assert kind.judge(answer, first) == "out"
    second = Grant(account=NAME, generation=2, made_ms=epoch_ms())
    assert kind.judge(answer, second) == "in"
    assert kind.judge(fetched("https://a.example/z", status=302, location="/"), second) == "in"
    assert kind.judge(fetched(URL, status=302, location="/?next=/page"), second) == "out"


@pytest.mark.parametrize(
    ("given", "body", "verdict"),
    [
        ({"logged_in": "Log out"}, "<a>Log out</a>", "in"),
        ({"logged_in": "Log out"}, "<p>hello</p>", "out"),
        ({"logged_in": "Log out"}, FORM + "<a>Log out</a>", "in"),
        ({"logged_out": "Please log in"}, "<p>Please log in</p>", "out"),
        ({"logged_out": "Please log in"}, "<p>hello</p>", "in"),
        (
            {"logged_in": "Log out", "logged_out": "expired"},
            "<a>Log out</a><p>Your session has expired</p>",
            "out",
        ),
        ({"logged_out": "Bitte anmelden: ÄÖ"}, "<p>Bitte anmelden: ÄÖ</p>", "out"),
    ],
)
def test_configured_patterns_decide_the_verdict(
    given: dict[str, str], body: str, verdict: str
) -> None:
    assert kind_of(**given).judge(fetched(URL, body), grant_of(**KNOWN)) == verdict


def test_configured_patterns_are_ignored_for_json_and_error_pages() -> None:
    answer = fetched(URL, "{}", **{"content-type": "application/json"})
    assert kind_of(logged_in="Log out").judge(answer, grant_of(**KNOWN)) == "in"
    assert kind_of(logged_in="Log out").judge(fetched(URL, "no", 404), grant_of(**KNOWN)) == "in"


def test_password_is_sent_in_the_form_request_only(site: LoginSite) -> None:
    """Only the form's own request carries the password."""
    log_in(FormKind(entry(site, check_url=site.url("/in/1")), SECRETS))

    def holds(asked: LoggedRequest) -> bool:
        said = f"{asked.path}?{asked.query} {asked.headers} {asked.body!r}"
        return "battery" in said

    assert [asked.method for asked in site.log if holds(asked)] == ["POST"]
