"""Who may log in, and which requests may change something."""

from __future__ import annotations

from pathlib import Path

import pytest

from greencrawl.monitor import access
from greencrawl.monitor.app import HEADERS
from tests.monitor.rig import ADMIN, FORM, ORIGIN, VIEW, Desk, form_token

PAUSE = "/monitor/crawls/blog/pause"


def state(desk: Desk) -> str:
    return desk.store.crawl("blog").state


# -- the log-in


def test_no_page_is_shown_without_a_log_in(desk: Desk) -> None:
    for path in ("/monitor/", "/monitor/new", "/monitor/crawls/blog"):
        answer = desk.get(path)
        assert answer.status_code == 303
        assert answer.headers["location"] == f"/monitor/login?next={path}"
        assert answer.text == ""
    assert desk.get("/monitor/?part=1").status_code == 401
    assert desk.get("/monitor/crawls/blog/export?format=jsonl").status_code == 303


def test_the_log_in_cookie_is_restricted_to_this_site_and_lasts_half_a_day(desk: Desk) -> None:
    made = desk.log_in()
    assert made.status_code == 303
    assert made.headers["location"] == "/monitor/"
    cookie = made.cookies[access.PLAIN]
    assert cookie.http_only
    assert cookie.same_site == "Strict"
    assert cookie.path == "/"
    assert cookie.max_age == 12 * 3600
    assert cookie.domain is None
    assert desk.get("/monitor/").status_code == 200


def test_the_log_in_page_is_isolated_from_its_opener_and_other_pages_are_not(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.monitor.app.REFUSED_SECONDS", 0.0)
    name = "cross-origin-opener-policy"
    form = desk.get("/monitor/login")
    stamp = form_token(form.text)
    wrong = desk.post("/monitor/login", stamp, token="x")
    right = desk.post("/monitor/login", stamp, token=ADMIN)
    assert [one.status_code for one in (form, wrong, right)] == [200, 403, 303]
    assert {one.headers.get(name) for one in (form, wrong, right)} == {"same-origin"}
    others = [desk.get(path) for path in ("/monitor/", "/monitor/new", "/monitor/login", "/none")]
    assert [one.headers.get(name) for one in others] == [None] * 4


def test_the_log_in_cookie_is_bound_to_its_host_if_tls_is_used(desk: Desk) -> None:
    form = desk.ask("GET", "/monitor/login", {}, protocol="https", host="crawl.example")
    made = desk.ask(
        "POST", "/monitor/login", {**FORM, "Origin": "https://crawl.example"},
        body=f"form_token={form_token(form.text)}&token={ADMIN}",
        protocol="https", host="crawl.example",
    )  # fmt: skip
    assert made.cookies[access.SECURE].secure
    assert access.SECURE.startswith("__Host-")
    seen = desk.ask("GET", "/monitor/", {}, protocol="https", host="crawl.example")
    assert seen.status_code == 200
    # A cookie from a connection without TLS has no effect: somebody could write cookies for a
    # network.
    desk.cookies = {access.PLAIN: desk.cookies[access.SECURE]}
    other = desk.ask("GET", "/monitor/", {}, protocol="https", host="crawl.example")
    assert other.status_code == 303


@pytest.mark.parametrize("token", ["", "wrong", ADMIN[:-1], f"{ADMIN}x", "a-workers-token"])
def test_a_log_in_with_a_wrong_token_is_refused(
    desk: Desk, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("greencrawl.monitor.app.REFUSED_SECONDS", 0.0)
    answer = desk.log_in(token)
    assert answer.status_code == 403
    assert "GREENCRAWL_ADMIN_TOKEN" in answer.text
    assert not answer.cookies


def test_a_changed_token_makes_old_cookies_void(desk: Desk, tmp_path: Path) -> None:
    desk.log_in()
    kept = dict(desk.cookies)
    for changed, status in (((ADMIN, VIEW), 200), (("another-token", VIEW), 303)):
        (tmp_path / changed[0]).mkdir()
        later = Desk(tmp_path / changed[0], *changed)
        later.cookies = dict(kept)
        assert later.get("/monitor/").status_code == status
        later.close()


def test_a_forged_or_expired_cookie_is_void(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.log_in(VIEW)
    value = desk.cookies[access.PLAIN]
    role, end, rest = value.split(".", 2)
    for forged in (f"admin.{end}.{rest}", f"{role}.{int(end) + 1}.{rest}", value[:-1], "", "admin"):
        desk.cookies[access.PLAIN] = forged
        assert desk.get("/monitor/").status_code == 303, forged
    desk.cookies[access.PLAIN] = value
    assert desk.get("/monitor/").status_code == 200
    monkeypatch.setattr(access, "epoch_ms", lambda: int(end) * 1000 + 1)
    assert desk.get("/monitor/").status_code == 303


def test_a_person_who_logged_out_has_to_log_in_again(admin: Desk) -> None:
    gone = admin.post("/monitor/logout", admin.stamp())
    assert gone.status_code == 303
    assert admin.cookies[access.PLAIN] == ""
    assert admin.get("/monitor/").status_code == 303


@pytest.mark.parametrize(
    "path",
    [
        "https://evil.example/",
        "//evil.example/",
        "/monitor/\\evil",
        "/v1/stats",
        "/monitor/\n",
        "/monitor/中",
    ],
)
def test_a_log_in_never_redirects_to_another_site(desk: Desk, path: str) -> None:
    form = desk.get("/monitor/login")
    fields = {"token": ADMIN, "next": path}
    answer = desk.post("/monitor/login", form_token(form.text), **fields)
    assert answer.headers["location"] == "/monitor/"


# -- who may change something


def test_a_form_with_a_valid_token_is_carried_out(admin: Desk) -> None:
    admin.crawl()
    answer = admin.post(PAUSE, admin.stamp())
    assert answer.status_code == 303
    assert answer.headers["location"] == "/monitor/crawls/blog?said=paused"
    assert state(admin) == "paused"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": ""},
        {"Origin": "null"},
        {"Origin": "https://evil.example"},
        {"Origin": f"{ORIGIN}:1234"},
        {"Origin": ORIGIN.replace("http:", "https:")},
        {"Origin": "http://evil.example", "Host": "evil.example"},
        {"Content-Type": "text/plain"},
    ],
)
def test_a_form_of_a_foreign_page_changes_nothing(admin: Desk, headers: dict[str, str]) -> None:
    admin.crawl()
    assert admin.post(PAUSE, admin.stamp(), headers).status_code in (403, 415)
    assert state(admin) == "active"


def test_a_form_with_a_wrong_token_changes_nothing(admin: Desk) -> None:
    admin.crawl()
    old = admin.stamp()
    admin.cookies.clear()
    admin.log_in()
    for stamp in ("", "x" * 32, old, "ä"):
        assert admin.post(PAUSE, stamp).status_code == 403
    assert state(admin) == "active"
    assert admin.post(PAUSE, admin.stamp()).status_code == 303


def test_a_viewer_sees_no_forms_and_changes_nothing(desk: Desk) -> None:
    desk.crawl()
    desk.log_in(VIEW)
    for path in ("/monitor/", "/monitor/crawls/blog"):
        html = desk.get(path).text
        assert html.count("<form method") == 1, "the log-out"
        assert "/monitor/new" not in html
    assert desk.get("/monitor/new").status_code == 403
    assert desk.get("/monitor/crawls/blog/edit").status_code == 403
    assert desk.post(PAUSE, desk.stamp()).status_code == 403
    assert state(desk) == "active"


# -- without tokens


def test_a_person_at_this_machine_may_change_crawls_if_there_are_no_tokens(open_desk: Desk) -> None:
    open_desk.crawl()
    html = open_desk.get("/monitor/crawls/blog").text
    assert "/monitor/logout" not in html
    assert open_desk.post(PAUSE, form_token(html)).status_code == 303
    assert state(open_desk) == "paused"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::2]"])
def test_a_request_with_a_foreign_host_header_is_refused(
    open_desk: Desk, admin: Desk, host: str
) -> None:
    for desk in (open_desk, admin):
        answer = desk.ask("GET", "/monitor/", {}, host=host)
        assert answer.status_code == 403
        assert "127.0.0.1" in answer.text
    desk = open_desk
    desk.crawl()
    stamp = form_token(desk.get("/monitor/crawls/blog").text)
    assert desk.post(PAUSE, stamp, {"Host": host, "Origin": f"http://{host}"}).status_code == 403
    assert state(desk) == "active"


# -- headers


def test_every_answer_has_a_policy_that_allows_only_our_own_scripts(admin: Desk) -> None:
    static = admin.get("/monitor/").text.partition('rel="stylesheet" href="')[2].partition('"')[0]
    for path in ("/monitor/", "/monitor/?part=1", "/monitor/nothing", "/monitor/crawls/x", static):
        headers = admin.get(path).headers
        told = headers.get("content-security-policy")
        assert told == HEADERS["Content-Security-Policy"], path
        assert headers.get("x-content-type-options") == "nosniff"
    policy = HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for wanted in ("frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"):
        assert wanted in policy


def test_the_placeholder_of_a_form_token_never_reaches_the_browser(admin: Desk) -> None:
    admin.crawl()
    for path in ("/monitor/crawls/blog", "/monitor/crawls/blog?part=1"):
        assert "form-" not in admin.get(path).text.replace("form-action", "")
