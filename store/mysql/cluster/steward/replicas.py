"""Tells a replica which server to follow, so that it never has what the writer lacks."""

from __future__ import annotations

from collections.abc import Mapping

from greencrawl.schema.log import logger
from greencrawl.store.mysql.cluster.admin import Admin
from greencrawl.store.mysql.cluster.observe import Observation
from greencrawl.store.mysql.cluster.register import WriterTerm

log = logger("store")


def settle(admins: Mapping[str, Admin], term: WriterTerm, replica: Observation) -> None:
    """Let replicas copy the partner: a writer that is killed may undo unacknowledged commits.

    Without a partner the replicas stay where they are, and are not read when they lag. Raises
    Unavailable, InvalidConfig.
    """
    leader, admin = term.partner, admins[replica.name]
    if not replica.up:
        return
    if not replica.read_only:
        admin.execute("SET GLOBAL read_only = ON")
    following = replica.following
    if not leader:
        # Replicas do not copy a partner that comes back: it may have what the writer lacks.
        if following and not following.stopped:
            admin.stop_fetching()
    elif following and following.leader == term.writer and following.until:
        if following.stopped:  # it has read the partner's log to its end
            admin.follow(admins[leader].server)
    elif following is None or following.leader != leader:
        admin.follow(admins[leader].server)
        log.info("replication_started", server=replica.name, leader=leader)
    elif following.lacking:
        # The partner was set up again, and its log begins later. The replica's data cannot be
        # undone.
        until = admins[leader].variables("gtid_binlog_pos")["gtid_binlog_pos"]
        admin.follow(admins[term.writer].server, until=until)
        log.info("replica_catch_up_started", server=replica.name, leader=term.writer)
    elif following.stopped:
        admin.start_following()
