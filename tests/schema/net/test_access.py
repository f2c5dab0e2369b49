"""A crawl's auth and sources: what is refused, and which links are skipped when logged in."""

from __future__ import annotations

from typing import Any

import pytest

from greencrawl.schema.net.access import is_action, skipped_form, skipped_text
from greencrawl.schema.net.action_data import Action
from greencrawl.schema.net.scope import Rules, check_options, compile
from greencrawl.schema.records import Crawl, CrawlOptions
from greencrawl.schema.records.auth import Auth, Basic, Bearer, Form, OAuth1, OAuth2, Own, Source


def found(*entries: Auth, sources: tuple[Source, ...] = ()) -> dict[str, str]:
    return dict(check_options(CrawlOptions(auth=entries, sources=sources)))


def form(**given: Any) -> Form:
    values: dict[str, Any] = {
        "name": "shop",
        "hosts": ("shop.example",),
        "login_url": "https://shop.example/login",
    }
    return Form(**(values | given))


def oauth2(**given: Any) -> OAuth2:
    values: dict[str, Any] = {"name": "api", "hosts": ("api.example",)}
    return OAuth2(**(values | given))


GOOD: tuple[Auth, ...] = (
    form(),
    form(name="sso", login_url="https://login.example/", check_url="https://shop.example/me"),
    form(name="plain", hosts=("http://a.example",), login_url="http://a.example/login"),
    Basic(name="basic", hosts=("*.b.example", "http://127.0.0.1:8000")),
    Bearer(name="key", hosts=("c.example",), header="X-Api-Key", prefix=""),
    Bearer(name="cookie", hosts=("c.example",), header="Cookie", prefix=""),
    oauth2(token_url="https://d.example/token"),
    oauth2(name="twitter", provider="twitter", grant="code", base="https://e.example"),
    oauth2(
        name="code",
        grant="code",
        token_url="https://d.example/t",
        authorize_url="https://d.example/a",
    ),
    OAuth1(name="one", hosts=("f.example",)),
    Own(name="own", hosts=("g.example",), login="mysite:MySite"),
)


def test_valid_auth_entries_have_no_problems() -> None:
    assert found(*GOOD) == {}


@pytest.mark.parametrize(
    ("entry", "field", "said"),
    [
        (form(hosts=("shop.example", "*.com")), "auth[0].hosts[1]", "everybody"),
        (form(login_url="/login"), "auth[0].login_url", "not a URL"),
        (form(login_url="http://shop.example/login"), "auth[0].login_url", "without TLS"),
        (form(login_url="https://u:p@shop.example/"), "auth[0].login_url", "password"),
        (form(check_url="https://other.example/"), "auth[0].check_url", "does not name"),
        (form(logged_in="("), "auth[0].logged_in", "no regular expression"),
        (form(logged_out="(?!a)"), "auth[0].logged_out", "bounded time"),
        (form(skip=("/out", "[")), "auth[0].skip[1]", "no regular expression"),
        (Bearer(name="b", hosts=("a.example",), header="A B"), "auth[0].header", "no name"),
        (Bearer(name="b", hosts=("a.example",), header="Host"), "auth[0].header", "own"),
        (Bearer(name="b", hosts=("a.example",), prefix="\n"), "auth[0].prefix", "ASCII"),
        (oauth2(), "auth[0].token_url", "needed"),
        (oauth2(token_url="http://a.example/t"), "auth[0].token_url", "without TLS"),
        (
            oauth2(token_url="https://a.example/t", grant="code"),
            "auth[0].authorize_url",
            "needed",
        ),
        (oauth2(provider="weibo", base="https://a.example/x"), "auth[0].base", "no origin"),
        (oauth2(token_url="https://a.example/t", base="https://a.example"), "auth[0].base", "prov"),
        (oauth2(provider="weibo", expired="("), "auth[0].expired", "no regular expression"),
        (
            OAuth1(name="o", hosts=("a.example",), access_token_url="https://a.example/a"),
            "auth[0].request_token_url",
            "needed along",
        ),
        (
            Own(name="o", hosts=("a.example",), login="m:C", login_url="x"),
            "auth[0].login_url",
            "not a URL",
        ),
    ],
)
def test_an_auth_entry_that_cannot_work_is_named(entry: Auth, field: str, said: str) -> None:
    problems = found(entry)
    assert said in problems[field]


def test_two_auth_entries_may_not_have_the_same_name() -> None:
    assert "auth[0] already" in found(form(), form())["auth[1].name"]


@pytest.mark.parametrize(
    ("source", "field", "said"),
    [
        (Source(url="api.example", items="a"), "sources[0].url", "not a URL"),
        (Source(url="https://a.example/", items="a["), "sources[0].items", "JMESPath"),
        (Source(url="https://a.example/", items="a", next="]"), "sources[0].next", "JMESPath"),
        (Source(url="https://a.example/", items="a", cursor="c"), "sources[0].cursor", "next"),
        (Source(url="https://a.example/", items="(" * 1000), "sources[0].items", ""),
    ],
)
def test_a_source_that_cannot_work_is_named(source: Source, field: str, said: str) -> None:
    assert said in found(sources=(source,))[field]


def test_a_valid_source_has_no_problem_unless_it_is_given_twice() -> None:
    source = Source(url="https://a.example/?x", items="data[].url", next="meta.next", cursor="c")
    assert found(sources=(source,)) == {}
    assert list(found(sources=(source, source))) == ["sources[1].url"]


# -- links that are skipped


def rules(*entries: Auth, **options: Any) -> Rules:
    options = {"scope": "any", "auth": entries} | options
    return compile(
        Crawl(id=1, name="t", state="active", options=CrawlOptions(**options), roots=("*",))
    )


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/logout", "action 'Log out' (log out, English) in its path"),
        ("/%E9%80%80%E5%87%BA/", "action '退出' (log out, Chinese, simplified) in its path"),
        ("/x?act=%D3%E4%E0%EB%E8%F2%FC&id=3", "action 'Удалить' (delete, Russian) in its query"),
        ("/posts/3/delete/", "action 'Delete' (delete, English) in its path"),
        ("/ucp.php?watch=3", "action 'watch' (change, phpBB) in its URL"),
    ],
)
def test_links_that_log_out_or_change_data_are_not_followed(path: str, why: str) -> None:
    url = f"https://shop.example{path}"
    reason = rules(form()).excluded_by(url, 1)
    assert reason == f"auth shop: {why}"
    assert is_action(reason)
    assert rules(form()).excluded_by(url, 0, seed=True) == reason
    assert rules(form(skip=("/never",))).excluded_by(url, 1) == reason, "beside words of one's own"
    assert rules(form()).excluded_by(f"https://other.example{path}", 1) is None


def test_actions_that_the_crawl_lets_through_are_followed() -> None:
    given = rules(form(skip=("/never",)), follow_actions=("/posts/",))
    assert given.excluded_by("https://shop.example/posts/3/delete", 1) is None
    assert given.excluded_by("https://shop.example/pages/3/delete", 1) is not None
    assert given.excluded_by("https://shop.example/posts/never", 1) is not None
    assert not is_action(given.excluded_by("https://shop.example/posts/never", 1) or "")
    quoted = rules(form(skip=("x(: action )?",))).excluded_by("https://shop.example/x", 1)
    assert quoted == "auth shop: skip pattern 'x(: action )?'"
    assert not is_action(quoted)
    text = Action("退出", "log_out", "Chinese")
    page = "https://shop.example/posts/"
    assert skipped_text(given.skips, "https://shop.example/posts/8", text, page) is None
    reason = skipped_text(given.skips, "https://shop.example/8", text, page)
    assert reason == f"auth shop: action '退出' (log out, Chinese) in the text of a link on {page}"
    assert is_action(reason)
    assert skipped_text(given.skips, "https://other.example/8", text, page) is None
    assert skipped_form(given.skips, "https://shop.example/posts/8", page) is None
    reason = skipped_form(given.skips, "https://shop.example/8", page)
    assert reason == f"auth shop: action of a form on {page}"
    assert is_action(reason)
    off = rules(form(skip=())).skips
    assert skipped_form(off, "https://shop.example/8", page) is None
    assert skipped_text(off, "https://shop.example/8", text, page) is None


def test_the_patterns_of_follow_actions_are_checked() -> None:
    problems = dict(check_options(CrawlOptions(follow_actions=("ok", "(?!x)"))))
    assert "bounded time" in problems["follow_actions[1]"]


def test_a_skip_list_holds_for_the_origins_of_its_entry_and_the_first_entry_counts() -> None:
    other = Basic(name="other", hosts=("*.example", "shop.example"), skip=("/never",))
    given = rules(form(skip=("/secret",)), other)
    assert given.excluded_by("https://shop.example/SECRET", 1) == (
        "auth shop: skip pattern '/secret'"
    )
    assert given.excluded_by("https://shop.example/never", 1) is None, "the other entry's"
    assert given.excluded_by("https://www.example/never", 1) == "auth other: skip pattern '/never'"
    assert given.excluded_by("https://elsewhere.org/secret/never/logout", 1) is None
    assert given.excluded_by("http://shop.example/secret", 1) is None, "another origin"


def test_skip_list_looks_at_path_and_query_only() -> None:
    given = rules(form(hosts=("logout.example",), skip=("logout",)))
    assert given.excluded_by("https://logout.example/", 1) is None
    assert given.excluded_by("https://logout.example/logout", 1) is not None


def test_login_page_is_not_fetched_unless_it_is_the_start_page() -> None:
    given = rules(form())
    url = "https://shop.example/login?next=/a"
    assert given.excluded_by(url, 0, seed=True) == "auth shop: the login page"
    assert given.excluded_by("https://shop.example/loginx", 1) is None
    start = rules(form(login_url="https://shop.example/"))
    assert start.excluded_by("https://shop.example/", 1) is None


def test_follow_actions_can_let_every_url_through() -> None:
    url = "https://shop.example/logout"
    assert rules(form()).excluded_by(url, 1) is not None
    assert rules(form(), follow_actions=(".",)).excluded_by(url, 1) is None
    assert rules(form(skip=())).excluded_by(url, 1) is None, "an empty list always did"


def test_crawl_without_auth_has_nothing_to_skip() -> None:
    assert rules().skips == ()
    assert rules().excluded_by("https://shop.example/logout", 1) is None
