"""The Django site as a test uses it: it is started, asked for its log, and loses sessions and
tokens."""

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
class Asked:
    """One line of the access log.

    ``time`` in seconds since 1970 when the request came, ``seconds`` how long it took. ``session``
    is the session cookie that came, ``made`` one that was given back; ``bearer`` the token.
    ``user`` is who it was for the site, "" for nobody. ``grant`` is that of a request for a token;
    ``asks_password`` whether the answer has a password field; ``at_once`` how many requests were
    being answered; ``held`` whether the gate held it.
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
    """A context manager. ``addresses`` are loopback ones that share a port; the secrets are new
    with every site. ``access_seconds`` and ``session_seconds`` are the lives of OAuth 2.0 tokens
    and of members' sessions; articles link to ``foreign`` + ``from-N``. The API
    spreads its items over ``item_addresses`` (none: they are where their list is). ``sliding``:
    every answer sets the session's cookie anew.
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
        """Where an item of the API is, for a list that was asked for at one address."""
        there = self.item_addresses
        address = there[number % len(there)] if there else listed_at
        return self.url(f"/api/items/{number}", address)

    # -- what it saw

    def log(self) -> list[Asked]:
        """All requests so far, by when they were answered."""
        path = self.folder / "access.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [Asked(**json.loads(line)) for line in lines]

    def logins(self) -> list[Asked]:
        """Names and passwords that were sent by any form, right or wrong."""
        paths = ("/admin/login/", "/members/login", "/accounts/login/")
        return [one for one in self.log() if one.method == "POST" and one.path.startswith(paths)]

    def tokens(self, grant: str = "") -> list[Asked]:
        """Requests for a token, of one grant type or of any."""
        return [one for one in self.log() if one.grant and grant in ("", one.grant)]

    def secrets(self) -> set[str]:
        """Everything secret that the site gave out or was told, also what no longer is good."""
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
        """Sessions end, those made at one address or all, as when an operator clears the table;
        returns how many."""
        if not address:
            return self._execute("DELETE FROM django_session")
        made = {one.made for one in self.log() if one.host.partition(":")[0] == address}
        keys = ", ".join(f"'{key}'" for key in made)
        return self._execute(f"DELETE FROM django_session WHERE session_key IN ({keys})")

    def hold(self, path: str, count: int, sql: str) -> None:
        """Hold requests below ``path`` until ``count`` are there; then ``sql``, then go on."""
        text = json.dumps({"path": path, "count": count, "sql": sql})
        (self.folder / "hold.new").write_text(text)
        (self.folder / "hold.new").rename(self.folder / "hold")

    @property
    def held(self) -> bool:
        """Whether as many as the gate waited for were there."""
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
"""For :meth:`DjangoSite.hold`."""
