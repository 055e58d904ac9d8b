"""The address of a Redis timeline, and what of it may be shown.

    redis://HOST:6379/0      rediss:// for TLS, unix:// for a socket; user and password as in every Redis address
    ?shards=4                over how many sorted sets a lane is spread; 1 unless scheme otherwise
    ?namespace=NAME          whose set it is; without it every database has a name of its own
    ?max_connections=64      how many connections there are at most; who comes when all are busy waits

What is left of the query goes to the client, but for options that would change its answers. Errors never repeat the
address: it may hold a password.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from noonbell.errors import TimelineError

_SCHEMES: Final = ("redis", "rediss", "unix")
_MOST: Final = 1024
# Answers have to be bytes, as they were sent.
_NOT_OURS: Final = ("decode_responses", "encoding", "encoding_errors")
_RIGHT: Final = "right is redis://HOST:6379/0, rediss:// for TLS, or unix:///PATH for a socket"


class Address(NamedTuple):
    """The address of the server and the layout of the set on it."""

    url: str
    shards: int
    namespace: str | None
    connections: int


def read_address(url: str) -> Address:
    """The parts of an address; raises TimelineError, without a word of the password that may be in it."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except (AttributeError, TypeError, ValueError):
        raise TimelineError(f"The address of the timeline cannot be read; {_RIGHT}") from None
    if parts.scheme not in _SCHEMES:
        scheme = f'"{parts.scheme}:"' if re.fullmatch(r"[a-z][a-z0-9+.-]*", parts.scheme) else "it"
        raise TimelineError(f"The address of the timeline: {scheme} is not a scheme of Redis; {_RIGHT}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    shards = _number("shards", options.pop("shards", "1"))
    connections = _number("max_connections", options.pop("max_connections", "64"))
    namespace = options.pop("namespace", None)
    if namespace is not None and not namespace.strip():
        raise TimelineError("The address of the timeline: namespace is blank; give it a name, or leave it out")
    for name in _NOT_OURS:
        if name in options:
            raise TimelineError(f"The address of the timeline: {name} cannot be chosen; leave it out")
    return Address(urlunsplit(parts._replace(query=urlencode(options))), shards, namespace, connections)


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", text) or not 1 <= int(text) <= _MOST:
        right = f"must be a whole number from 1 to {_MOST}"
        raise TimelineError(f"The address of the timeline: {name} {text!r:.20} {right}")
    return int(text)


def at_node(url: str, host: str, port: int) -> str:
    """The same address at another node of its cluster."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}{at}{f'[{host}]' if ':' in host else host}:{port}"))


def shown(url: str) -> str:
    """An address without user, password and options."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(an address that cannot be read)"
    place = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{'***@' if '@' in parts.netloc else ''}{place}{parts.path}"


def without_secrets(said: str, url: str) -> str:
    """Return the client's message without the parts of the address that it may repeat."""
    cleaned = said.replace(url, shown(url))
    try:
        password = urlsplit(url).password
    except ValueError:
        password = None
    return cleaned.replace(password, "***") if password else cleaned
