"""Descriptions of a cluster's faults for people."""

from __future__ import annotations

from greencrawl.store.mysql.cluster import gtid
from greencrawl.store.mysql.cluster.observe import Observation
from greencrawl.store.mysql.cluster.register import WriterTerm
from greencrawl.store.mysql.cluster.steward.replication import (
    MAX_MISSING,
    copies,
    stray,
    takes_writes,
)
from greencrawl.store.mysql.cluster.topology import Topology


def findings(
    topology: Topology, term: WriterTerm | None, seen: dict[str, Observation]
) -> list[str]:
    """Return what is wrong and what to do about it, in sentences."""
    if term is None:
        return ["these servers form no store yet: greencrawl store form"]
    writer = seen.get(term.writer)
    if writer is None:
        return [f"{term.writer} takes writes, but GREENCRAWL_STORE does not name it: add it"]
    found = []
    if not writer.up:
        partner, remedy = seen.get(term.partner), ""
        if not term.partner:
            remedy = ": it stood alone, so no other server has all that was acknowledged"
        elif partner is not None and partner.up and not copies(partner, writer):
            remedy = f": {partner.name} was started anew, and may lack what it acknowledged"
        elif partner is not None and partner.following and partner.following.fetching:
            found.append(f"{partner.name} still reaches it: perhaps only this machine does not")
        if remedy:
            remedy += ". Start it, or give up what only it has: greencrawl store takeover --lose"
        found.append(f"{writer.name} takes writes and is away ({writer.error}){remedy}")
    elif not term.partner:
        found.append(f"{writer.name} stands alone: no second server acknowledges commits")
    for one in seen.values():
        if one.up:
            found += _server_findings(term, writer, one, master=one.server in topology.masters)
        elif one is not writer:
            found.append(f"{one.name} is away ({one.error}): start it")
    return found


def _server_findings(
    term: WriterTerm, writer: Observation, one: Observation, *, master: bool
) -> list[str]:
    found = []
    following = one.following
    if one is writer:
        if term.partner and one.hanging:
            found.append(f"{one.hanging} commits on {one.name} wait for {term.partner}")
    elif master and one.hanging:
        found.append(
            f"{one.hanging} commits hang on {one.name}, which takes no writes any more; nobody got "
            "an answer to them: kill -9 it and start it again, and it rolls them back"
        )
    elif writer.up and takes_writes(writer, term):
        # A server that follows may be ahead of our look at the writer for a moment; others may not.
        running = following is not None and following.running
        surplus = stray(term, writer, one)
        if not running:
            surplus = max(surplus, gtid.missing(writer.position, one.position))
        if surplus:
            found.append(
                f"{one.name} has {surplus} transactions that {writer.name} has not, and stays out: "
                "save them with mariadb-binlog if you want them, then make it anew from a copy "
                "(docs/operations.md)"
            )
    if following and one.name == term.partner:
        backlog = gtid.missing(one.position, following.fetched)
        if backlog > MAX_MISSING:
            found.append(
                f"{one.name} has yet to apply {backlog} transactions that it acknowledged: if "
                f"{writer.name} died now, writing would wait for that"
            )
    if following and following.error:
        found.append(f"{one.name} does not follow {following.leader}: {following.error}")
    if master and one.wait_point != "AFTER_SYNC":
        found.append(f"{one.name} needs rpl_semi_sync_master_wait_point = AFTER_SYNC")
    if not one.strict:
        found.append(f"{one.name} needs gtid_strict_mode = ON and log_bin")
    return found
