"""Who may log in, and what all machines know of logins: one class with the frontier, one without
it."""

from __future__ import annotations

from typing import Protocol


class Claims(Protocol):
    """The part of the frontier that is needed here; see ``greencrawl.broker.frontier.Frontier``.

    Methods raise Unavailable when it is away; times are in seconds.
    """

    def login_get(self, name: str) -> tuple[int, bytes] | None:
        """Generation and sealed state of what :meth:`login_put` kept last, or None."""

    def login_claim(self, name: str, token: str, seconds: float) -> int:
        """Become the one who logs in under ``name``, or go on being it; 0 if another is.

        Otherwise how many claims there were since the last that ended in :meth:`login_put` or
        :meth:`login_drop`, this one included.
        """

    def login_put(
        self, name: str, token: str, generation: int, sealed: bytes, seconds: float
    ) -> bool:
        """Keep what a login left behind; False, and nothing is kept, if ``token`` does not hold
        the claim, or what is kept has as high a generation."""

    def login_drop(self, name: str, token: str) -> None:
        """Give a claim back; one that another holds stays."""


class LocalClaims:
    """Leases where no frontier runs: this process is the only one, and remembers nothing."""

    def __init__(self) -> None:
        self._held: dict[str, str] = {}

    def login_get(self, name: str) -> tuple[int, bytes] | None:
        """See :meth:`Claims.login_get`; always None."""
        return None

    def login_claim(self, name: str, token: str, seconds: float) -> int:
        """See :meth:`Claims.login_claim`; a claim does not run out."""
        return int(self._held.setdefault(name, token) == token)

    def login_put(
        self, name: str, token: str, generation: int, sealed: bytes, seconds: float
    ) -> bool:
        """See :meth:`Claims.login_put`; True for who holds the claim, and nothing is kept."""
        return self._held.get(name) == token

    def login_drop(self, name: str, token: str) -> None:
        """See :meth:`Claims.login_drop`."""
        if self._held.get(name) == token:
            del self._held[name]
