"""A steward's servers: a connection to each, and the register over them."""

from __future__ import annotations

from msgspec import Struct

from greencrawl.schema.errors import InvalidConfig
from greencrawl.schema.log import logger
from greencrawl.store.mysql.cluster.admin import Admin
from greencrawl.store.mysql.cluster.observe import Observation, observe, together
from greencrawl.store.mysql.cluster.register import NoMajority, Register, WriterTerm
from greencrawl.store.mysql.cluster.steward.findings import findings
from greencrawl.store.mysql.cluster.topology import Topology

log = logger("store")


class Report(Struct, frozen=True):
    """The state of a cluster. ``findings`` are for people: what is wrong, and what to do."""

    term: WriterTerm | None
    servers: tuple[Observation, ...]
    findings: tuple[str, ...] = ()


class Servers:
    """All servers of ``topology``, whose account must have a steward's privileges.

    ``admins`` has a connection for each server's name. Raises InvalidConfig unless there are two
    masters.
    """

    def __init__(self, topology: Topology) -> None:
        if not topology.ring:
            raise InvalidConfig([("GREENCRAWL_STORE", "only two masters have a steward")])
        self.topology = topology
        self.admins = {str(server): Admin(topology, server) for server in topology.servers}
        self.register = Register(list(self.admins.values()), together=together)

    def look(self) -> Report:
        """Return the state now; change nothing."""
        seen = {one.name: one for one in observe(list(self.admins.values()))}
        try:
            term = self.register.read()
        except NoMajority as error:
            return Report(None, tuple(seen.values()), (f"nobody may decide: {error}",))
        return Report(term, tuple(seen.values()), tuple(findings(self.topology, term, seen)))

    def change(self, known: WriterTerm, wanted: WriterTerm) -> bool:
        """Replace the term if it still is ``known``. Raises NoMajority."""
        changed = self.register.change(lambda now: wanted if now == known else None) == wanted
        if changed:
            log.warning(
                "writer_chosen",
                epoch=wanted.epoch,
                writer=wanted.writer,
                acknowledged_by=wanted.partner or "nobody",
            )
        return changed

    def confirmed(self, term: WriterTerm) -> bool:
        """Return whether a majority holds ``term``: act only on such a term. Raises NoMajority."""
        return self.register.change(lambda _: None) == term

    def close(self) -> None:
        """Close all connections."""
        for admin in self.admins.values():
            admin.close()
