"""HTTP Basic (RFC 7617), with the credentials in a file that only its owner may read.

The file is TOML, with one table for each origin::

    ["https://intranet.example.org"]
    username = "crawler"
    password = "…"

Other tables of the file have the secrets of entries (``greencrawl.worker.auth.state.secrets``).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from greencrawl.schema.errors import InvalidConfig, InvalidUrl
from greencrawl.schema.net.origins import Origins
from greencrawl.schema.net.urls import canonicalise, origin_of
from greencrawl.schema.records import Fetched, auth
from greencrawl.worker.auth.base import Grant, LoginRefused, Verdict
from greencrawl.worker.auth.state.secrets import tables_of

if TYPE_CHECKING:
    import requests


class Basic:
    """Sends each origin its own user name and password, and nothing to any other.

    ``credentials`` maps an origin (``https://example.org``, with a port unless it is the scheme's)
    to (user name, password). Raises InvalidConfig if an origin or its credentials are invalid; no
    message and no ``repr`` shows a secret.
    """

    def __init__(self, credentials: Mapping[str, tuple[str, str]]) -> None:
        problems = []
        self._headers: dict[str, str] = {}
        for origin, (username, password) in credentials.items():
            problem = _problem(origin, username, password)
            if problem:
                problems.append((origin, problem))
                continue
            self._headers[origin_of(canonicalise(origin))] = _header(username, password)
        if problems:
            raise InvalidConfig(problems)

    def __repr__(self) -> str:
        return f"Basic({', '.join(sorted(self._headers))})"

    def headers(self, url: str) -> dict[str, str]:
        """Return ``Authorization`` if the origin of the canonical ``url`` has credentials."""
        value = self._headers.get(origin_of(url))
        return {} if value is None else {"Authorization": value}


class BasicKind:
    """HTTP Basic for the origins of a crawl's entry. Secrets: username, password.

    Raises LoginRefused for a name or a password that cannot be sent in this way.
    """

    logs_in = False

    def __init__(self, entry: auth.Basic, secrets: Mapping[str, str]) -> None:
        self.entry = entry
        self.account = secrets["username"]
        wrong = _unsendable(self.account, secrets["password"])
        if wrong:
            raise LoginRefused(wrong)
        self._origins = Origins(entry.hosts)
        self._header = _header(self.account, secrets["password"])

    def __repr__(self) -> str:
        return f"BasicKind({self.entry.name})"

    def log_in(self, session: requests.Session, old: Grant | None) -> Grant:
        """Never called: the secrets authenticate each request."""
        raise NotImplementedError

    def prove(
        self, url: str, headers: Mapping[str, str], grant: Grant | None
    ) -> tuple[str, dict[str, str]]:
        """Add ``Authorization`` for the entry's origins."""
        if not self._origins.hold(url):
            return url, dict(headers)
        return url, {**headers, "Authorization": self._header}

    def judge(self, fetched: Fetched, grant: Grant | None) -> Verdict:
        """Return "out" if the site does not accept the name and the password."""
        return "out" if fetched.status == 401 else "in"


def load(path: Path) -> Basic:
    """Read the credentials of origins from a TOML file: see the module's docstring.

    Raises InvalidConfig when the file cannot be read, is not such a TOML, or may be read or written
    by others than its owner (``chmod 600`` helps).
    """
    tables = tables_of(path)
    return Basic({name: _pair(name, table) for name, table in tables.items() if "://" in name})


def _pair(origin: str, table: Mapping[str, str]) -> tuple[str, str]:
    if table.keys() == {"username", "password"}:
        return table["username"], table["password"]
    raise InvalidConfig([(origin, "needs username and password, and nothing else")])


def _problem(origin: str, username: str, password: str) -> str:
    """Say what is wrong with the credentials for an origin; "" if nothing is."""
    try:
        canonical = canonicalise(origin)
    except InvalidUrl as error:
        return error.reason
    if canonical != origin_of(canonical) + "/" or "@" in origin:
        return "is no origin: give scheme, host and port only"
    return _unsendable(username, password)


def _header(username: str, password: str) -> str:
    return f"Basic {b64encode(f'{username}:{password}'.encode()).decode()}"


def _unsendable(username: str, password: str) -> str:
    """Name the parts that RFC 7617, section 2, forbids; "" if there are none."""
    if ":" in username:
        return "a user name may not hold a colon"
    if any(ord(char) < 32 or ord(char) == 127 for char in username + password):
        return "control characters are not allowed in user name and password"
    return ""
