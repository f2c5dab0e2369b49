"""The name server for tests of look-ups, queried by dnspython's own client."""

from __future__ import annotations

import time

import dns.flags
import dns.message
import dns.query
import dns.rcode
import gevent

from tests.support.dns_server import DnsServer, Zone


def asked(
    server: DnsServer, name: str, kind: str = "A", *, seconds: float = 5
) -> dns.message.Message:
    query = dns.message.make_query(name, kind)
    return dns.query.udp(query, "127.0.0.1", seconds, server.port)


def test_zones_answer_with_addresses_aliases_and_errors() -> None:
    zones = {
        "a.test": Zone(("127.0.0.1", "::1"), ttl=7),
        "b.test": Zone({"b.test": (), "x.b.test": ("127.0.0.2",)}, negative_ttl=11),
        "c.test": Zone(aliases={"www.c.test": "x.b.test"}),
        "d.test": Zone(rcode=dns.rcode.SERVFAIL),
    }
    with DnsServer(zones) as server:
        assert "7 IN A 127.0.0.1" in asked(server, "any.a.test").to_text()
        assert "7 IN AAAA ::1" in asked(server, "a.test", "AAAA").to_text()
        missing = asked(server, "no.b.test")
        assert missing.rcode() == dns.rcode.NXDOMAIN
        assert "11 IN SOA" in missing.to_text()
        empty = asked(server, "b.test")
        assert empty.rcode() == dns.rcode.NOERROR
        assert not empty.answer
        followed = asked(server, "www.c.test").to_text()
        assert "CNAME x.b.test." in followed
        assert "127.0.0.2" in followed
        assert asked(server, "d.test").rcode() == dns.rcode.SERVFAIL
        assert asked(server, "elsewhere.test").rcode() == dns.rcode.REFUSED
        assert server.names()[:2] == ["any.a.test", "a.test"]


def test_a_slow_zone_delays_no_other_and_a_truncated_answer_is_complete_over_tcp() -> None:
    zones = {
        "slow.test": Zone(("127.0.0.1",), delay=0.4),
        "cut.test": Zone(("127.0.0.1",), truncated=True),
    }
    with DnsServer(zones) as server:
        slow = gevent.spawn(asked, server, "slow.test")
        began = time.monotonic()
        cut = asked(server, "cut.test")
        assert cut.flags & dns.flags.TC
        assert not cut.answer
        query = dns.message.make_query("cut.test", "A")
        assert dns.query.tcp(query, "127.0.0.1", 5, server.port).answer
        assert server.by_tcp == ["cut.test A"]
        assert time.monotonic() - began < 0.3
        assert server.waiting["slow.test"] == 1
        assert slow.get().answer
        assert server.waiting["slow.test"] == 0
