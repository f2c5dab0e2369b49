"""Claims: the right to log in, and the logins that all machines share; with a frontier and without
one."""

from __future__ import annotations

from typing import Protocol


class Claims(Protocol):
    """The part of the frontier that is used here; see ``greencrawl.broker.frontier.Frontier``.

    Methods raise Unavailable when the frontier is away; times are in seconds.
    """

    def login_get(self, name: str) -> tuple[int, bytes] | None:
        """Return generation and sealed state of the last :meth:`login_put`, or None."""

    def login_claim(self, name: str, token: str, seconds: float) -> int:
        """Claim the login ``name``, or extend the claim; return 0 if another has it.

        Otherwise return the number of claims since the last :meth:`login_put` or
        :meth:`login_drop`, this claim included.
        """

    def login_put(
        self, name: str, token: str, generation: int, sealed: bytes, seconds: float
    ) -> bool:
        """Keep the state of a login.

        Return False, and keep nothing, if ``token`` does not hold the claim, or if the kept state
        has the same or a higher generation.
        """

    def login_drop(self, name: str, token: str) -> None:
        """Give a claim back; a claim of another worker stays."""


class LocalClaims:
    """Claims without a frontier: this process is the only one, and remembers nothing."""

    def __init__(self) -> None:
        self._held: dict[str, str] = {}

    def login_get(self, name: str) -> tuple[int, bytes] | None:
        """See :meth:`Claims.login_get`; always None."""
        return None

    def login_claim(self, name: str, token: str, seconds: float) -> int:
        """See :meth:`Claims.login_claim`; a claim does not expire."""
        return int(self._held.setdefault(name, token) == token)

    def login_put(
        self, name: str, token: str, generation: int, sealed: bytes, seconds: float
    ) -> bool:
        """See :meth:`Claims.login_put`; it keeps nothing, and returns True if the claim is held."""
        return self._held.get(name) == token

    def login_drop(self, name: str, token: str) -> None:
        """See :meth:`Claims.login_drop`."""
        if self._held.get(name) == token:
            del self._held[name]
