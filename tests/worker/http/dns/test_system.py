"""What this machine's files say about names."""

from __future__ import annotations

from pathlib import Path

from greencrawl.worker.http.dns.servers import NameServers
from greencrawl.worker.http.dns.system import Reread, hosts, name_servers


def test_name_servers_are_read_from_resolv_conf_with_a_local_default() -> None:
    text = "# nameserver 9.9.9.9\nsearch a.test\nnameserver 1.1.1.1\nnameserver 2606:4700::1111 \n"
    assert name_servers(text) == (("1.1.1.1", 53), ("2606:4700::1111", 53))
    assert name_servers("nameserver ns.test\nnameserver\noptions rotate") == (("127.0.0.1", 53),)


def test_name_servers_follow_changes_of_the_file_unless_they_are_configured(tmp_path: Path) -> None:
    now = [0.0]
    file = tmp_path / "resolv.conf"
    system = Reread(file, name_servers, lambda: now[0])
    asked = NameServers(resolv_conf=system, clock=lambda: now[0])
    assert asked.servers() == (("127.0.0.1", 53),)
    for address in ("10.0.0.1", "10.0.0.2"):
        file.write_text(f"nameserver {address}\n")
        now[0] += 6
        assert asked.servers() == ((address, 53),)
    file.unlink()
    now[0] += 6
    assert asked.servers() == (("127.0.0.1", 53),)
    named = NameServers(["127.0.0.1:5353", "[::1]:54"], resolv_conf=system)
    assert named.servers() == (("127.0.0.1", 5353), ("::1", 54))


def test_all_addresses_of_a_name_are_read_from_the_hosts_file_and_invalid_lines_skipped() -> None:
    text = "127.0.0.1 localhost a\n::1 localhost\n\n#1.1.1.1 b\nfe80::1%lo c # d\nx e\n2.2.2.2\n"
    assert hosts(text) == {
        "localhost": ("127.0.0.1", "::1"),
        "a": ("127.0.0.1",),
        "c": ("fe80::1%lo",),
    }
