"""Basic authentication: the credentials go to their origin only and are never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from greencrawl.schema.errors import InvalidConfig
from greencrawl.worker.auth.kinds.basic import Basic, load

SECRET = "correct horse"


def test_basic_sends_the_header_of_rfc_7617() -> None:
    basic = Basic({"http://a.example": ("Aladdin", "open sesame")})
    assert basic.headers("http://a.example/x?y") == {
        "Authorization": "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
    }
    utf8 = Basic({"http://a.example": ("test", "123£")})
    assert utf8.headers("http://a.example/") == {"Authorization": "Basic dGVzdDoxMjPCow=="}


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example/",
        "https://a.example:8443/",
        "https://www.a.example/",
        "https://a.example.evil.example/",
        "https://evil.example/?https://a.example/",
    ],
)
def test_credentials_go_to_no_other_origin(url: str) -> None:
    basic = Basic({"https://a.example": ("user", SECRET)})
    assert basic.headers("https://a.example/page")
    assert basic.headers(url) == {}


def test_origin_is_compared_in_its_canonical_form() -> None:
    basic = Basic({"HTTPS://A.example:443": ("user", SECRET)})
    assert basic.headers("https://a.example/")


@pytest.mark.parametrize(
    ("origin", "username", "password"),
    [
        ("https://a.example/path", "user", SECRET),
        ("https://other@a.example", "user", SECRET),
        ("ftp://a.example", "user", SECRET),
        ("a.example", "user", SECRET),
        ("https://a.example", "us:er", SECRET),
        ("https://a.example", "user", SECRET + "\r\nX: 1"),
    ],
)
def test_wrong_credentials_are_refused_without_showing_them(
    origin: str, username: str, password: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        Basic({origin: (username, password)})
    assert SECRET not in str(caught.value)
    assert origin in str(caught.value)


def test_repr_of_basic_credentials_shows_only_their_origins() -> None:
    basic = Basic({"https://a.example": ("user", SECRET)})
    assert repr(basic) == "Basic(https://a.example)"


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


GOOD = f'["https://a.example"]\nusername = "user"\npassword = "{SECRET}"\n'


def test_file_of_credentials_is_read(tmp_path: Path) -> None:
    assert load(write(tmp_path / "auth.toml", GOOD)).headers("https://a.example/")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_credentials_file_is_refused_if_others_may_use_it(tmp_path: Path, mode: int) -> None:
    with pytest.raises(InvalidConfig, match="owner only"):
        load(write(tmp_path / "auth.toml", GOOD, mode))


@pytest.mark.parametrize(
    "text",
    [
        f'password = "{SECRET}',
        f'["https://a.example"]\npassword = "{SECRET}"\n',
        f'["https://a.example"]\nusername = 5\npassword = "{SECRET}"\n',
        GOOD + 'realm = "x"\n',
        f'"https://a.example" = "{SECRET}"\n',
    ],
)
def test_malformed_file_is_refused_without_showing_its_secrets(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load(write(tmp_path / "auth.toml", text))
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_missing_credentials_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"auth\.toml"):
        load(tmp_path / "auth.toml")
