"""HTTP Basic (RFC 7617), with the credentials in a file that only its owner may read.

The file is TOML, a table an origin::

    ["https://intranet.example.org"]
    username = "crawler"
    password = "…"
"""

from __future__ import annotations

import os
import stat
import tomllib
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

from schema.errors import InvalidConfig, InvalidUrl
from schema.urls import canonicalise, origin_of


class Basic:
    """Sends each origin its own user name and password, and nothing to any other.

    ``credentials`` maps an origin (``https://example.org``, with a port unless it is the
    scheme's) to (user name, password). Raises InvalidConfig for a wrong one; no message and no
    ``repr`` shows a secret.
    """

    def __init__(self, credentials: Mapping[str, tuple[str, str]]) -> None:
        problems = []
        self._headers: dict[str, str] = {}
        for origin, (username, password) in credentials.items():
            problem = _problem(origin, username, password)
            if problem:
                problems.append((origin, problem))
                continue
            token = b64encode(f"{username}:{password}".encode()).decode()
            self._headers[origin_of(canonicalise(origin))] = f"Basic {token}"
        if problems:
            raise InvalidConfig(problems)

    def __repr__(self) -> str:
        return f"Basic({', '.join(sorted(self._headers))})"

    def headers(self, url: str) -> dict[str, str]:
        """``Authorization`` if the origin of the canonical ``url`` has credentials."""
        value = self._headers.get(origin_of(url))
        return {} if value is None else {"Authorization": value}


def load(path: Path) -> Basic:
    """Read credentials from a TOML file: see the module's text.

    Raises InvalidConfig when the file cannot be read, is not such a TOML, or may be read or
    written by others than its owner (``chmod 600`` mends that).
    """
    try:
        with path.open("rb") as file:
            # Asked of the open file, not of the path, which could be exchanged in between.
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise InvalidConfig([(str(path), "holds passwords: allow it to its owner only")])
            tables = tomllib.load(file)
    except OSError as error:
        raise InvalidConfig([(str(path), error.strerror or "cannot be read")]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        # Without its cause, whose message may quote a line with a password.
        raise InvalidConfig([(str(path), "is not valid TOML")]) from None
    return Basic({origin: _pair(origin, table) for origin, table in tables.items()})


def _pair(origin: str, table: object) -> tuple[str, str]:
    if isinstance(table, dict) and table.keys() == {"username", "password"}:
        username, password = table["username"], table["password"]
        if isinstance(username, str) and isinstance(password, str):
            return username, password
    raise InvalidConfig([(origin, "needs username and password, as strings, and nothing else")])


def _problem(origin: str, username: str, password: str) -> str:
    """What RFC 7617, section 2, or the idea of an origin forbids here; empty if nothing."""
    try:
        canonical = canonicalise(origin)
    except InvalidUrl as error:
        return error.reason
    if canonical != origin_of(canonical) + "/" or "@" in origin:
        return "is no origin: give scheme, host and port only"
    if ":" in username:
        return "a user name may not hold a colon"
    if any(ord(char) < 32 or ord(char) == 127 for char in username + password):
        return "control characters are not allowed in user name and password"
    return ""
