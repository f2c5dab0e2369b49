"""Logins and errands, which workers share; the frontier cannot read what is sealed."""

from __future__ import annotations

from typing import Any

from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.placement import Placement
from greencrawl.broker.frontier.scripts import partition as part
from greencrawl.broker.frontier.scripts.calls import Scripts
from greencrawl.schema.wire import to_msgpack


class Logins:
    """Claims and sealed state by the names of logins, errands by their hosts.

    Every call may raise Unavailable.
    """

    def __init__(self, calls: Scripts, placement: Placement) -> None:
        self._calls = calls
        self._placement = placement

    def login_get(self, name: str) -> tuple[int, bytes] | None:
        """Return generation and sealed state of the last :meth:`login_put`, or None."""
        p = self._placement.partition_of(name)
        command = ("HMGET", keys.login(p, name), "generation", "sealed")
        generation, sealed = self._placement.node_of[p].command(*command)
        return None if sealed is None else (int(generation), sealed)

    def login_claim(self, name: str, token: str, seconds: float) -> int:
        """Claim the login ``name`` for ``seconds``, or extend the claim.

        Returns 0 if another worker has the claim. Otherwise it returns how many claims there were
        since the last one that ended in :meth:`login_put` or :meth:`login_drop`, this one included.
        A number above 1 means that earlier claims ended without a result: their process died, or
        they took too long.
        """
        return int(self._script("login_claim", name, token, _ms(seconds))[1])

    def login_put(
        self, name: str, token: str, generation: int, sealed: bytes, seconds: float
    ) -> bool:
        """Keep the state of a login for ``seconds``.

        Returns False and keeps nothing if ``token`` does not hold the claim (any more), or if the
        kept state has the same or a higher generation. The claim stays.
        """
        args = (token, generation, part.blob(sealed), _ms(seconds))
        return bool(self._script("login_put", name, *args)[1])

    def login_drop(self, name: str, token: str) -> None:
        """Give a claim back; a claim of another worker stays."""
        self._script("login_drop", name, token)

    # -- requests that wait for a session of their host

    def errand_put(self, host: str, errand_id: str, sealed: bytes, seconds: float) -> None:
        """Leave a request for a session of ``host``, to be taken within ``seconds``."""
        self._script("errand_put", host, errand_id, part.blob(sealed), _ms(seconds))

    def errand_take(self, host: str) -> tuple[str, bytes] | None:
        """Take the oldest request for ``host``: its id and the sealed request, or None.

        Each request is taken once.
        """
        _, errand_id, sealed = self._script("errand_take", host)
        return (errand_id.decode(), sealed) if errand_id else None

    def errand_answer(self, host: str, errand_id: str, sealed: bytes, seconds: float) -> None:
        """Keep the answer to a request that was taken, for ``seconds``."""
        self._script("errand_answer", host, errand_id, part.blob(sealed), _ms(seconds))

    def errand_answered(self, host: str, errand_id: str) -> bytes | None:
        """Return the sealed answer, or None as long as there is none."""
        p = self._placement.partition_of(host)
        _, answer = keys.errand(p, host, errand_id)
        value: bytes | None = self._placement.node_of[p].command("GET", answer)
        return value

    def errand_withdraw(self, host: str, errand_id: str) -> bool:
        """Withdraw a request; return False if it was taken: then its answer may be on its way."""
        p = self._placement.partition_of(host)
        request, _ = keys.errand(p, host, errand_id)
        return bool(self._placement.node_of[p].command("DEL", request))

    def errand_drop(self, host: str, errand_id: str) -> None:
        """Withdraw a request, unless it was taken, and forget its answer."""
        p = self._placement.partition_of(host)
        self._placement.node_of[p].command("DEL", *keys.errand(p, host, errand_id))

    def _script(self, script: str, name: str, *args: Any) -> list[Any]:
        """Run a script in the partition of ``name``, which is its first argument."""
        p = self._placement.partition_of(name)
        return self._calls(script, {p: to_msgpack([name, *args])})[p]


def _ms(seconds: float) -> int:
    """Return the ms for which Redis must keep something: at least one."""
    return max(round(seconds * 1000), 1)
