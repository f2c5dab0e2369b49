"""The order in which the addresses of a name are tried, by the relevant rules of RFC 6724.

Addresses that this machine cannot reach come last. Among the others, an address comes first if our
source address for it is of the same kind (rule 5); then the higher precedence counts (rule 6).
Equal addresses keep the order of the name server, whose rotation spreads the load.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from gevent import monkey

_KINDS = tuple(
    (ipaddress.IPv6Network(network), precedence, label)
    for network, precedence, label in (
        ("::1/128", 50, 0),
        ("::ffff:0:0/96", 35, 4),
        ("2002::/16", 30, 2),
        ("2001::/32", 5, 5),
        ("fc00::/7", 3, 13),
        ("::/96", 1, 3),
        ("fec0::/10", 1, 11),
        ("3ffe::/16", 1, 12),
        ("::/0", 40, 1),
    )
)
"""The default policy table of RFC 6724, section 2.1, the longer prefixes before ``::/0``."""


def source_of(address: str) -> str | None:
    """Return the source address of packets to ``address``; None if it is out of reach."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        probe = _socket(family, socket.SOCK_DGRAM)
    except OSError:
        return None
    try:
        probe.connect((address, 9))
        source: str = probe.getsockname()[0]
    except OSError:
        return None
    else:
        return source.partition("%")[0]
    finally:
        probe.close()


# The unpatched one: connecting a datagram socket sends nothing, and never blocks.
_socket = monkey.get_original("socket", "socket")


@lru_cache(4096)
def _kind(address: str) -> tuple[int, int]:
    parsed = ipaddress.ip_address(address)
    number = int(parsed)
    if parsed.version == 4:
        number += 0xFFFF << 32
    whole = ipaddress.IPv6Address(number)
    return next((precedence, label) for net, precedence, label in _KINDS if whole in net)


def best_first(
    addresses: Sequence[str], source: Callable[[str], str | None] = source_of
) -> list[str]:
    """Return IP addresses without repeats, sorted if both versions are among them."""
    found = list(dict.fromkeys(addresses))
    if len({":" in address for address in found}) < 2:
        return found
    return sorted(found, key=partial(_rank, source))


def _rank(source: Callable[[str], str | None], address: str) -> tuple[bool, bool, int]:
    own = source(address)
    precedence, label = _kind(address)
    return own is None, own is not None and _kind(own)[1] != label, -precedence
