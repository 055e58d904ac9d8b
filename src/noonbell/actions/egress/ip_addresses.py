"""The uses of IP addresses: which ranges are not the public internet, and which addresses hide inside others.

Pure. The tables follow the special-purpose address registries of IANA, read strictly: a range whose use is not plain
public unicast is listed even where some part of it is reachable in places. For IPv6 it is turned round: only 2000::/3
is global unicast, so what lies outside it is never public, whether a table has a word for it or not.

Nothing here decides: `policy` does.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

# The first that fits gives the word, so the narrow ones precede the wide ones.
_RANGES_V4: Final = tuple(
    (IPv4Network(network), word)
    for network, word in (
        ("0.0.0.0/32", "unspecified"),
        ("0.0.0.0/8", "of this network only"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a carrier's NAT"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved for protocols"),
        ("192.0.2.0/24", "for documentation"),
        ("192.88.99.0/24", "a 6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "for benchmarks"),
        ("198.51.100.0/24", "for documentation"),
        ("203.0.113.0/24", "for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("255.255.255.255/32", "broadcast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_RANGES_V6: Final = tuple(
    (IPv6Network(network), word)
    for network, word in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::ffff:0:0/96", "IPv4-mapped"),
        ("::ffff:0:0:0/96", "IPv4-translated"),
        ("::/96", "IPv4-compatible"),
        ("64:ff9b::/96", "NAT64"),
        ("64:ff9b:1::/48", "NAT64 for local use"),
        ("100::/64", "discarded"),
        ("2001::/32", "Teredo"),
        ("2001:2::/48", "for benchmarks"),
        ("2001::/23", "reserved for protocols"),
        ("2001:db8::/32", "for documentation"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "for documentation"),
        ("5f00::/16", "for segment routing"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")

# The addresses at which clouds hand out credentials to any process on a machine. One of them is public.
METADATA: Final[frozenset[Address]] = frozenset(
    {
        *map(
            IPv4Address,
            (
                "169.254.169.254",  # most clouds
                "169.254.169.253",  # name server of the same kind of place
                "169.254.170.2",  # credentials of containers
                "169.254.170.23",  # credentials of pods
                "169.254.0.23",
                "169.254.42.42",
                "100.100.100.200",
                "192.0.0.192",
                "168.63.129.16",  # public by its number, the host of the machine by its use
            ),
        ),
        *map(
            IPv6Address,
            (
                "fd00:ec2::254",
                "fd00:ec2::253",
                "fd00:ec2::23",
                "fd20:ce::254",
                "fd00:42::42",
                "fe80::a9fe:a9fe",
            ),
        ),
    }
)
METADATA_NAMES: Final = frozenset(
    {
        "instance-data",
        "instance-data.ec2.internal",
        "metadata",
        "metadata.azure.internal",
        "metadata.goog",
        "metadata.google.internal",
        "metadata.packet.net",
        "metadata.platformequinix.com",
        "metadata.tencentyun.com",
        "rancher-metadata",
    }
)

_NAT64_LOCAL: Final = IPv6Network("64:ff9b:1::/48")
# The prefixes of an IPv4 address in the last 32 bits: mapped, translated, compatible, NAT64.
_LAST_32_BITS: Final = frozenset(
    int(IPv6Address(prefix)) >> 32 for prefix in ("::ffff:0:0", "::ffff:0:0:0", "::", "64:ff9b::")
)
# The middle of an ISATAP interface id, for private and for public IPv4 addresses.
_ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})


def special_use(address: Address) -> str | None:
    """Return the use of the address in a word, or None if it is public unicast. Does not look inside it."""
    if isinstance(address, IPv4Address):
        return next((word for network, word in _RANGES_V4 if address in network), None)
    named = next((word for network, word in _RANGES_V6 if address in network), None)
    if named is None and address not in _GLOBAL_UNICAST:
        return "reserved"
    return named


def hidden_in(address: Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that a packet to this address may end up at, for every form that carries one.

    Where a form leaves open which bits carry it (a NAT64 prefix of unknown length), each possible reading is given: all
    of them have to be harmless.
    """
    if isinstance(address, IPv4Address):
        return ()
    bits = int(address)
    found: list[int] = []
    if bits >> 32 in _LAST_32_BITS and bits > 1:
        found.append(bits)
    elif address in _NAT64_LOCAL:
        # 32 bits from 48, 56 or 64 on, around the eight bits from 64 that stay empty; or the last 32
        found += [
            (bits >> 64 & 0xFFFF) << 16 | bits >> 40 & 0xFFFF,
            (bits >> 64 & 0xFF) << 24 | bits >> 32 & 0xFFFFFF,
            bits >> 24,
            bits,
        ]
    elif bits >> 112 == 0x2002:
        found.append(bits >> 80)
    elif bits >> 96 == 0x20010000:
        found += [bits >> 64, ~bits]
    if (bits >> 32 & 0xFFFFFFFF) in _ISATAP:
        found.append(bits)
    return tuple(IPv4Address(value & 0xFFFFFFFF) for value in found)


def layers_of(address: Address) -> tuple[Address, ...]:
    """The address and all that hide in it."""
    return (address, *hidden_in(address))
