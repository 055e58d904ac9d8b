"""Reading hosts and URLs in one way only, the strict one.

A host is a dotted IPv4 address, an IPv6 address, or a DNS name. What programs read as an address although it is not
written like one (`127.1`, `0x7f000001`, `2130706433`, full-width digits, a dot behind it) is refused rather than
understood: two readers that differ about a text are how a check is walked around. What comes out is canonical, and the
client is given that, never the text that came in.

Errors name the host, and nothing else of a URL: the rest may hold secrets.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from urllib.parse import unquote

import msgspec

from noonbell.actions.egress.ip_addresses import Address
from noonbell.errors import EgressRefusedError

_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^#]*)(?:#.*)?", re.DOTALL)
_PORT: Final = re.compile(r"[0-9]{1,5}", re.ASCII)
_NOT_IN_A_PLACE: Final = re.compile(r"[\\\s]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PORTS: Final = {"http": 80, "https": 443}
_LONGEST_URL: Final = 16_384


class Host(msgspec.Struct, frozen=True):
    """A host as it will be asked for: lower-case ASCII without a dot behind it. `address` is there for a literal."""

    text: str
    address: Address | None = None

    def at(self, port: int) -> str:
        return f"[{self.text}]:{port}" if ":" in self.text else f"{self.text}:{port}"


class Target(msgspec.Struct, frozen=True):
    """An HTTP URL, taken apart. `rest` is path and query as they were given."""

    scheme: str
    host: Host
    port: int
    rest: str
    userinfo: tuple[str, str] | None = None

    def __repr__(self) -> str:
        return f"<Target {self.scheme} {self.where}>"

    @property
    def where(self) -> str:
        """Return host and port, which is all that may be shown of a target."""
        return self.host.at(self.port)

    @property
    def url(self) -> str:
        """The URL without user and password."""
        return f"{self.scheme}://{self.authority}{self.rest}"

    @property
    def authority(self) -> str:
        """Host, and port where it is not the usual one: as the header Host has them."""
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        host = f"[{self.host.text}]" if ":" in self.host.text else self.host.text
        return f"{host}{port}"


def read_port(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65_535:
        raise EgressRefusedError(where, f"port {value!r:.20} is none; a port is a whole number from 1 to 65535")
    return value


@lru_cache(maxsize=4096)
def read_host(text: str) -> Host:
    """The host that a text names, in canonical form.

    Raises:
        EgressRefusedError: it is not a host, or written in a way that other programs may read differently.
    """
    shown = _CONTROL.sub("?", text[:100])
    if not text or len(text) > 1000:
        raise EgressRefusedError(shown, "a host has 1 to 253 characters")
    if "%" in text:
        raise EgressRefusedError(shown, "percent signs and zone ids have no place in a host")
    if ":" in text or text.startswith("["):
        return _ipv6(text, shown)
    name = text if text.isascii() else _to_ascii(text, shown)
    name = name.lower().removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(text, shown)
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise EgressRefusedError(shown, "is not a host name; a name is made of labels of letters, digits and hyphens")
    return Host(name)


def _ipv4(text: str, shown: str) -> Host:
    # only the plain form gets here unharmed: four numbers in ASCII digits, no zero before them, nothing behind
    try:
        address = IPv4Address(text)
    except ValueError:
        raise EgressRefusedError(
            shown, "reads as an odd notation of an address; write an address as four decimal numbers, e.g. 192.0.2.1"
        ) from None
    return Host(str(address), address)


def _ipv6(text: str, shown: str) -> Host:
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        address = IPv6Address(inner)
    except ValueError:
        raise EgressRefusedError(shown, "is neither an IPv6 address nor a name") from None
    return Host(str(address), address)


def _to_ascii(text: str, shown: str) -> str:
    try:
        import idna  # noqa: PLC0415 - comes with the HTTP client, and is needed for such names only
    except ImportError:
        raise EgressRefusedError(
            shown, "is not ASCII; write it in its xn-- form, or install noonbell[server]"
        ) from None
    try:
        return idna.encode(text, uts46=True, std3_rules=True).decode("ascii")
    except UnicodeError:
        raise EgressRefusedError(shown, "is not an international host name") from None


@lru_cache(maxsize=4096)
def read_url(text: str) -> Target:
    """Take an http or https URL apart.

    Raises:
        EgressRefusedError: it is not such a URL, or its host is refused by `read_host`.
    """
    if len(text) > _LONGEST_URL:
        raise EgressRefusedError("the URL", f"is longer than {_LONGEST_URL} characters")
    if _CONTROL.search(text):
        raise EgressRefusedError("the URL", "holds a control character or a line break")
    found = _URL.fullmatch(text)
    scheme = found[1].lower() if found else ""
    if found is None or scheme not in _PORTS:
        raise EgressRefusedError("the URL", "must begin with http:// or https://")
    userinfo, _, place = found[2].rpartition("@")
    if _NOT_IN_A_PLACE.search(found[2]):
        raise EgressRefusedError("the URL", "holds a backslash or a space where the host should be")
    host_text, port_text = _split_port(place)
    host = read_host(host_text)
    if ":" in host_text and not host_text.startswith("["):
        raise EgressRefusedError(host.text, "an IPv6 address must be in brackets within a URL")
    port = _PORTS[scheme] if port_text is None else _url_port(port_text, host)
    rest = found[3] if found[3].startswith("/") else "/" + found[3]
    return Target(scheme, host, port, rest, _userinfo(userinfo) if userinfo else None)


def _split_port(place: str) -> tuple[str, str | None]:
    if place.startswith("["):
        host, bracket, after = place.partition("]")
        if after and not after.startswith(":"):
            raise EgressRefusedError("the URL", "has something between the bracket of its host and the port")
        return host + bracket, after[1:] if after else None
    host, colon, port = place.rpartition(":")
    return (host, port) if colon else (place, None)


def _url_port(text: str, host: Host) -> int:
    if not _PORT.fullmatch(text):
        raise EgressRefusedError(host.text, "its port is not a number from 1 to 65535")
    return read_port(int(text), host.text)


def _userinfo(text: str) -> tuple[str, str]:
    user, _, password = text.partition(":")
    return unquote(user), unquote(password)
