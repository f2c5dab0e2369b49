"""Secrets of entries: found by name, read again, and never shown."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pytest

from greencrawl.schema import settings
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.records import auth
from greencrawl.worker.auth.kinds.basic import load
from greencrawl.worker.auth.state.secrets import Secrets, needed

SECRET = "correct horse"
HOSTS = ("example.org",)
FORM = auth.Form(name="shop", hosts=HOSTS, login_url="https://example.org/login")
BEARER = auth.Bearer(name="api", hosts=HOSTS)
OAUTH1 = auth.OAuth1(name="tw", hosts=HOSTS)
CLIENT = auth.OAuth2(name="app", hosts=HOSTS)
CODE = auth.OAuth2(name="app", hosts=HOSTS, grant="code")


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "credentials.toml"


def test_the_environment_wins_over_the_file_field_by_field(file: Path) -> None:
    write(file, f'[shop]\nusername = "ann"\npassword = "old"\n["https://a.example"]\n'
          f'username = "x"\npassword = "{SECRET}"\n')  # fmt: skip
    found = Secrets(file, {"GREENCRAWL_AUTH_SHOP_PASSWORD": SECRET}).of(FORM)
    assert dict(found) == {"username": "ann", "password": SECRET}
    assert dict(Secrets(file, {}).of(FORM)) == {"username": "ann", "password": "old"}
    assert list(load(file).headers("https://a.example/")) == ["Authorization"]


def test_an_entry_name_with_underscores_is_not_taken_for_a_field_of_another_entry(
    file: Path,
) -> None:
    environ = {
        "GREENCRAWL_AUTH_API_TOKEN": "short",
        "GREENCRAWL_AUTH_API_TOKEN_SECRET": "not the token",
        "GREENCRAWL_AUTH_API_V2_TOKEN": "another",
    }
    assert Secrets(file, environ).of(BEARER)["token"] == "short"
    v2 = auth.Bearer(name="api_v2", hosts=HOSTS)
    assert dict(Secrets(file, environ).of(v2)) == {"token": "another"}
    assert settings.load(environ)


@pytest.mark.parametrize(
    ("entry", "fields"),
    [
        (FORM, ("USERNAME", "PASSWORD")),
        (auth.Basic(name="b", hosts=HOSTS), ("USERNAME", "PASSWORD")),
        (auth.Digest(name="d", hosts=HOSTS), ("USERNAME", "PASSWORD")),
        (auth.Own(name="o", hosts=HOSTS, login="m:C"), ("USERNAME", "PASSWORD")),
        (BEARER, ("TOKEN",)),
        (OAUTH1, ("CLIENT_KEY", "CLIENT_SECRET")),
        (CLIENT, ("CLIENT_ID", "CLIENT_SECRET")),
        (CODE, ("CLIENT_ID",)),
    ],
)
def test_an_error_names_the_variable_and_the_file_of_each_missing_secret(
    file: Path, entry: auth.Auth, fields: tuple[str, ...]
) -> None:
    assert tuple(field.upper() for field in needed(entry)) == fields
    with pytest.raises(InvalidConfig) as caught:
        Secrets(file, {}).of(entry)
    variables = [f"GREENCRAWL_AUTH_{entry.name.upper()}_{field}" for field in fields]
    assert [field for field, _ in caught.value.problems] == variables
    assert str(file) in str(caught.value)
    assert f"[{entry.name}]" in str(caught.value)
    whole = dict.fromkeys(variables, "x")
    assert len(Secrets(file, whole).of(entry)) == len(fields)


def test_a_token_without_its_secret_is_refused(file: Path) -> None:
    environ = {f"GREENCRAWL_AUTH_TW_{field}": "x" for field in ("CLIENT_KEY", "CLIENT_SECRET")}
    assert Secrets(file, environ).of(OAUTH1)
    environ["GREENCRAWL_AUTH_TW_TOKEN"] = "x"
    with pytest.raises(InvalidConfig, match="GREENCRAWL_AUTH_TW_TOKEN_SECRET"):
        Secrets(file, environ).of(OAUTH1)


def test_a_corrected_password_is_read_and_changes_the_digest(file: Path) -> None:
    found = Secrets(file, {})
    write(file, '[shop]\nusername = "ann"\npassword = "old"\n')
    before = found.digest(FORM)
    assert found.digest(FORM) == Secrets(file, {}).digest(FORM) == before
    write(file, f'[shop]\nusername = "ann"\npassword = "{SECRET}"\n')
    assert found.of(FORM)["password"] == SECRET
    assert found.digest(FORM) != before
    file.unlink()
    assert found.digest(FORM) not in ("", before)


def test_repr_and_digest_of_secrets_show_no_secret(file: Path) -> None:
    write(file, f'[shop]\nusername = "ann"\npassword = "{SECRET}"\n')
    secrets = Secrets(file, {"GREENCRAWL_AUTH_SHOP_TOKEN": SECRET})
    found = secrets.of(FORM)
    assert repr(found) == str(found) == "EntrySecrets(shop: username, password, token)"
    with pytest.raises(TypeError):
        json.dumps(found)
    assert SECRET not in repr(secrets)
    assert SECRET not in secrets.digest(FORM)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_credentials_file_is_refused_if_others_may_use_it(file: Path, mode: int) -> None:
    write(file, '[shop]\nusername = "ann"\npassword = "x"\n', mode)
    with pytest.raises(InvalidConfig, match="chmod 600"):
        Secrets(file, {}).of(FORM)
    with pytest.raises(InvalidConfig, match="chmod 600"):
        Secrets(file, {}).digest(FORM)


@pytest.mark.parametrize(
    "text",
    [
        f'[shop]\npassword = "{SECRET}\n',
        f'[shop]\npasswort = "{SECRET}"\n',
        f'[shop]\nusername = 5\npassword = "{SECRET}"\n',
        f'[Shop]\npassword = "{SECRET}"\n',
        f'["shop.example"]\npassword = "{SECRET}"\n',
        f'shop = "{SECRET}"\n',
        f'[shop]\npassword = "{SECRET}\\n"\n',
        f'[shop]\npassword = ""\ntoken = "{SECRET}"\n',
        f'[shop.more]\npassword = "{SECRET}"\n',
        f'["https://a.example"]\npassword = ["{SECRET}"]\n',
    ],
)
def test_a_malformed_file_is_refused_without_showing_its_secrets(file: Path, text: str) -> None:
    write(file, text)
    with pytest.raises(InvalidConfig) as caught:
        Secrets(file, {}).of(FORM)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("value", [SECRET + "\n", SECRET + "\r", "\udce9" + SECRET])
def test_an_error_names_a_malformed_variable_and_hides_its_value(file: Path, value: str) -> None:
    with pytest.raises(InvalidConfig, match="GREENCRAWL_AUTH_API_TOKEN") as caught:
        Secrets(file, {"GREENCRAWL_AUTH_API_TOKEN": value}).of(BEARER)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_dangling_link_to_the_credentials_file_is_an_error(file: Path) -> None:
    file.symlink_to(file.parent / "gone")
    with pytest.raises(InvalidConfig, match="No such file"):
        Secrets(file, {}).of(FORM)


def test_an_unknown_variable_of_an_entry_is_refused_and_its_value_is_not_shown() -> None:
    environ = {
        "GREENCRAWL_AUTH_SHOP_PASSWORT": SECRET,
        "GREENCRAWL_AUTH_PASSWORD": SECRET,
        "GREENCRAWL_AUTH_1_PASSWORD": SECRET,
        "GREENCRAWL_AUTH_SHOP_PASSWORD": SECRET,
    }
    with pytest.raises(InvalidConfig) as caught:
        settings.load(environ)
    assert {field for field, _ in caught.value.problems} == set(environ) - {
        "GREENCRAWL_AUTH_SHOP_PASSWORD"
    }
    assert "CLIENT_SECRET" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_an_unknown_field_of_the_file_is_named_and_its_value_is_not_shown(file: Path) -> None:
    write(file, f'[shop]\nusername = "ann"\npasswort = "{SECRET}"\n')
    with pytest.raises(InvalidConfig) as caught:
        Secrets(file, {"GREENCRAWL_AUTH_SHOP_PASSWORD": SECRET}).of(FORM)
    assert [field for field, _ in caught.value.problems] == ["[shop] passwort"]
    assert SECRET not in str(caught.value)


def test_a_short_session_key_is_refused_and_no_session_key_is_shown(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="at least 32 characters") as caught:
        settings.load({"GREENCRAWL_SESSION_KEY": SECRET})
    assert SECRET not in str(caught.value)
    assert "openssl rand" in str(caught.value)
    loaded = settings.load({"GREENCRAWL_SESSION_KEY": SECRET * 3, "GREENCRAWL_DATA": str(tmp_path)})
    assert SECRET not in str(settings.masked(loaded))
    assert loaded.credentials_file == tmp_path / "credentials.toml"
    other = settings.load({"GREENCRAWL_CREDENTIALS": f"{tmp_path}/own.toml"})
    assert other.credentials_file == tmp_path / "own.toml"
