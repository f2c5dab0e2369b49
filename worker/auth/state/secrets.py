"""Secrets of a crawl's entries: passwords, keys and tokens, by the entry's name.

They are in the environment, or in ``credentials.toml`` in the data folder (the setting
``GREENCRAWL_CREDENTIALS`` names another file), which only its owner may read and write. For an
entry called ``shop``::

    GREENCRAWL_AUTH_SHOP_USERNAME=crawler
    GREENCRAWL_AUTH_SHOP_PASSWORD=…

or::

    [shop]
    username = "crawler"
    password = "…"

The environment wins, field by field. The file is read again each time: a person can correct a
password without a restart. In the same file a table that is named by an origin (``["https://…"]``)
is HTTP Basic for every crawl, see ``greencrawl.worker.auth.kinds.basic``.

Nothing here shows a secret: no message, no ``repr``, no cause of an exception.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.records import auth
from greencrawl.schema.records.auth import Auth
from greencrawl.schema.settings import AUTH_FIELDS, PREFIX

MAX_FILE_BYTES = 1024 * 1024

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_LOGIN = ("username", "password")
_NEEDED: Mapping[type[auth.Entry], tuple[str, ...]] = {
    auth.Basic: _LOGIN,
    auth.Digest: _LOGIN,
    auth.Form: _LOGIN,
    auth.Own: _LOGIN,
    auth.Bearer: ("token",),
    auth.OAuth1: ("client_key", "client_secret"),
    auth.OAuth2: ("client_id",),
}
_SCRYPT_N = 2**14


class EntrySecrets(Mapping[str, str]):
    """The secrets of one entry that are set, by field; its ``repr`` names only the fields."""

    def __init__(self, name: str, values: Mapping[str, str]) -> None:
        self._name = name
        self._values = dict(values)

    def __getitem__(self, field: str) -> str:
        return self._values[field]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"EntrySecrets({self._name}: {', '.join(self._values)})"


class Secrets:
    """The secrets of a host; ``environ`` is the process's own unless given."""

    def __init__(self, file: Path, environ: Mapping[str, str] | None = None) -> None:
        self._file = file
        self._environ = os.environ if environ is None else environ
        self._digests: dict[str, tuple[Mapping[str, str], str]] = {}

    def of(self, entry: Auth) -> EntrySecrets:
        """Return the entry's secrets as they are now.

        Raises InvalidConfig, which names the variable and the file of every field that is missing
        or invalid.
        """
        found = self._read(entry.name)
        problems = [
            (self._variable(entry.name, field), self._missing(entry.name, field))
            for field in needed(entry)
            if field not in found
        ]
        if isinstance(entry, auth.OAuth1) and ("token" in found) != ("token_secret" in found):
            field = "token_secret" if "token" in found else "token"
            problems.append((self._variable(entry.name, field), "belongs to the other: set both"))
        if problems:
            raise InvalidConfig(problems)
        return found

    def digest(self, entry: Auth) -> str:
        """Return a digest (scrypt) that changes with the entry's secrets and does not reveal them.

        It is kept beside the result of a login, and must not help to guess a weak password. Raises
        InvalidConfig when the file cannot be read.
        """
        values = dict(self._read(entry.name))
        values.pop("hosts", None)  # no secret: each login checks where the secrets may go
        known = self._digests.get(entry.name)
        if known is None or known[0] != values:
            text = "\0".join(f"{field}\0{values[field]}" for field in sorted(values))
            salt = f"greencrawl {entry.name}".encode()
            made = hashlib.scrypt(text.encode(), salt=salt, n=_SCRYPT_N, r=8, p=1, dklen=16).hex()
            known = self._digests[entry.name] = (values, made)
        return known[1]

    def _read(self, name: str) -> EntrySecrets:
        tables = tables_of(self._file) if os.path.lexists(self._file) else {}
        values: dict[str, str] = dict(tables.get(name, {}))
        for field in AUTH_FIELDS:
            variable = self._variable(name, field)
            text = self._environ.get(variable, "")
            if text:
                _check(variable, text)
                values[field] = text
        return EntrySecrets(name, values)

    def _missing(self, name: str, field: str) -> str:
        return (
            f'is not set: set it, or write `{field} = "…"` in table [{name}] of '
            f"{self._file}, a file that only its owner may read (chmod 600)"
        )

    @staticmethod
    def _variable(name: str, field: str) -> str:
        return f"{PREFIX}AUTH_{name.upper()}_{field.upper()}"


def needed(entry: Auth) -> tuple[str, ...]:
    """Return the fields that an entry needs."""
    fields = _NEEDED[type(entry)]
    if isinstance(entry, auth.OAuth2) and entry.grant == "client_credentials":
        return (*fields, "client_secret")
    return fields


def tables_of(file: Path) -> dict[str, dict[str, str]]:
    """Return all tables of a file of credentials, by the entry's name or the origin.

    Raises InvalidConfig when the file cannot be read, is not such a TOML, or may be read or written
    by others than its owner (``chmod 600`` helps).
    """
    tables = _toml(file)
    problems: list[tuple[str, str]] = []
    for name, table in tables.items():
        if not isinstance(table, dict) or not all(isinstance(v, str) for v in table.values()):
            problems.append((f"[{name}]", f"must be a table of texts, in {file}"))
        elif "://" not in name:
            problems += _problems(file, name, table)
    if problems:
        raise InvalidConfig(problems)
    return tables


def _problems(file: Path, name: str, table: Mapping[str, str]) -> list[tuple[str, str]]:
    if not _NAME.fullmatch(name):
        what = "is neither the name of an entry (a-z, 0-9, _) nor an origin (https://…)"
        return [(f"[{name}]", f"{what}, in {file}")]
    problems = []
    for field, value in table.items():
        where = f"[{name}] {field}"
        if field not in AUTH_FIELDS:
            problems.append((where, f"is unknown: one of {', '.join(AUTH_FIELDS)}, in {file}"))
        else:
            try:
                _check(where, value)
            except InvalidConfig as error:
                problems += [(at, f"{what}, in {file}") for at, what in error.problems]
    return problems


def _check(where: str, value: str) -> None:
    """Raise InvalidConfig for an empty value, and for characters that no secret has, such as a line
    break."""
    if not value:
        raise InvalidConfig([(where, "is empty")])
    if any(ord(char) < 32 or ord(char) == 127 for char in value):
        raise InvalidConfig([(where, "holds a control character, perhaps a line break at its end")])
    try:
        value.encode()
    except UnicodeEncodeError:  # the environment has other bytes; the cause would show them
        raise InvalidConfig([(where, "is not UTF-8")]) from None


def _toml(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            # This checks the open file, not the path, which could be exchanged in between.
            if stat.S_IMODE(os.fstat(opened.fileno()).st_mode) & 0o077:
                what = "holds passwords: allow it to its owner only (chmod 600)"
                raise InvalidConfig([(str(file), what)])
            data = opened.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise InvalidConfig([(str(file), f"is larger than {MAX_FILE_BYTES} bytes")])
        return tomllib.loads(data.decode())
    except OSError as error:
        raise InvalidConfig([(str(file), error.strerror or "cannot be read")]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        # The cause is left out: its message may quote a line with a password.
        raise InvalidConfig([(str(file), "is not valid TOML")]) from None
