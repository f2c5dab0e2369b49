"""Hosts whose pages take more CPU than they are granted (``greencrawl.worker.reading.granted``).

The pages of such a host, and of others at its address, are read in a process of their own until
some in a row were cheap again; it waits :data:`REST` times as long as they took, and after
:data:`PARKED_AFTER` of them it is blocked.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

from greencrawl.schema.records import Fetched

PARKED_AFTER = 5
"""Pages that a host may have beyond what they are granted."""
CHEAP_AGAIN = 20
"""Pages in a row within what they are granted, after which nothing is held against a host."""
REST = 10.0
"""Seconds that a host is left in peace for each second that its page took: it gets a tenth of a
core at most."""

_DENSE_BYTES = 1024 * 1024
_DENSE = 50
_HOSTS = 10_000


class _Bill(Struct):
    pages: int = 0
    cpu: float = 0.0
    granted: float = 0.0
    cheap: int = 0


class CostlyHosts:
    """The books of one process. Not locked: its methods never yield to the hub."""

    def __init__(self) -> None:
        self._bills: OrderedDict[str, _Bill] = OrderedDict()

    def alone(self, host: str, fetched: Fetched) -> bool:
        """Whether an answer is to be read in a process of its own: for what its host has sent
        before, or since it is large and came as next to nothing."""
        if self._bills and (host in self._bills or fetched.address in self._bills):
            return True
        size = len(fetched.body)
        return size >= _DENSE_BYTES and 0 < fetched.wire_bytes * _DENSE < size

    def cheap(self, host: str, address: str) -> None:
        """A page of a host whose pages are read alone took no more than it was granted."""
        for name in (host, address):
            bill = self._bills.get(name)
            if bill is not None:
                bill.cheap += 1
                if bill.cheap >= CHEAP_AGAIN:
                    del self._bills[name]

    def charge(self, host: str, address: str, cpu: float, granted: float) -> str:
        """A page took ``cpu`` seconds; returns why its host is to be blocked, "" if it is not."""
        for name in (host, address):
            if name:
                self._bills.setdefault(name, _Bill()).cheap = 0
                self._bills.move_to_end(name)
        while len(self._bills) > _HOSTS:
            self._bills.popitem(last=False)
        bill = self._bills[host]
        bill.pages += 1
        bill.cpu += cpu
        bill.granted += granted
        if bill.pages < PARKED_AFTER:
            return ""
        return (
            f"reading {bill.pages} of its pages took {bill.cpu:.1f} s of CPU, "
            f"and {bill.granted:.1f} s were granted"
        )
