"""Whether a store needs a steward, and which code is its steward."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from greencrawl.store.mysql.cluster import topology

if TYPE_CHECKING:
    from greencrawl.store.mysql.cluster.steward.steward import Steward


def steward_of(url: str, account: str = "") -> Steward | None:
    """The steward of a ring of masters; None for any other store.

    ``account`` is ``USER:PASSWORD``, "" for that of ``url``. Raises InvalidConfig.
    """
    if not url.startswith("mysql://"):
        return None
    servers = topology.parse(url)
    if not servers.ring:
        return None
    from greencrawl.store.mysql.cluster.steward.steward import Steward

    user, _, password = account.partition(":")
    return Steward(replace(servers, user=user, password=password) if user else servers)
