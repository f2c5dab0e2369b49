"""Which master takes writes, as a worker finds it; also if there is none, or none can say so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from greencrawl.schema.errors import InvalidConfig, Unavailable
from greencrawl.store.mysql.cluster.routing import Cluster
from greencrawl.store.mysql.cluster.topology import Server, Topology
from tests.support.mariadb import MariaDb
from tests.support.mysql_database import rows_of, server, topology
from tests.support.ports import free_ports

__all__ = ["server", "topology"]  # fixtures


def _ring(topology: Topology, *ports: int) -> Cluster:
    return Cluster(replace(topology, masters=tuple(Server("127.0.0.1", one) for one in ports)))


def test_a_master_that_is_being_made_anew_is_unavailable_while_the_other_is_away(
    topology: Topology,
) -> None:
    port = topology.masters[0].port
    with pytest.raises(Unavailable, match="store form"):
        _ring(topology, port, *free_ports(1)).read(lambda db: db.execute("SELECT 1"))
    nowhere = replace(topology, database="nowhere")
    with pytest.raises(Unavailable, match="store form"):
        _ring(nowhere, *free_ports(1), port).read(lambda db: db.execute("SELECT 1"))


@pytest.mark.parametrize("database", ["", "nowhere"])
def test_masters_that_form_no_store_yet_are_refused_with_the_command_that_forms_it(
    topology: Topology, database: str
) -> None:
    other = replace(topology, database=database or topology.database)
    port = topology.masters[0].port
    # One server under two names: both masters answer, and neither has a fence.
    twice = replace(other, masters=(Server("127.0.0.1", port), Server("localhost", port)))
    with pytest.raises(InvalidConfig, match="greencrawl store form"):
        Cluster(twice).read(lambda db: db.execute("SELECT 1"))


def test_a_master_is_unavailable_while_its_fence_is_closed(topology: Topology) -> None:
    rows_of(topology, "CREATE TABLE fence (only_row TINYINT, epoch BIGINT, open TINYINT)")
    ring = _ring(topology, topology.masters[0].port, *free_ports(1))
    with pytest.raises(Unavailable, match="takes no writes"):
        ring.read(lambda db: db.execute("SELECT 1"))
    rows_of(topology, "INSERT INTO fence VALUES (1, 0, 0)")
    with pytest.raises(Unavailable, match="takes no writes"):
        ring.read(lambda db: db.execute("SELECT 1"))
    ring.close()


def test_a_master_that_was_opened_in_a_later_epoch_is_found_at_once(
    topology: Topology, server: MariaDb
) -> None:
    rows_of(topology, "CREATE TABLE fence (only_row TINYINT, epoch BIGINT, open TINYINT)")
    rows_of(topology, "INSERT INTO fence VALUES (1, 0, 1)")
    ring = _ring(topology, topology.masters[0].port, *free_ports(1))
    with server.root() as connection, connection.cursor() as root:
        try:
            for epoch in (1, 2):
                root.execute(f"SET GLOBAL gtid_domain_id = {epoch}")
                rows_of(topology, f"UPDATE fence SET epoch = {epoch}")
                assert ring.read(lambda db: db.execute("SELECT 1"))
        except Unavailable as error:
            pytest.fail(f"the route of the epoch before is kept: {error}")
        finally:
            root.execute("SET GLOBAL gtid_domain_id = 0")
    ring.close()
