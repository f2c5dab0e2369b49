"""Hosts whose pages take more CPU than they are granted.

The CPU for reading pages counts, and the CPU for undoing their content-encodings
(``greencrawl.worker.kernels.http.granted``). The pages of such a host, and of others of its
registrable domain, are read in a process of their own until some in a row were cheap again. The
same holds for all hosts on a machine if :data:`BAD_NEIGHBOURS` domains had such hosts there. The
host rests :data:`REST` times as long as its pages took. After :data:`PARKED_AFTER` such pages,
which took :data:`PARKED_SECONDS` together, the host is blocked.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct, field

from greencrawl.schema.net.urls import registrable_domain
from greencrawl.schema.records import Failure, Fetched
from greencrawl.worker.http.addresses import address_name

PARKED_AFTER = 5
"""A host may be blocked once this many of its pages have exceeded their grant."""
PARKED_SECONDS = 1.0
"""The host is blocked if these pages took this many CPU seconds together."""
CHEAP_AGAIN = 20
"""After this many pages in a row within their grant, a host is trusted again."""
BAD_NEIGHBOURS = 3
"""If a machine (an address, or a /64 of IPv6) has this many such domains, all its hosts are
suspected.

A platform's machine has thousands of honest hosts beside a bad one.
"""
REST = 10.0
"""Seconds that a host rests for each CPU second of its page: it gets at most a tenth of a core."""

UNPACKING_SECONDS = 0.05
UNPACKING_SECONDS_PER_BYTE = 0.02e-6
"""CPU seconds that undoing an answer's content-encodings is granted: a fixed time, and a time for
each byte on the wire. Ten honest megabytes, two to four on the wire, take 0.02 to 0.04 s."""

_DENSE_BYTES = 128 * 1024
_DENSE = 50
_HOSTS = 10_000


class _Bill(Struct):
    pages: int = 0
    cpu: float = 0.0
    granted: float = 0.0
    cheap: int = 0
    domains: set[str] = field(default_factory=set)
    """For a machine: its domains that had such pages, at most :data:`BAD_NEIGHBOURS`."""


def unpacking(answer: Fetched | Failure) -> str:
    """Say why decoding an answer's content-encodings counts against the host, "" if it does not."""
    cpu = answer.unpacking
    if isinstance(answer, Failure):
        if cpu <= UNPACKING_SECONDS:
            return ""
        return f"undoing a broken content-encoding took {cpu:.2f} s of CPU"
    size, sent = answer.packed or len(answer.body), answer.wire_bytes
    if cpu > UNPACKING_SECONDS + UNPACKING_SECONDS_PER_BYTE * sent:
        return f"undoing the content-encoding of {sent:,} bytes took {cpu:.2f} s of CPU"
    if answer.truncated and cpu and _is_dense(size, sent):
        return f"a body of {sent:,} bytes was cut at {size:,}, its content-encoding undone"
    return ""


def dense(fetched: Fetched) -> str:
    """Say why an answer is to be read in a process of its own, "" if it is not.

    The reason is that it is large, and very small when compressed.
    """
    size, sent = len(fetched.body), fetched.wire_bytes
    if size < _DENSE_BYTES or not _is_dense(size, sent):
        return ""
    return f"{size:,} bytes came as {sent:,}, so they were read in a process of their own"


def _is_dense(size: int, sent: int) -> bool:
    return size >= _DENSE_BYTES and 0 < sent * _DENSE < size


class CostlyHosts:
    """The costly hosts of one process. It has no lock: its methods never yield to the hub."""

    def __init__(self) -> None:
        self._bills: OrderedDict[str, _Bill] = OrderedDict()

    def suspects(self, host: str, address: str) -> bool:
        """Return whether to read a host's answers in a process of their own.

        The reason is what it, or its neighbours, have sent before.
        """
        if not self._bills:
            return False
        if host in self._bills or f"d:{registrable_domain(host)}" in self._bills:
            return True
        bill = self._bills.get(address_name(address)) if address else None
        return bill is not None and len(bill.domains) >= BAD_NEIGHBOURS

    def cheap(self, host: str, address: str) -> None:
        """Note that a suspected host's page took no more than its grant."""
        for name in _names(host, address):
            bill = self._bills.get(name)
            if bill is not None:
                bill.cheap += 1
                if bill.cheap >= CHEAP_AGAIN:
                    del self._bills[name]

    def charge(self, host: str, address: str, cpu: float, granted: float) -> str:
        """Charge a page that took ``cpu`` seconds; say why its host is to be blocked, "" if it is
        not."""
        domain = registrable_domain(host)
        for name in _names(host, address):
            bill = self._bills.setdefault(name, _Bill())
            bill.cheap = 0
            if len(bill.domains) < BAD_NEIGHBOURS:
                bill.domains.add(domain)
            self._bills.move_to_end(name)
        while len(self._bills) > _HOSTS:
            self._bills.popitem(last=False)
        bill = self._bills[host]
        bill.pages += 1
        bill.cpu += cpu
        bill.granted += granted
        if bill.pages < PARKED_AFTER or bill.cpu < PARKED_SECONDS:
            return ""
        return (
            f"reading {bill.pages} of its pages took {bill.cpu:.1f} s of CPU, "
            f"and {bill.granted:.1f} s were granted"
        )


def _names(host: str, address: str) -> tuple[str, ...]:
    """Return the owners that a page counts against: its host, its domain, its machine."""
    names = (host, f"d:{registrable_domain(host)}")
    return (*names, address_name(address)) if address else names
