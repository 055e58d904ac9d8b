"""The egress policy: the operator's rules, and the verdict on an address.

Everything that is not public is refused. `allow` makes exceptions, each as narrow as the operator writes it:

    10.20.0.0/16         every port of a network
    10.20.0.7            every port of an address
    10.20.0.7:8080       one port of an address; [fd12::7]:8080 for IPv6
    hooks.internal:8080  whatever that name resolves to, on that port

Where an IPv6 address carries an IPv4 address, both are judged, and both have to pass: on a network with NAT64 the
operator allows 64:ff9b::/96, and 64:ff9b::7f00:1 is still loopback. The addresses where clouds hand out credentials are
never let through, whatever `allow` says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network

from noonbell.actions.egress.hosts import Host, Target, read_host, read_port, read_url
from noonbell.actions.egress.ip_addresses import METADATA, METADATA_NAMES, Address, Network, layers_of, special_use
from noonbell.errors import EgressPolicyInvalidError, EgressRefusedError


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """The rules of one way out. See the module for `allow`.

    `allow_http` and `allow_unverified` say whether plain HTTP, and TLS whose certificate is not looked at, may be asked
    for at all. `proxy` is the URL of an HTTP proxy for HTTP requests; the variables of the environment never are. Names
    are then resolved by the proxy, which has to hold these rules itself: only literal addresses can be judged here.
    """

    allow: tuple[str, ...] = ()
    allow_http: bool = True
    allow_unverified: bool = True
    proxy: str | None = field(default=None, repr=False)
    _networks: tuple[tuple[Network, int | None], ...] = field(init=False, repr=False, compare=False)
    _names: frozenset[tuple[str, int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given: object = self.allow
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise EgressPolicyInvalidError("allow", self.allow, "must be a list of networks and hosts, not one text")
        networks: list[tuple[Network, int | None]] = []
        names: set[tuple[str, int]] = set()
        for entry in self.allow:
            place, port = _read_entry(entry)
            if isinstance(place, Host):
                names.add((place.text, _named_port(entry, port)))
            else:
                networks.append((place, port))
        if self.proxy is not None:
            target = self.proxy_target()
            if target.host.address is not None:
                networks.append((ip_network(target.host.address), target.port))
            else:
                names.add((target.host.text, target.port))
        # the only way to set what a frozen record derives from its own fields
        object.__setattr__(self, "allow", tuple(self.allow))
        object.__setattr__(self, "_networks", tuple(networks))
        object.__setattr__(self, "_names", frozenset(names))

    def proxy_target(self) -> Target:
        """The proxy, taken apart; only where there is one."""
        try:
            return read_url(self.proxy or "")
        except EgressRefusedError as error:
            raise EgressPolicyInvalidError("proxy", "(not shown)", error.reason) from None

    def check_host(self, host: Host) -> None:
        """Refuse the names of metadata services, before they are looked up."""
        if host.text in METADATA_NAMES:
            raise EgressRefusedError(host.text, "a name of cloud metadata is never let through")

    def check(self, address: Address, port: int, host: Host | None = None) -> None:
        """Judge an address and port, reached as `host` if by a name.

        Raises:
            EgressRefusedError: it, or an address inside it, may not be reached.
        """
        metadata, special = _facts(address)
        if metadata:
            raise EgressRefusedError(_shown(address, port, host), "an address of cloud metadata is never let through")
        if not special or (host is not None and (host.text, port) in self._names):
            return
        for layer, use in special:
            if not self._allows(layer, port):
                what = _what(layer, address, host)
                raise EgressRefusedError(
                    _shown(address, port, host), f"{what} {use}, and the allow-list does not name it"
                )

    def _allows(self, address: Address, port: int) -> bool:
        return any(
            address.version == network.version and address in network and allowed in (None, port)
            for network, allowed in self._networks
        )


@lru_cache(maxsize=4096)
def _facts(address: Address) -> tuple[bool, tuple[tuple[Address, str], ...]]:
    """Return whether metadata is there or inside, and the layers of the address that are not public, with their use."""
    layers = layers_of(address)
    uses = ((layer, special_use(layer)) for layer in layers)
    return any(layer in METADATA for layer in layers), tuple((layer, use) for layer, use in uses if use is not None)


def _shown(address: Address, port: int, host: Host | None) -> str:
    # the address of a name inside the operator's network is not shown to the user who typed the name
    return host.at(port) if host is not None else Host(str(address)).at(port)


def _what(layer: Address, address: Address, host: Host | None) -> str:
    if host is not None and host.address is None:
        return "an address of this name is" if layer == address else "an address of this name carries one that is"
    return "the address is" if layer == address else f"it carries {layer}, which is"


def _read_entry(entry: object) -> tuple[Network | Host, int | None]:
    if not isinstance(entry, str):
        raise EgressPolicyInvalidError("allow", entry, "must be a text, such as 10.0.0.0/8 or hooks.internal:8080")
    if "/" in entry:
        try:
            return ip_network(entry), None
        except ValueError as error:
            raise EgressPolicyInvalidError("allow", entry, f"is not a network: {error}") from None
    text, port = _split(entry)
    try:
        host = read_host(text)
        number = None if port is None else read_port(port, text)
    except EgressRefusedError as error:
        raise EgressPolicyInvalidError("allow", entry, error.reason) from None
    if host.text in METADATA_NAMES or host.address in METADATA:
        raise EgressPolicyInvalidError("allow", entry, "names cloud metadata, which is never let through")
    if host.address is None:
        return host, number
    network: IPv4Network | IPv6Network = ip_network(host.address)
    return network, number


def _split(entry: str) -> tuple[str, int | None]:
    bare_ipv6 = entry.count(":") > 1 and not entry.startswith("[")
    if bare_ipv6 or entry.endswith("]") or ":" not in entry:
        return entry, None
    text, _, port = entry.rpartition(":")
    if not (port.isascii() and port.isdigit()):
        raise EgressPolicyInvalidError("allow", entry, "its port is not a number from 1 to 65535")
    return text, int(port)


def _named_port(entry: str, port: int | None) -> int:
    if port is None:
        raise EgressPolicyInvalidError("allow", entry, f"a name is allowed with a port, such as {entry:.200}:443")
    return port
