"""Which addresses are public, against an account of it that shares nothing with the tables of the package."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonbell.actions.egress.ip_addresses import METADATA, hidden_in, special_use
from noonbell.actions.egress.policy import EgressPolicy
from noonbell.errors import EgressRefusedError
from tests.effort import examples

# Uniform numbers seldom meet a small range: half of the cases begin with the first bytes of one that matters.
V4_BEGINNINGS = "0 10 100.64 100.127 100.128 127 169.254 172.16 172.31 172.32 192.0.0 192.0.2 192.88.99 192.168 198.18 \
198.19 198.20 198.51.100 203.0.113 224 239 240 255 8.8 9 11 126 128 169.253 192.0.1 192.88.98".split()
V6_BEGINNINGS = "0000 0064:ff9b 0064:ff9b:0001 0100:0000 2001:0000 2001:0001 2001:0002 2001:0010 2001:0020 2001:01ff \
2001:0200 2001:0db8 2001:0db9 2002 2003 2600 3ffe 3fff:0000 3fff:0fff 3fff:1000 4000 5f00 fc00 fdff fe00 fe80 febf \
fec0 ff02".split()


def v4_beginning_with(start: str) -> st.SearchStrategy[IPv4Address]:
    head = bytes(int(part) for part in start.split("."))
    return st.binary(min_size=4 - len(head), max_size=4 - len(head)).map(lambda rest: IPv4Address(head + rest))


def v6_beginning_with(start: str) -> st.SearchStrategy[IPv6Address]:
    head = bytes.fromhex(start.replace(":", ""))
    return st.binary(min_size=16 - len(head), max_size=16 - len(head)).map(lambda rest: IPv6Address(head + rest))


v4 = st.ip_addresses(v=4) | st.sampled_from(V4_BEGINNINGS).flatmap(v4_beginning_with)
v6 = st.ip_addresses(v=6) | st.sampled_from(V6_BEGINNINGS).flatmap(v6_beginning_with)


def public_v4(address: IPv4Address) -> bool:
    """By the standard library's flags, and the three networks that it thinks better of."""
    strict = address.packed[:3] in (bytes((192, 0, 0)), bytes((192, 88, 99)))
    return address.is_global and not (address.is_multicast or address.is_reserved or strict)


def public_v6(address: IPv6Address) -> bool:
    """By the written-out digits."""
    text = address.exploded
    if text[0] not in "23":
        return False
    not_public = ("2001:00", "2001:01", "2001:0db8", "2002:", "3fff:0")
    return not text.startswith(not_public)


def passes(address: IPv4Address | IPv6Address, *allow: str) -> bool:
    try:
        EgressPolicy(allow=allow).check(address, 443)
    except EgressRefusedError:
        return False
    return True


@settings(max_examples=examples(300), deadline=None)
@given(v4)
def test_an_ipv4_address_passes_if_and_only_if_it_is_public(address: IPv4Address) -> None:
    assert (special_use(address) is None) == public_v4(address)
    assert passes(address) == (public_v4(address) and address not in METADATA)


@settings(max_examples=examples(300), deadline=None)
@given(v6)
def test_an_ipv6_address_passes_if_and_only_if_it_is_public(address: IPv6Address) -> None:
    assert (special_use(address) is None) == public_v6(address)
    isatap = address.packed[8:12] in (bytes.fromhex("00005efe"), bytes.fromhex("02005efe"))
    if not isatap:
        assert passes(address) == public_v6(address)
    if passes(address):
        assert address.is_global


def forms(inner: IPv4Address) -> dict[str, tuple[IPv6Address, str]]:
    """An IPv4 address in each of its IPv6 disguises, with the network that an operator would have to allow."""
    mine = inner.packed
    flipped = bytes(255 - byte for byte in mine)
    public = IPv4Address("8.8.8.8").packed

    def made(*parts: bytes | str) -> IPv6Address:
        return IPv6Address(b"".join(part if isinstance(part, bytes) else bytes.fromhex(part) for part in parts))

    nat64_local = "64:ff9b:1::/48"
    return {
        "mapped": (made("00" * 10, "ffff", mine), "::ffff:0:0/96"),
        "translated": (made("00" * 8, "ffff0000", mine), "::ffff:0:0:0/96"),
        "compatible": (made("00" * 12, mine), "::/96"),
        "nat64": (made("0064ff9b", "00" * 8, mine), "64:ff9b::/96"),
        "nat64, local /48": (made("0064ff9b0001", mine[:2], "00", mine[2:], "0808080808"), nat64_local),
        "nat64, local /56": (made("0064ff9b0001", "08", mine[:1], "00", mine[1:], "08080808"), nat64_local),
        "nat64, local /64": (made("0064ff9b0001", "0808", "08", mine, "080808"), nat64_local),
        "nat64, local /96": (made("0064ff9b0001", "0808080808", "08", mine), nat64_local),
        "6to4": (made("2002", mine, "0001", "00" * 8), "2002::/16"),
        "teredo client": (made("20010000", public, "0000ffff", flipped), "2001::/32"),
        "teredo server": (made("20010000", mine, "0000ffff", bytes(255 - b for b in public)), "2001::/32"),
        "isatap": (made("2600aaaa00000000", "00005efe", mine), "2600:aaaa::/32"),
        "isatap, public": (made("2600aaaa00000000", "02005efe", mine), "2600:aaaa::/32"),
    }


@settings(max_examples=examples(300), deadline=None)
@given(v4)
def test_an_address_inside_another_is_found_and_judged_though_the_outer_one_is_allowed(inner: IPv4Address) -> None:
    for name, (outer, network) in forms(inner).items():
        if int(outer) <= 1:
            continue  # ::0.0.0.0 and ::0.0.0.1 are the unspecified address and loopback themselves
        assert inner in hidden_in(outer), name
        if not public_v4(inner) or inner in METADATA:
            assert not passes(outer, network), name
        elif not name.startswith("nat64, local"):
            # there, the other readings of the same bits may be bad
            assert passes(outer, network), name


@pytest.mark.parametrize("name", [name for name in forms(IPv4Address("8.8.8.8")) if not name.startswith("isatap")])
def test_a_disguise_of_a_public_address_is_refused_unless_it_is_allowed(name: str) -> None:
    outer, network = forms(IPv4Address("8.8.8.8"))[name]
    assert not passes(outer)
    assert passes(IPv4Address("8.8.8.8"))
    if not name.startswith("nat64, local"):
        assert passes(outer, network)


@pytest.mark.parametrize("address", sorted(map(str, METADATA)))
def test_metadata_never_passes(address: str) -> None:
    everything = ("0.0.0.0/0", "::/0")
    found = IPv6Address(address) if ":" in address else IPv4Address(address)
    assert passes(IPv4Address("127.0.0.1"), *everything)
    assert not passes(found, *everything)
    if isinstance(found, IPv4Address):
        assert not any(passes(outer, *everything) for outer, _ in forms(found).values())
