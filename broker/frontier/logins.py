"""Logins and errands, which workers share; what is sealed has no meaning here."""

from __future__ import annotations

from typing import Any

from greencrawl.broker.frontier.nodes import keys
from greencrawl.broker.frontier.nodes.placement import Placement
from greencrawl.broker.frontier.scripts import partition as part
from greencrawl.broker.frontier.scripts.calls import Scripts
from greencrawl.schema.wire import to_msgpack


class Logins:
    """Claims and sealed state by the names of logins, errands by the hosts that they are for.

    Every call may raise Unavailable.
    """

    def __init__(self, calls: Scripts, placement: Placement) -> None:
        self._calls = calls
        self._placement = placement

    def login_get(self, name: str) -> tuple[int, bytes] | None:
        """Generation and sealed state of what :meth:`login_put` kept last, or None."""
        p = self._placement.partition_of(name)
        command = ("HMGET", keys.login(p, name), "generation", "sealed")
        generation, sealed = self._placement.node_of[p].command(*command)
        return None if sealed is None else (int(generation), sealed)

    def login_claim(self, name: str, token: str, seconds: float) -> int:
        """Become the one who logs in under ``name`` for ``seconds``, or go on being it.

        Returns 0 if another is. Otherwise how many claims there were since the last that ended in
        :meth:`login_put` or :meth:`login_drop`, this one included: what is more than one took its
        process along, or too long.
        """
        return int(self._script("login_claim", name, token, _ms(seconds))[1])

    def login_put(
        self, name: str, token: str, generation: int, sealed: bytes, seconds: float
    ) -> bool:
        """Keep what a login left behind, for ``seconds``.

        False, and nothing is kept, if ``token`` does not hold the claim (any more), or what is
        kept has as high a generation. The claim goes on.
        """
        args = (token, generation, part.blob(sealed), _ms(seconds))
        return bool(self._script("login_put", name, *args)[1])

    def login_drop(self, name: str, token: str) -> None:
        """Give a claim back; one that another holds stays."""
        self._script("login_drop", name, token)

    # -- requests that are left for whoever holds a host

    def errand_put(self, host: str, errand_id: str, sealed: bytes, seconds: float) -> None:
        """Leave a request for whoever holds ``host``, who may take it within ``seconds``."""
        self._script("errand_put", host, errand_id, part.blob(sealed), _ms(seconds))

    def errand_take(self, host: str) -> tuple[str, bytes] | None:
        """Id and sealed request of what has waited longest for ``host``, or None. Taken once."""
        _, errand_id, sealed = self._script("errand_take", host)
        return (errand_id.decode(), sealed) if errand_id else None

    def errand_answer(self, host: str, errand_id: str, sealed: bytes, seconds: float) -> None:
        """Keep the answer to a request that was taken, for ``seconds``."""
        self._script("errand_answer", host, errand_id, part.blob(sealed), _ms(seconds))

    def errand_answered(self, host: str, errand_id: str) -> bytes | None:
        """The sealed answer, or None as long as there is none."""
        p = self._placement.partition_of(host)
        _, answer = keys.errand(p, host, errand_id)
        value: bytes | None = self._placement.node_of[p].command("GET", answer)
        return value

    def errand_withdraw(self, host: str, errand_id: str) -> bool:
        """Withdraw a request; False if it was taken, and its answer may be on its way."""
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
    """For how long Redis is to keep something: at least for a moment."""
    return max(round(seconds * 1000), 1)
