"""Rules for addresses."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greencrawl.worker.http.addresses import forbidden


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "10.1.2.3",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.9",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::8.8.8.8",
        "::ffff:127.0.0.1",
        "::ffff:a9fe:a9fe",
        "64:ff9b::7f00:1",
        "64:ff9b::10.0.0.1",
        "64:ff9b:1::8.8.8.8",
        "100::1",
        "2001::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:2::1",
        "2001:10::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2002:c0a8:101::1",
        "2a00:1450:4001:800:0:5efe:10.0.0.1",
        "2a00:1450:4001:800:200:5efe:127.0.0.1",
        "3fff::1",
        "4000::1",
        "5f00::1",
        "fc00::1",
        "fd12:3456::1",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
    ],
)
def test_special_address_is_forbidden(address: str) -> None:
    assert forbidden(address)


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.255.255",
        "172.32.0.1",
        "192.0.1.1",
        "198.17.255.255",
        "198.20.0.1",
        "223.255.255.255",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2002:808:808::1",
        "2001:4860:4860::8888",
        "2606:4700:4700::1111",
        "2a00:1450:4001:800::200e",
    ],
)
def test_global_unicast_address_is_allowed(address: str) -> None:
    assert forbidden(address) is None


def test_allow_list_admits_only_its_addresses_and_their_ipv4_mapped_forms() -> None:
    allow = [ipaddress.ip_network("127.0.0.0/29"), ipaddress.ip_network("::1/128")]
    assert forbidden("127.0.0.2", allow) is None
    assert forbidden("::1", allow) is None
    assert forbidden("::ffff:127.0.0.2", allow) is None
    assert forbidden("127.0.0.9", allow)
    assert forbidden("::ffff:127.0.0.9", allow)
    assert forbidden("10.0.0.1", allow)


@given(st.ip_addresses(v=4))
def test_ipv4_is_judged_alike_in_every_form_that_carries_it(
    address: ipaddress.IPv4Address,
) -> None:
    number = int(address)
    plain = forbidden(str(address)) is None
    for carrier in (
        ipaddress.IPv6Address((0xFFFF << 32) + number),
        ipaddress.IPv6Address((0x0064FF9B << 96) + number),
        ipaddress.IPv6Address((0x2002 << 112) + (number << 80) + 1),
    ):
        assert (forbidden(str(carrier)) is None) == plain


@given(st.ip_addresses())
def test_address_that_the_standard_library_calls_private_is_forbidden(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if address.is_private or address.is_multicast or address.is_reserved:
        carried = isinstance(address, ipaddress.IPv6Address) and (
            address.ipv4_mapped
            or address.sixtofour  # private before Python 3.11.4
            or address in ipaddress.ip_network("64:ff9b::/96")
        )
        assert carried or forbidden(str(address))
