"""Decides to which addresses the crawler may connect.

Every answer of DNS is judged before a connection is made. So a page cannot make the crawler connect
to internal networks (server-side request forgery, DNS rebinding). An address that is not global
unicast is forbidden unless an operator's allow-list holds it. ``ipaddress.is_global`` is not used:
it says True for multicast, for IPv4-compatible, NAT64 and 6to4 forms of private addresses, and for
192.0.0.192.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# fmt: off
BAD_PORTS = frozenset((
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101,
    102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427,
    465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990,
    993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667,
    6668, 6669, 6679, 6697, 10080,
))
# fmt: on
"""Ports of other protocols, to which no page may send us (Fetch Standard, "bad port")."""

# fmt: off
SERVICE_PORTS = frozenset((
    1433, 1521, 2181, 2375, 2376, 2379, 2380, 3306, 3389, 4369, 5432, 5672, 5900, 5984, 6379, 6380,
    7000, 7001, 8086, 8500, 9042, 9092, 9200, 9300, 10250, 11211, 15672, 16379, 26379, 27017, 27018,
    27019, 28017,
))
# fmt: on
"""Ports of databases, caches, queues and machine management.

Some answer to HTTP, and none has pages for strangers: an operator may allow some
(``GREENCRAWL_ALLOW_PORTS``).
"""

_FORBIDDEN_V4 = tuple(
    (ipaddress.IPv4Network(network), reason)
    for network, reason in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "protocol assignments"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "6to4 relays"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("255.255.255.255/32", "broadcast"),
        ("240.0.0.0/4", "reserved"),
    )
)
"""IANA's IPv4 special-purpose registry (RFC 6890 and its successors) and multicast."""

_FORBIDDEN_V6 = tuple(
    (ipaddress.IPv6Network(network), reason)
    for network, reason in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::/96", "IPv4-compatible"),
        ("64:ff9b:1::/48", "local NAT64"),
        ("100::/64", "discard"),
        ("2001::/23", "protocol assignments (Teredo, ORCHID …)"),
        ("2001:db8::/32", "documentation"),
        ("3fff::/20", "documentation"),
        ("fc00::/7", "unique local"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_6TO4 = ipaddress.IPv6Network("2002::/16")
_ISATAP_INTERFACES = (0x00005EFE, 0x02005EFE)


def _embedded(address: ipaddress.IPv6Address) -> tuple[ipaddress.IPv4Address, str] | None:
    """Return the IPv4 address that packets to ``address`` would finally reach, and the form's
    name."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped, "IPv4-mapped"
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF), "NAT64"
    if address in _6TO4:
        return ipaddress.IPv4Address(int(address) >> 80 & 0xFFFFFFFF), "6to4"
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP_INTERFACES:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF), "ISATAP"
    return None


@lru_cache(4096)
def address_name(address: str) -> str:
    """Return what counts as one machine: an IPv4 address, or the /64 of an IPv6 one.

    An IPv6 address that leads to an IPv4 one (mapped, NAT64, 6to4) counts as that one: all IPv4
    addresses behind a NAT64 are in one /64. Addresses of ISATAP do not: the owner of a /64 chooses
    the last parts of its addresses, and could pretend to have any number of machines.
    """
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv4Address):
        return f"4:{found}"
    carried = _embedded(found)
    if carried is not None and carried[1] != "ISATAP":
        return f"4:{carried[0]}"
    return f"6:{ipaddress.IPv6Network((int(found) >> 64 << 64, 64))}"


def _reason(address: Address) -> str | None:
    if isinstance(address, ipaddress.IPv4Address):
        return next((why for network, why in _FORBIDDEN_V4 if address in network), None)
    named = next((why for network, why in _FORBIDDEN_V6 if address in network), None)
    return named or (None if address in _GLOBAL_UNICAST else "not global unicast")


def forbidden(address: str, allow: Sequence[Network] = ()) -> str | None:
    """Say why ``address`` (an IP literal) may not be connected to, or None if it may.

    A global unicast address may; any other address may only inside a network of ``allow``. An IPv6
    address that carries an IPv4 address (mapped, NAT64, 6to4, ISATAP) is judged by that IPv4
    address. Raises ``ValueError`` when ``address`` is not an IP address.
    """
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if any(parsed.version == network.version and parsed in network for network in allow):
        return None
    carried = _embedded(parsed) if isinstance(parsed, ipaddress.IPv6Address) else None
    if carried is None:
        return _reason(parsed)
    inner, form = carried
    why = forbidden(str(inner), allow)
    if why is not None:
        return f"{form} of {inner}: {why}"
    return _reason(parsed) if form == "ISATAP" else None
