"""By what an address is counted, where requests and failed logins are.

An IPv6 connection comes with 2^64 addresses and more: those of one network count as one. The address itself stays
as it is in logs and in the audit.
"""

from __future__ import annotations

import ipaddress
from typing import Final

_PREFIX: Final = 64


def counted_as(address: str) -> str:
    """The IPv4 address, or the /64 network of an IPv6 address; what is neither counts as it is written."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _PREFIX), strict=False))
