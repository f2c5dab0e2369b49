"""URLs that were refused for their address or port, and that the operator now allows."""

from __future__ import annotations

import ipaddress
import re

from greencrawl.schema.records import Crawl, FailureKind, Final
from greencrawl.schema.settings import Settings
from greencrawl.store.base import Store

MOST = 10_000
"""One command asks again for at most this many URLs; the next one takes the rest."""

_PORT = re.compile(r"^port (\d+) is not in ")
_ADDRESS = re.compile(r"(?:^|[\s,])([0-9a-fA-F.:]+) \(")


def allowed_now(store: Store, crawl: Crawl, settings: Settings) -> list[str]:
    """Return a crawl's URLs that were refused and are not refused by ``settings``.

    If the settings allow no network and no port, the store is not searched.
    """
    if not settings.allow_networks and not settings.allow_ports:
        return []
    found: list[str] = []
    for _, final in store.finals(crawl.id):
        if final.kind == FailureKind.ADDRESS_FORBIDDEN and _is_allowed(final, settings):
            found.append(final.url)
            if len(found) == MOST:
                break
    return found


def _is_allowed(final: Final, settings: Settings) -> bool:
    """Return whether ``settings`` now allow the URL of ``final``.

    The worker's message has its address or port: ``[NAME is] ADDRESS (why), …`` or ``port N is not
    in …``.
    """
    if port := _PORT.match(final.detail):
        return int(port[1]) in settings.allow_ports
    for text in _ADDRESS.findall(final.detail):
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if any(address in network for network in settings.allow_networks):
            return True
    return False
