"""HTTP Digest: the examples of the RFC, and a real server."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection

import pytest
import requests

from greencrawl.schema.records import Fetched
from greencrawl.schema.records.auth import Digest
from greencrawl.worker.auth.base import Kind, LoginRefused, Verdict
from greencrawl.worker.auth.kinds.digest import DigestKind, answer, challenges, strongest
from greencrawl.worker.auth.kinds.registry import make
from tests.support.lighttpd import USERNAME, Lighttpd

# -- RFC 7616, section 3.9

ONE = (
    'realm="http-auth@example.org", qop="auth, auth-int", algorithm={algorithm}, '
    'nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", '
    'opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"'
)
CNONCE = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ"


@pytest.mark.parametrize(
    ("algorithm", "response"),
    [
        ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
        ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
    ],
)
def test_digest_answers_the_first_example_of_rfc_7616(algorithm: str, response: str) -> None:
    challenge = strongest("Digest " + ONE.format(algorithm=algorithm))
    assert challenge is not None
    sent = answer(challenge, "Mufasa", "Circle of Life", "GET", "/dir/index.html", CNONCE)
    assert sent == (
        'Digest username="Mufasa", realm="http-auth@example.org", '
        'nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", uri="/dir/index.html", '
        f'response="{response}", algorithm={algorithm}, qop=auth, nc=00000001, cnonce="{CNONCE}", '
        'opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"'
    )


def test_digest_hashes_the_user_name_in_the_second_example_of_rfc_7616() -> None:
    """The response is that of erratum 4897; the RFC prints one of another hash."""
    challenge = strongest(
        'Digest realm="api@example.org", qop="auth", algorithm=SHA-512-256, '
        'nonce="5TsQWLVdgBdmrQ0XsxbDODV+57QdFR34I9HAbC/RVvkK", '
        'opaque="HRPCssKJSGjCrkzDg8OhwpzCiGPChXYjwrI2QmXDnsOS", charset=UTF-8, userhash=true'
    )
    assert challenge is not None
    sent = answer(
        challenge,
        "J\u00e4s\u00f8n Doe",
        "Secret, or not?",
        "GET",
        "/doe.json",
        "NTg6RKcb9boFIAS3KrFK9BGeh+iDa/sm6jUMp2wds69v",
    )
    assert 'username="793263caabb707a56211940d90411ea4a575adeccb7e360aeb624ed06ece9b0b"' in sent
    assert 'response="3798d4131c277846293534c3edc11bd8a5e4cdcbff78b05db9d95eeb1cec68a5"' in sent
    assert "userhash=true" in sent


def test_digest_answers_the_examples_of_rfc_2617_and_2069() -> None:
    header = (
        'Digest realm="testrealm@host.com", {qop}nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093", '
        'opaque="5ccc069c403ebaf9f0171e9517f40e41"'
    )
    new, old = (
        strongest(header.format(qop='qop="auth,auth-int", ')),
        strongest(header.format(qop="")),
    )
    assert new is not None
    assert old is not None
    given = ("Mufasa", "Circle Of Life", "GET", "/dir/index.html", "0a4f113b")
    assert 'response="6629fae49393a05397450978507c4ef1"' in answer(new, *given)
    sent = answer(old, *given)
    assert 'response="670fd8c2df070c60b045671b8b24ff02"' in sent
    assert "cnonce" not in sent
    assert "algorithm" not in sent


def test_nonce_count_rises_with_each_request() -> None:
    challenge = strongest('Digest realm="r", qop="auth", nonce="n"')
    assert challenge is not None
    sent = [answer(challenge, "u", "p", "GET", "/") for _ in range(3)]
    assert ["nc=00000001" in sent[0], "nc=00000002" in sent[1], "nc=00000003" in sent[2]] == [
        True
    ] * 3
    assert len({text.split("cnonce=")[1] for text in sent}) == 3


def test_user_names_beyond_ascii_are_sent_in_the_form_that_the_server_expects() -> None:
    header = 'Digest realm="r", qop="auth", nonce="n"'
    utf8, plain = strongest(f"{header}, charset=UTF-8"), strongest(header)
    assert utf8 is not None
    assert plain is not None
    assert "username*=UTF-8''J%C3%A4s%C3%B8n%20Doe, " in answer(utf8, "Jäsøn Doe", "p", "GET", "/")
    sent = answer(plain, "Jäsøn", "p", "GET", "/").encode("latin-1")
    assert sent.startswith(b'Digest username="J\xc3\xa4s\xc3\xb8n", ')


def test_quotes_are_escaped() -> None:
    challenge = strongest(r'Digest realm="a \"b\" \\c", nonce="n"')
    assert challenge is not None
    assert challenge.realm == 'a "b" \\c'
    assert r'username="u\"\\", realm="a \"b\" \\c"' in answer(challenge, 'u"\\', "p", "GET", "/")


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ('Digest realm="r", nonce="n", algorithm=MD5, Digest realm="r", nonce="m", '
         'algorithm=SHA-256', "m"),
        ('Digest realm="r", nonce="n", algorithm=SHA-256, Digest realm="r", nonce="m"', "n"),
        ('Basic realm="r, nonce=x", Digest realm="r", nonce="n"', "n"),
        ('Negotiate, NTLM TlRMTVNTUAA=, Digest realm="r",nonce="n"', "n"),
        ('DIGEST REALM="r" , NONCE = n', "n"),
        ('Digest realm="r", nonce="n", algorithm=MD5-sess, qop="auth"', "n"),
        ('Digest realm="r", nonce="n", algorithm=SHA3', None),
        ('Digest realm="r", nonce="n", qop="auth-int"', None),
        ('Digest realm="r"', None),
        ('Basic realm="r"', None),
        ("", None),
        ("Digest", None),
        ('Digest realm="r', None),
    ],
)  # fmt: skip
def test_strongest_challenge_that_can_be_answered_is_chosen(header: str, found: str | None) -> None:
    challenge = strongest(header)
    assert (challenge and challenge.nonce) == found


@pytest.mark.parametrize("filling", [" ", ",", " ,", '"', "\\", "a ", "a= ", 'a="', "=", "a=b "])
def test_hostile_header_is_read_in_linear_work(filling: str) -> None:
    """Quadratic work would take minutes here; sessions allow only 64 KiB of headers."""
    for header in (f"Digest {filling * 60_000}", f"Digest a{filling * 60_000}=", filling * 60_000):
        list(challenges(header[:200_000]))


# -- verdicts


def kind(username: str = "user", password: str = "geheim") -> DigestKind:
    entry = Digest(name="d", hosts=("a.example",))
    made = make(entry, {"username": username, "password": password})
    assert isinstance(made, DigestKind)
    return made


URL = "https://a.example/x?y=1"


def challenged(nonce: str, url: str = URL, more: str = "", realm: str = "r") -> Fetched:
    value = f'Digest realm="{realm}", qop="auth", nonce="{nonce}"{more}'
    return Fetched(url, 401, {"www-authenticate": value}, b"")


def asked(given: DigestKind, url: str = URL) -> str:
    return given.prove(url, {}, None)[1].get("Authorization", "")


def test_later_requests_use_the_challenge_that_the_first_request_received() -> None:
    given = kind()
    assert asked(given) == ""
    assert given.judge(challenged("n"), None) == "again"
    assert 'nonce="n"' in asked(given)
    assert 'uri="/x?y=1"' in asked(given)
    assert given.judge(Fetched(URL, 200, {}, b""), None) == "in"
    assert 'nonce="n"' in asked(given, "https://a.example/other")


def test_verdict_is_out_after_the_second_challenge_if_the_password_is_wrong() -> None:
    given = kind()
    asked(given)
    assert given.judge(challenged("1"), None) == "again"
    asked(given)
    assert given.judge(challenged("2"), None) == "out"
    verdicts = []
    for number in range(3, 9):
        asked(given)
        verdicts.append(given.judge(challenged(str(number)), None))
    assert verdicts == ["again", "out"] * 3, "an old nonce may have been the matter, each time"


def test_verdict_is_out_if_each_new_nonce_is_stale_too() -> None:
    given = kind()
    verdicts = []
    for number in range(6):
        asked(given)
        verdicts.append(given.judge(challenged(str(number), more=", stale=TRUE"), None))
    assert verdicts == ["again", "again", "out"] * 2


def test_another_realm_of_the_origin_gets_its_own_answer() -> None:
    given = kind()
    asked(given)
    given.judge(challenged("n"), None)
    asked(given)
    given.judge(Fetched(URL, 200, {}, b""), None)
    asked(given, "https://a.example/b/")
    assert given.judge(challenged("m", "https://a.example/b/", realm="b"), None) == "again"
    assert 'realm="b"' in asked(given, "https://a.example/b/")


def test_older_challenge_does_not_overwrite_the_challenge_of_another_request() -> None:
    given = kind()
    first, second = "https://a.example/1", "https://a.example/2"
    asked(given, first)
    asked(given, second)
    assert given.judge(challenged("new", first), None) == "again"
    asked(given, first)
    assert given.judge(challenged("late", second), None) == "again"
    assert 'nonce="new"' in asked(given, second)


def test_next_nonce_is_taken_from_the_answer() -> None:
    given = kind()
    asked(given)
    given.judge(challenged("n"), None)
    asked(given)
    info = {"authentication-info": 'rspauth="x", nextnonce="m"'}
    assert given.judge(Fetched(URL, 200, info, b""), None) == "in"
    assert 'nonce="m"' in asked(given)


def test_verdict_is_out_if_a_refusal_has_no_digest_challenge() -> None:
    given = kind()
    asked(given)
    assert (
        given.judge(Fetched(URL, 401, {"www-authenticate": 'Basic realm="r"'}, b""), None) == "out"
    )
    assert given.judge(Fetched(URL, 401, {}, b""), None) == "out"


def test_other_origins_get_no_credentials_and_their_challenges_are_ignored() -> None:
    given = kind()
    for url in ("http://a.example/", "https://b.example/"):
        assert asked(given, url) == ""
        assert given.judge(challenged("n", url), None) == "in"
        assert asked(given, url) == ""


def test_requests_without_an_answer_are_forgotten() -> None:
    given = kind()
    for number in range(10_100):
        asked(given, f"https://a.example/{number}")
    assert len(given._under_way) <= 10_000


def test_secrets_are_checked_and_not_shown() -> None:
    with pytest.raises(LoginRefused) as caught:
        kind(password="geheim\n")
    assert "geheim" not in str(caught.value)
    assert "geheim" not in repr(kind())


# -- a real server


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lighttpd]:
    with Lighttpd(tmp_path_factory.mktemp("lighttpd") / "archive") as archive:
        yield archive


def visits(given: Kind, urls: list[str]) -> list[tuple[Verdict, int]]:
    """Ask for each URL as the authenticator does: once more after a challenge."""
    found = []
    for url in urls:
        for _ in range(2):
            target, headers = given.prove(url, {}, None)
            # The download sends the header like this; requests would encode it by itself.
            raw = {name: value.encode("latin-1") for name, value in headers.items()}
            got = requests.get(target, headers=raw, timeout=10)
            names = {name.lower(): value for name, value in got.headers.items()}
            verdict = given.judge(Fetched(url, got.status_code, names, got.content), None)
            found.append((verdict, got.status_code))
            if verdict != "again":
                break
    return found


@pytest.mark.parametrize("algorithm", ["MD5", "SHA-256"])
def test_real_server_accepts_the_digest_before_and_after_its_nonces_expire(
    archive: Lighttpd, algorithm: str
) -> None:
    origin = archive.url(algorithm).rstrip("/")
    secrets = {"username": USERNAME, "password": archive.password}
    given = make(Digest(name="d", hosts=(origin,)), secrets)
    pages = [f"{origin}/{number}.html?a=b,c" for number in range(1, 4)]
    assert visits(given, pages) == [("again", 401), *[("in", 200)] * 3]
    archive.let_nonces_age()
    assert visits(given, pages) == [("again", 401), *[("in", 200)] * 3]
    archive.stop()
    used = archive.digests(algorithm)[-7:]
    archive.start()
    assert [one["nc"] for one in used] == [f"{count:08x}" for count in (1, 2, 3, 4, 1, 2, 3)]
    assert len({one["nonce"] for one in used}) == 2


@pytest.mark.parametrize("algorithm", ["MD5", "SHA-256"])
def test_real_server_keeps_a_wrong_password_out(archive: Lighttpd, algorithm: str) -> None:
    origin = archive.url(algorithm).rstrip("/")
    given = make(Digest(name="d", hosts=(origin,)), {"username": USERNAME, "password": "falsch"})
    assert visits(given, [f"{origin}/1.html"]) == [("again", 401), ("out", 401)]


@pytest.mark.parametrize(
    ("target", "status"), [("/1.html?", 200), ("//1.html", 200), ("/1.html;a=b?c=d;e", 404)]
)
def test_real_server_accepts_the_digest_for_any_target_as_it_was_requested(
    archive: Lighttpd, target: str, status: int
) -> None:
    """A digest of another spelling is refused even if the password is right: the server computes
    with the target that was sent."""
    origin = archive.url("SHA-256").rstrip("/")
    secrets = {"username": USERNAME, "password": archive.password}
    given = make(Digest(name="d", hosts=(origin,)), secrets)
    assert isinstance(given, DigestKind)
    assert given.judge(Fetched(f"{origin}/", *refused(origin)), None) == "again"
    headers = given.prove(origin + target, {}, None)[1]
    assert raw_status(origin, target, headers["Authorization"]) == status


def refused(origin: str) -> tuple[int, dict[str, str], bytes]:
    """Return the server's challenge."""
    got = requests.get(origin, timeout=10)
    return got.status_code, {name.lower(): value for name, value in got.headers.items()}, b""


def raw_status(origin: str, target: str, authorization: str) -> int:
    """Return the status of a request for ``target`` as it is; requests would change it."""
    connection = HTTPConnection(origin.partition("://")[2], timeout=10)
    try:
        connection.request("GET", target, headers={"Authorization": authorization})
        return connection.getresponse().status
    finally:
        connection.close()
