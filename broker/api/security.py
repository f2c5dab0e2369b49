"""Who may call which operation: bearer tokens by role; the rules if no token is set.

Without tokens the broker is open, and therefore listens on loopback only. Even there a web page in
the user's browser could reach it, so requests that carry a foreign ``Origin`` or ``Host`` are
refused (cross-site request forgery and DNS rebinding). Only the pages of the Monitor are not
foreign.
"""

from __future__ import annotations

from enum import StrEnum

import falcon

from greencrawl.broker.api.problems import HttpProblem
from greencrawl.schema import bearer
from greencrawl.schema.bearer import is_loopback
from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.settings import Settings

CHALLENGE = {"WWW-Authenticate": bearer.CHALLENGE}


class Role(StrEnum):
    """Who may call an operation: everybody, any token, workers (and admins), admins."""

    OPEN = "open"
    ANY = "any"
    WORKER = "worker"
    ADMIN = "admin"


def check_settings(settings: Settings) -> None:
    """Refuse settings by which the broker is open to the network, or one token has two roles.

    Raises :class:`InvalidConfig`.
    """
    problems: list[tuple[str, str]] = []
    tokens, view = (settings.worker_token, settings.admin_token), settings.view_token
    if not is_loopback(settings.bind[0]) and not all(tokens):
        problems.append(
            (
                "GREENCRAWL_BIND",
                f"{settings.bind[0]} is not loopback: set GREENCRAWL_WORKER_TOKEN and"
                " GREENCRAWL_ADMIN_TOKEN, or bind to 127.0.0.1",
            )
        )
    elif any(tokens) and not all(tokens):
        problems.append(
            ("GREENCRAWL_ADMIN_TOKEN", "set both tokens, GREENCRAWL_WORKER_TOKEN too, or none")
        )
    elif any(tokens) and tokens[0] == tokens[1]:
        problems.append(
            (
                "GREENCRAWL_ADMIN_TOKEN",
                "must differ from GREENCRAWL_WORKER_TOKEN, or every worker is an admin",
            )
        )
    if view and not any(tokens):
        problems.append(
            (
                "GREENCRAWL_VIEW_TOKEN",
                "without GREENCRAWL_WORKER_TOKEN and GREENCRAWL_ADMIN_TOKEN everybody may do all:"
                " set these too",
            )
        )
    elif view and view in tokens:
        problems.append(
            ("GREENCRAWL_VIEW_TOKEN", "must differ from the other tokens: who has it only looks")
        )
    if problems:
        raise InvalidConfig(problems)


class Guard:
    """Decides whether a request may pass; holds the two tokens, which are empty if the broker is
    open."""

    def __init__(self, worker_token: str, admin_token: str) -> None:
        self._worker = worker_token
        self._admin = admin_token

    @property
    def open(self) -> bool:
        """Return whether no token is set."""
        return not (self._worker or self._admin)

    def check(self, request: falcon.Request, role: Role) -> None:
        """Let the request pass, or raise a problem: 401 without a token, 403 with the wrong
        role."""
        if self.open:
            _refuse_foreign_pages(request)
            return
        if role is Role.OPEN:
            return
        held = self._role_of(request.get_header("Authorization") or "")
        if held is None:
            raise HttpProblem(401, "send Authorization: Bearer TOKEN", headers=CHALLENGE)
        if role is Role.ADMIN and held is not Role.ADMIN:
            raise HttpProblem(403, "this needs the admin token")

    def _role_of(self, header: str) -> Role | None:
        """Return the role whose token ``header`` carries.

        Both tokens are always compared, in constant time.
        """
        is_worker, is_admin = bearer.matches(header, self._worker, self._admin)
        if is_admin:
            return Role.ADMIN
        return Role.WORKER if is_worker else None


def _refuse_foreign_pages(request: falcon.Request) -> None:
    why = bearer.foreign(
        request.get_header("Host"), request.get_header("Origin"), scheme=request.scheme
    )
    if why:
        raise HttpProblem(403, why)
