"""Cookies of a login: where they go, and how answers change them."""

from __future__ import annotations

from typing import Any

import pytest
from requests.cookies import RequestsCookieJar, create_cookie

from greencrawl.schema.clock import epoch_ms
from greencrawl.schema.net.origins import Origins
from greencrawl.schema.records import Fetched
from greencrawl.worker.auth import cookies
from greencrawl.worker.auth.base import Cookie, Grant, LoginRefused
from greencrawl.worker.auth.cookies import (
    MAX_COOKIE,
    MAX_COOKIES,
    CookieStore,
    Jar,
    collected,
    read_cookie,
)

NOW = 1_800_000_000
HOSTS = Origins(["a.example", "*.a.example", "http://a.example", "a.example:8443"])


def jar(*cookies: Cookie, hosts: Origins = HOSTS) -> Jar:
    return Jar(cookies, hosts, clock=lambda: float(NOW))


def cookie(name: str = "s", value: str = "1", domain: str = "a.example", **given: Any) -> Cookie:
    return Cookie(name, value, domain, **given)


@pytest.mark.parametrize(
    ("given", "url", "sent"),
    [
        ({}, "https://a.example/x?y", True),
        ({}, "http://a.example/", True),
        ({}, "https://a.example:8443/", True),
        ({}, "https://www.a.example/", False),
        ({}, "https://b.example/", False),
        ({}, "https://a.example:9/", False),
        ({"host_only": False}, "https://www.a.example/", True),
        ({"host_only": False}, "https://xa.example/", False),
        ({"secure": True}, "https://a.example/", True),
        ({"secure": True}, "http://a.example/", False),
        ({"path": "/in"}, "https://a.example/in", True),
        ({"path": "/in"}, "https://a.example/in?x", True),
        ({"path": "/in"}, "https://a.example/in/x", True),
        ({"path": "/in/"}, "https://a.example/in/x", True),
        ({"path": "/in/"}, "https://a.example/in", False),
        ({"path": "/in"}, "https://a.example/inside", False),
        ({"path": "/in"}, "https://a.example/?/in", False),
        ({"expires": NOW + 1}, "https://a.example/", True),
        ({"expires": NOW}, "https://a.example/", False),
    ],
)
def test_cookie_is_sent_only_if_its_attributes_and_the_entry_allow_it(
    given: dict[str, Any], url: str, sent: bool
) -> None:
    assert jar(cookie(**given)).header(url) == ("s=1" if sent else "")


def test_cookie_for_a_whole_domain_still_goes_to_the_entrys_origins_only() -> None:
    kept = jar(cookie(host_only=False), hosts=Origins(["www.a.example"]))
    assert kept.header("https://www.a.example/") == "s=1"
    assert kept.header("https://a.example/") == ""
    assert kept.header("https://evil.a.example/") == ""
    assert kept.header("http://www.a.example/") == ""


def test_cookie_of_a_domain_is_not_sent_to_an_ip_address_that_ends_with_it() -> None:
    kept = jar(cookie(domain="0.0.1", host_only=False), hosts=Origins(["http://127.0.0.1"]))
    assert kept.header("http://127.0.0.1/") == ""


def test_cookie_with_the_longest_path_is_sent_first() -> None:
    kept = jar(cookie("b", path="/"), cookie("c", path="/in/"), cookie("a", path="/"))
    assert kept.header("https://a.example/in/") == "c=1; b=1; a=1"
    assert kept.header("https://a.example/") == "b=1; a=1"


def test_cookie_is_no_longer_sent_once_it_expires() -> None:
    now = float(NOW)
    kept = Jar([cookie(expires=NOW + 10), cookie("t")], HOSTS, clock=lambda: now)
    assert kept.header("https://a.example/") == "s=1; t=1"
    now += 10
    assert kept.header("https://a.example/") == "t=1"


def answer(*cookies: str, url: str = "https://a.example/dir/page") -> Fetched:
    return Fetched(url=url, status=200, headers={}, body=b"", cookies=cookies)


@pytest.mark.parametrize(
    ("text", "sent", "deleted"),
    [
        ("s=2; Path=/", "s=2", []),
        ("s=2; Path=/; Max-Age=100", "s=2", []),
        ("s=1; Path=/", "s=1", []),
        ("s=; Path=/; Max-Age=0", "", ["s"]),
        ("s=2; Path=/; Max-Age=-5", "", ["s"]),
        ("s=; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "", ["s"]),
        ("s=; Path=/; Expires=Thu, 01-Jan-1970 00:00:00 GMT", "", ["s"]),
        ("s=2; Path=/; Expires=Fri, 01 Jan 2100 00:00:00 GMT", "s=2", []),
        ("s=2; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=9", "s=2", []),
        ("s=2; Path=/; Expires=nonsense", "s=2", []),
        ("s=2; Path=/; Max-Age=nonsense", "s=2", []),
        ("s=2; Path=/; Max-Age=" + "9" * 5000, "s=2", []),
        ("s=2", "s=1", []),  # it has the path /dir: another cookie
        ("t=2; Path=/", "s=1", []),  # not the login's
        ("s=2; Path=/; Domain=evil.example", "s=1", []),
        ("s=2; Path=/; Domain=www.a.example", "s=1", []),
        ("no pair", "s=1", []),
        ("=2; Path=/", "s=1", []),
        ("s=a\tb; Path=/", "s=1", []),
    ],
)
def test_answer_changes_or_deletes_a_cookie_of_the_login(
    text: str, sent: str, deleted: list[str]
) -> None:
    kept = jar(cookie())
    assert kept.take(answer(text)) == deleted
    assert kept.header("https://a.example/") == sent


def test_subdomain_changes_the_cookies_of_the_domain_also_one_that_its_host_alone_had() -> None:
    kept = jar(cookie("host"), cookie("all", host_only=False))
    below = "https://www.a.example/"
    kept.take(answer("host=2; Domain=a.example; Path=/", url=below))
    kept.take(answer("all=2; Domain=.A.example; Path=/", url=below))
    assert sorted(kept.header(below).split("; ")) == ["all=2", "host=2"]


def test_another_host_of_the_entry_changes_no_cookie_of_this_domain() -> None:
    kept = jar(cookie(host_only=False), hosts=Origins(["a.example", "c.example"]))
    stranger = "https://c.example/"
    assert kept.take(answer("s=; Path=/; Max-Age=0; Domain=a.example", url=stranger)) == []
    assert kept.header("https://a.example/") == "s=1"


def test_answer_without_tls_replaces_no_secure_cookie() -> None:
    kept = jar(cookie(secure=True))
    assert kept.take(answer("s=2; Path=/", url="http://a.example/")) == []
    assert kept.take(answer("s=; Path=/; Max-Age=0", url="http://a.example/")) == []
    assert kept.header("https://a.example/") == "s=1"


def test_default_path_is_the_folder_of_the_page() -> None:
    found = read_cookie("s=1", "https://a.example/x/y?z=/w", 0)
    assert found is not None
    assert found.path == "/x"
    found = read_cookie("s=1; Path=nonsense", "https://a.example/x", 0)
    assert found is not None
    assert found.path == "/"


# -- grants


def grant(generation: int = 1, **given: Any) -> Grant:
    made = Grant(account="me", generation=generation, made_ms=epoch_ms(), cookies=[cookie()])
    for name, value in given.items():
        setattr(made, name, value)
    return made


DELETED = answer("s=; Path=/; Max-Age=0")


def test_login_counts_as_lost_only_if_its_cookie_is_deleted() -> None:
    assert CookieStore(HOSTS).lost(DELETED, grant())
    assert CookieStore(HOSTS).lost(DELETED, grant(token={"login": ["s"]}))
    assert not CookieStore(HOSTS).lost(DELETED, grant(token={"login": ["other"]}))
    assert not CookieStore(HOSTS).lost(answer("x=; Path=/; Max-Age=0"), grant())
    assert not CookieStore(HOSTS).lost(DELETED, None)


def test_answer_of_another_origin_deletes_no_cookie() -> None:
    given = grant(cookies=[cookie(host_only=False)])
    stranger = answer("s=; Max-Age=0; Path=/; Domain=a.example", url="http://www.a.example/")
    assert not CookieStore(HOSTS).lost(stranger, given)
    assert len(given.cookies) == 1


def test_login_does_not_count_as_lost_if_its_cookie_is_deleted_right_after_it_was_made() -> None:
    wallet = CookieStore(HOSTS)
    assert wallet.lost(DELETED, grant(1))
    assert not wallet.lost(DELETED, grant(2)), "the same page, right after a new login"
    assert not wallet.lost(answer("s=; Path=/; Max-Age=0", url="https://a.example/x"), grant(3))


def test_login_that_is_lost_again_after_a_while_is_noticed_again() -> None:
    wallet = CookieStore(HOSTS)
    assert wallet.lost(DELETED, grant(1))
    assert wallet.lost(DELETED, grant(2, made_ms=epoch_ms() - 3_600_000))


def test_changed_value_of_a_cookie_is_sent_and_kept_in_the_grant() -> None:
    wallet, given = CookieStore(HOSTS), grant()
    assert not wallet.lost(answer("s=2; Path=/"), given)
    assert wallet.prove("https://a.example/", {"x": "y"}, given) == {"x": "y", "Cookie": "s=2"}
    assert [kept.value for kept in given.cookies] == ["2"]
    again = grant(made_ms=given.made_ms)  # read once more from the vault
    assert wallet.prove("https://a.example/", {}, again) == {"Cookie": "s=2"}


def test_answer_to_an_older_grant_does_not_change_the_cookies_of_the_new_one() -> None:
    wallet, old, new = CookieStore(HOSTS), grant(1), grant(2, cookies=[cookie(value="new")])
    wallet.prove("https://a.example/", {}, old)
    wallet.prove("https://a.example/", {}, new)
    wallet.lost(answer("s=late; Path=/"), old)
    assert wallet.prove("https://a.example/", {}, new) == {"Cookie": "s=new"}


def test_headers_of_a_grant_go_to_its_origins_only() -> None:
    given = grant(headers={"X-Token": "t"}, cookies=[])
    assert CookieStore(HOSTS).prove("https://a.example/", {}, given) == {"X-Token": "t"}
    assert CookieStore(HOSTS).prove("https://b.example/", {}, given) == {}
    assert CookieStore(HOSTS).prove("https://a.example/", {}, None) == {}


def test_cookies_of_a_requests_session_are_collected_with_their_attributes() -> None:
    held = RequestsCookieJar()
    held.set_cookie(create_cookie("a", "1", domain="a.example", path="/p", secure=True))
    held.set_cookie(create_cookie("b", "2", domain=".a.example", expires=NOW))
    held.set_cookie(create_cookie("c", "3", domain="intranet.local"))
    held.set_cookie(create_cookie("d", "登录", domain="a.example"))
    found = {(kept.name, kept.domain): kept for kept in collected(held)}
    assert found["b", "a.example"] == Cookie("b", "2", "a.example", host_only=False, expires=NOW)
    assert found["a", "a.example"].secure
    assert found["a", "a.example"].path == "/p"
    assert ("d", "a.example") not in found, "no header can have it"
    assert {domain for name, domain in found if name == "c"} == {"intranet", "intranet.local"}


def test_cookie_header_is_made_once_for_each_origin() -> None:
    """The header is made once per origin, not once per page; the test counts the look-ups of
    origins."""
    asked: list[str] = []

    class Counted(Origins):
        def hold(self, url: str) -> bool:
            asked.append(url)
            return super().hold(url)

    kept = jar(cookie(), cookie("p", path="/in"), hosts=Counted(["a.example"]))
    for number in range(1000):
        assert kept.header(f"https://a.example/in/{number}") == "p=1; s=1"
    assert len(asked) == 1


def test_a_site_cannot_make_requests_grow_by_its_cookies() -> None:
    url, fits = "https://shop.example/", "v" * (MAX_COOKIE - 1)
    assert read_cookie(f"a={fits}", url, 0.0) is not None
    assert read_cookie(f"a={fits}v", url, 0.0) is None
    jar = RequestsCookieJar()
    jar.set("a", fits + "v", domain="shop.example")
    assert collected(jar) == []
    for number in range(MAX_COOKIES):
        jar.set(f"c{number}", "v", domain="shop.example")
    assert len(collected(jar)) == MAX_COOKIES
    jar.set("one", "more", domain="shop.example")
    with pytest.raises(LoginRefused, match="301 cookies"):
        collected(jar)
    jar = RequestsCookieJar()
    for number in range(17):
        jar.set(f"c{number}", fits[:-4], domain="shop.example")
    with pytest.raises(LoginRefused, match="17 cookies of 69"):
        collected(jar)


def test_a_cookie_with_an_empty_domain_belongs_to_its_host_only() -> None:
    for domain in ("", ".", ".."):
        found = read_cookie(f"s=1; Path=/; Domain={domain}", "https://a.example/x", 0.0)
        assert found == Cookie("s", "1", "a.example", host_only=True)


def test_the_number_of_origins_that_a_cookie_jar_remembers_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cookies, "_ORIGINS", 3)
    kept = jar(cookie(host_only=False))
    for number in range(20):
        assert kept.header(f"https://h{number}.a.example/") == "s=1"
        assert len(kept._sent) <= 3


def test_a_cookie_for_a_whole_public_suffix_is_not_kept() -> None:
    """If a login leads to a neighbour, it could set our session by such a cookie."""
    held = RequestsCookieJar()
    for domain in (".co.uk", ".github.io", ".bank.co.uk"):
        held.set_cookie(create_cookie("s", "1", domain=domain))
    assert [kept.domain for kept in collected(held)] == ["bank.co.uk"]
