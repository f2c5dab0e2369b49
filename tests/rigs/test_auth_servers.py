"""The servers of the acceptance tests of authentication, driven by plain requests."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from requests.auth import HTTPDigestAuth
from requests_oauthlib import OAuth1Session

from tests.support import lighttpd
from tests.support.django_site.rig import EXPIRE, USERNAME, DjangoSite
from tests.support.lighttpd import REALM, Lighttpd
from tests.support.oauth1_site import OAuth1Site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DjangoSite]:
    folder = tmp_path_factory.mktemp("django") / "site"
    with DjangoSite(folder, addresses=("127.0.0.1", "127.0.0.2")) as site:
        yield site


def csrf(answer: requests.Response) -> str:
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', answer.text)
    assert found is not None
    return found[1]


def admin(site: DjangoSite) -> requests.Session:
    session = requests.Session()
    url = site.url("/admin/login/?next=/admin/")
    form = {
        "csrfmiddlewaretoken": csrf(session.get(url)),
        "username": USERNAME,
        "password": site.password,
        "next": "/admin/",
    }
    answer = session.post(url, form)
    assert answer.url == site.url("/admin/")
    return session


def test_the_admin_pages_require_a_login_with_a_form_token(site: DjangoSite) -> None:
    url = site.url("/admin/django_site/article/7/change/")
    assert requests.get(url).url.startswith(site.url("/admin/login/"))
    assert requests.post(site.url("/admin/login/"), {"username": USERNAME}).status_code == 403
    page = admin(site).get(url)
    assert page.status_code == 200
    assert "Only for members: text 7." in page.text
    asked = site.log()[-1]
    assert (asked.user, asked.asks_password, asked.status) == (USERNAME, False, 200)
    assert asked.session in site.secrets()


def test_a_killed_web_session_is_sent_to_the_login_page(site: DjangoSite) -> None:
    session = admin(site)
    before = len(site.logins())
    assert site.kill_sessions() >= 1
    answer = session.get(site.url("/admin/django_site/article/"))
    assert answer.url.startswith(site.url("/admin/login/"))
    assert 'type="password"' in answer.text
    assert len(site.logins()) == before


def test_members_pages_answer_strangers_with_status_200_and_a_login_form(site: DjangoSite) -> None:
    session = requests.Session()
    page = session.get(site.url("/members/3"))
    assert (page.status_code, 'type="password"' in page.text) == (200, True)
    form = {
        "csrfmiddlewaretoken": csrf(page),
        "came": "from the form",
        "next": "/members/3",
        "account": USERNAME,
        "secret": "wrong",
    }
    assert "wrong" in session.post(site.url("/members/login"), form).text
    page = session.post(site.url("/members/login"), form | {"secret": site.password})
    assert (page.url, "text 3." in page.text) == (site.url("/members/3"), True)
    session.get(site.url("/members/logout"))
    assert 'type="password"' in session.get(site.url("/members/3")).text


def test_client_credentials_open_the_api_and_its_list_has_an_end(site: DjangoSite) -> None:
    assert requests.get(site.url("/api/list")).status_code == 401
    answer = requests.post(
        site.url("/o/token/"),
        {"grant_type": "client_credentials"},
        auth=(site.machine_id, site.machine_secret),
    )
    token = answer.json()["access_token"]
    headers = {"Authorization": f"Bearer {token}"}
    items, cursor = [], "0"
    while cursor:
        page = requests.get(
            site.url("/api/list", "127.0.0.2"), {"cursor": cursor}, headers=headers
        ).json()
        items += [one["href"] for one in page["data"]]
        cursor = page["meta"]["next"]
    assert items == [f"/api/items/{n}" for n in range(1, site.articles + 1)]
    one = requests.get(site.url(items[-1]), headers=headers)
    assert one.json()["title"] == f"Article {site.articles}"
    assert [asked.status for asked in site.tokens("client_credentials")] == [200]
    assert token in site.secrets()


def code_tokens(site: DjangoSite) -> dict[str, str]:
    """Get tokens by the authorization code flow with PKCE, with a person's consent."""
    session = admin(site)
    verifier = "v" * 64
    digest = hashlib.sha256(verifier.encode()).digest()
    redirect = "http://127.0.0.1:54321/callback"  # any port, as RFC 8252 says
    query = {
        "response_type": "code",
        "client_id": site.person_id,
        "redirect_uri": redirect,
        "scope": "read",
        "state": "abc",
        "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
        "code_challenge_method": "S256",
    }
    page = session.get(site.url("/o/authorize/"), params=query)
    inputs = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page.text))
    answer = session.post(page.url, {**inputs, "allow": "Authorize"}, allow_redirects=False)
    found = parse_qs(urlsplit(answer.headers["Location"]).query)
    assert found["state"] == ["abc"]
    form = {
        "grant_type": "authorization_code",
        "code": found["code"][0],
        "redirect_uri": redirect,
        "code_verifier": verifier,
    }
    wrong = requests.post(
        site.url("/o/token/"),
        form | {"code_verifier": "w" * 64},
        auth=(site.person_id, site.person_secret),
    )
    assert wrong.json()["error"] == "invalid_grant"
    answer = requests.post(site.url("/o/token/"), form, auth=(site.person_id, site.person_secret))
    tokens: dict[str, str] = answer.json()
    return tokens


def refreshed(site: DjangoSite, token: str) -> requests.Response:
    return requests.post(
        site.url("/o/token/"),
        {"grant_type": "refresh_token", "refresh_token": token},
        auth=(site.person_id, site.person_secret),
    )


def test_a_refresh_token_is_valid_only_once(site: DjangoSite) -> None:
    first = code_tokens(site)
    second = refreshed(site, first["refresh_token"]).json()
    assert second["access_token"] != first["access_token"]
    assert refreshed(site, first["refresh_token"]).json()["error"] == "invalid_grant"
    # Its second use showed that it was stolen: the whole family becomes invalid.
    assert refreshed(site, second["refresh_token"]).json()["error"] == "invalid_grant"


def test_the_gate_holds_requests_until_all_have_arrived_and_then_refuses_their_token(
    site: DjangoSite,
) -> None:
    token = code_tokens(site)["access_token"]
    headers = {"Authorization": f"Bearer {token}"}
    assert requests.get(site.url("/api/items/1"), headers=headers).status_code == 200
    count = 100
    site.hold("/api/", count, EXPIRE)
    with ThreadPoolExecutor(count) as pool:
        answers = list(
            pool.map(
                lambda n: requests.get(site.url(f"/api/items/{n}"), headers=headers).status_code,
                range(1, count + 1),
            )
        )
    assert answers == [401] * count
    assert site.held
    assert max(one.at_once for one in site.log()) == count
    assert requests.get(site.url("/api/items/1"), headers=headers).status_code == 401


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lighttpd]:
    with Lighttpd(tmp_path_factory.mktemp("lighttpd") / "archive") as archive:
        yield archive


def test_basic_authentication_accepts_the_password_in_utf8(archive: Lighttpd) -> None:
    url = archive.url("basic", "/3.html")
    challenge = requests.get(url)
    assert challenge.status_code == 401
    assert challenge.headers["WWW-Authenticate"].startswith(f'Basic realm="{REALM}"')
    pair = f"{lighttpd.USERNAME}:{archive.password}".encode()
    headers = {"Authorization": "Basic " + base64.b64encode(pair).decode()}
    assert "File 3" in requests.get(url, headers=headers).text
    archive.stop()
    assert archive.answers("basic")[-2:] == [("/3.html", 401, ""), ("/3.html", 200, "reader")]
    archive.start()


@pytest.mark.parametrize("algorithm", ["MD5", "SHA-256"])
def test_digest_authentication_uses_its_algorithm_and_replaces_a_stale_nonce(
    archive: Lighttpd, algorithm: str
) -> None:
    url = archive.url(algorithm, "/")
    auth = HTTPDigestAuth(lighttpd.USERNAME, archive.password)
    session = requests.Session()
    session.auth = auth
    statuses = [session.get(archive.url(algorithm, f"/{n}.html")).status_code for n in (1, 2, 3)]
    assert statuses == [200, 200, 200]
    archive.stop()
    assert [status for _, status, _ in archive.answers(algorithm)] == [401, 200, 200, 200]
    used = archive.digests(algorithm)
    assert [one["nc"] for one in used] == ["00000001", "00000002", "00000003"]
    assert {one["qop"] for one in used} == {"auth"}
    assert len({one["nonce"] for one in used}) == 1, used
    archive.start()
    archive.let_nonces_age()
    header = session.get(url).history[0].headers["WWW-Authenticate"]
    assert f"algorithm={algorithm}" in header
    assert "stale=true" in header
    wrong = requests.get(url, auth=HTTPDigestAuth(lighttpd.USERNAME, "wrong"))
    assert wrong.status_code == 401


def test_oauth1_accepts_each_signature_only_once() -> None:
    with OAuth1Site(pages=3) as site:
        assert requests.get(site.url("/")).status_code == 401
        session = OAuth1Session(site.client_key, site.client_secret, site.token, site.token_secret)
        assert site.page(2).replace("&", "&amp;") in session.get(site.url("/")).text
        assert "Signed 2" in session.get(site.url(site.page(2))).text
        used = {"Authorization": site.asked[-1].authorization}
        assert requests.get(site.url(site.page(2)), headers=used).status_code == 401
        assert requests.get(site.url(site.page(3)), headers=used).status_code == 401
        wrong = OAuth1Session(site.client_key, site.client_secret, site.token, "wrong")
        assert wrong.get(site.url("/")).status_code == 401
        site.revoke()
        assert session.get(site.url("/")).status_code == 401
        assert [one.status for one in site.asked] == [401, 200, 200, 401, 401, 401, 401]


def test_oauth1_gives_a_token_in_three_legs() -> None:
    with OAuth1Site(pages=3) as site:
        session = OAuth1Session(site.client_key, site.client_secret, callback_uri="oob")
        session.fetch_request_token(site.url("/request_token"))
        url = session.authorization_url(site.url("/authorize"))
        assert "<form" in requests.get(url).text
        verifier = requests.post(url).text
        got = session.fetch_access_token(site.url("/access_token"), verifier=verifier)
        assert {got["oauth_token"], got["oauth_token_secret"]} <= site.secrets()
        assert "Signed 1" in session.get(site.url("/p/1")).text
