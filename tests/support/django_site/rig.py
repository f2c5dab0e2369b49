"""The rig of the Django site: it starts the site, reads its log, and ends sessions and tokens."""

from __future__ import annotations

import json
import secrets
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tests.support.checkout import ROOT
from tests.support.ports import free_port
from tests.support.system import wait_until

START_SECONDS = 30.0
USERNAME = "crawler"


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One line of the access log.

    ``time`` is when the request came, in seconds since 1970; ``seconds`` is how long it took.
    ``session`` is the session cookie in the request, ``made`` the one in the answer; ``bearer`` is
    the token. ``user`` is the user as the site saw it, "" for nobody. ``grant`` is the grant type
    of a request for a token; ``asks_password`` says whether the answer has a password field;
    ``at_once`` is how many requests were being answered; ``held`` says whether the gate held it.
    """

    time: float
    seconds: float
    method: str
    host: str
    path: str
    status: int
    user: str
    session: str
    made: str
    bearer: str
    grant: str
    asks_password: bool
    at_once: int
    held: bool


class DjangoSite:
    """A running site; use it as a context manager.

    ``addresses`` are loopback ones that share a port; each site has new secrets. ``access_seconds``
    and ``session_seconds`` are the lives of OAuth 2.0 tokens and of members' sessions; articles
    link to ``foreign`` + ``from-N``. The API spreads its items over ``item_addresses``; if there
    are none, the items are on the address of their list. If ``sliding``, every answer sets the
    session's cookie again.
    """

    def __init__(
        self,
        folder: Path,
        *,
        addresses: Sequence[str] = ("127.0.0.1",),
        articles: int = 60,
        access_seconds: int = 3600,
        session_seconds: int = 3600,
        foreign: str = "",
        item_addresses: Sequence[str] = (),
        sliding: bool = False,
    ) -> None:
        self.folder = folder
        self.addresses = tuple(addresses)
        self.item_addresses = tuple(item_addresses)
        self.port = free_port()
        self.articles = articles
        self.password = f"pass-{secrets.token_urlsafe(12)}/+&="
        self.machine_id, self.person_id = "machine-client", "person-client"
        self.machine_secret = f"machine-{secrets.token_urlsafe(18)}"
        self.person_secret = f"person-{secrets.token_urlsafe(18)}"
        self._secret_key = secrets.token_hex(32)
        self._given = {
            "addresses": [*self.addresses, *self.item_addresses],
            "item_addresses": self.item_addresses,
            "sliding": sliding,
            "port": self.port,
            "articles": articles,
            "access_seconds": access_seconds,
            "session_seconds": session_seconds,
            "foreign": foreign,
            "username": USERNAME,
            "password": self.password,
            "machine_id": self.machine_id,
            "machine_secret": self.machine_secret,
            "person_id": self.person_id,
            "person_secret": self.person_secret,
            "secret_key": self._secret_key,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> DjangoSite:
        self.folder.mkdir(parents=True)
        (self.folder / "site.json").write_text(json.dumps(self._given))
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __package__, str(self.folder)],
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )
        try:
            wait_until(self._ready, START_SECONDS, "the Django site serves")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def url(self, path: str = "/", address: str = "") -> str:
        return f"{self.origin(address)}{path}"

    def origin(self, address: str = "") -> str:
        return f"http://{address or self.addresses[0]}:{self.port}"

    def item_url(self, number: int, listed_at: str = "") -> str:
        """Return the URL of an API item, for a list that was asked for at one address."""
        there = self.item_addresses
        address = there[number % len(there)] if there else listed_at
        return self.url(f"/api/items/{number}", address)

    # -- what it saw

    def log(self) -> list[LoggedRequest]:
        """Return all requests so far, in order of their answers."""
        path = self.folder / "access.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [LoggedRequest(**json.loads(line)) for line in lines]

    def logins(self) -> list[LoggedRequest]:
        """Return the requests that sent a name and password by any form, right or wrong."""
        paths = ("/admin/login/", "/members/login", "/accounts/login/")
        return [one for one in self.log() if one.method == "POST" and one.path.startswith(paths)]

    def tokens(self, grant: str = "") -> list[LoggedRequest]:
        """Return the requests for a token, of one grant type or of any."""
        return [one for one in self.log() if one.grant and grant in ("", one.grant)]

    def secrets(self) -> set[str]:
        """Return all secrets that the site gave out or received, also those that are no longer
        valid."""
        with closing(self._database()) as db:
            rows = [
                *db.execute("SELECT token FROM oauth2_provider_accesstoken"),
                *db.execute("SELECT token FROM oauth2_provider_refreshtoken"),
                *db.execute("SELECT code FROM oauth2_provider_grant"),
                *db.execute("SELECT session_key FROM django_session"),
            ]
        found = {str(row[0]) for row in rows}
        for one in self.log():
            found |= {one.session, one.made, one.bearer}
        found |= {self.password, self.machine_secret, self.person_secret}
        return found - {""}

    # -- what is done to it

    def kill_sessions(self, address: str = "") -> int:
        """End the sessions that were made at one address, or all, as if an operator cleared the
        table; return their number."""
        if not address:
            return self._execute("DELETE FROM django_session")
        made = {one.made for one in self.log() if one.host.partition(":")[0] == address}
        keys = ", ".join(f"'{key}'" for key in made)
        return self._execute(f"DELETE FROM django_session WHERE session_key IN ({keys})")

    def hold(self, path: str, count: int, sql: str) -> None:
        """Hold requests below ``path`` until ``count`` are there; then run ``sql`` and let them go
        on."""
        text = json.dumps({"path": path, "count": count, "sql": sql})
        (self.folder / "hold.new").write_text(text)
        (self.folder / "hold.new").rename(self.folder / "hold")

    @property
    def held(self) -> bool:
        """Return whether as many requests came as the gate waited for."""
        return (self.folder / "held").exists()

    def _execute(self, sql: str) -> int:
        with closing(self._database()) as db, db:
            return db.execute(sql).rowcount

    def _database(self) -> sqlite3.Connection:
        return sqlite3.connect(self.folder / "site.sqlite", timeout=30)

    def _ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the site ended:\n{(self.folder / 'log').read_text()}")
        return (self.folder / "ready").exists()

    def _stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(10)


EXPIRE = "UPDATE oauth2_provider_accesstoken SET expires = '2020-01-01 00:00:00'"
"""A statement for :meth:`DjangoSite.hold`: all access tokens expire."""
