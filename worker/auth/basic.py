"""HTTP Basic (RFC 7617), with the credentials in a file that only its owner may read.

The file is TOML, a table an origin::

    ["https://intranet.example.org"]
    username = "crawler"
    password = "…"

Its other tables are secrets of crawls' entries (``worker.auth.secrets``).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

from schema.errors import InvalidConfig, InvalidUrl
from schema.urls import canonicalise, origin_of
from worker.auth.secrets import tables_of


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
    """Read the credentials of origins from a TOML file: see the module's text.

    Raises InvalidConfig when the file cannot be read, is not such a TOML, or may be read or
    written by others than its owner (``chmod 600`` mends that).
    """
    tables = tables_of(path)
    return Basic({name: _pair(name, table) for name, table in tables.items() if "://" in name})


def _pair(origin: str, table: Mapping[str, str]) -> tuple[str, str]:
    if table.keys() == {"username", "password"}:
        return table["username"], table["password"]
    raise InvalidConfig([(origin, "needs username and password, and nothing else")])


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
