"""One HTTP exchange as plain records, and the seam behind which the client can be changed.

`HttpClient` is all that the rest of the package knows of a client. Nothing here touches the network.
"""

from __future__ import annotations

import re
import ssl
from functools import lru_cache
from typing import Final, Protocol

import msgspec

from noonbell.errors import EgressRefusedError

BODY_LIMIT: Final = 1_048_576
MOST_REDIRECTS: Final = 5

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}", re.ASCII)
_NOT_IN_A_VALUE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_LONGEST_VALUE: Final = 8_190
_ALWAYS: Final = (("User-Agent", "Noonbell"), ("Accept", "*/*"), ("Accept-Encoding", "gzip, deflate"))
_WITHOUT_LENGTH: Final = frozenset({"GET", "HEAD", "OPTIONS"})

# The client's own: a caller that set them could make one request look like two, or speak to another host than the URL
# says. `Accept-Encoding` is free, but only what this side can unpack with a bound is asked for by default.
_RESERVED: Final = frozenset(
    "connection content-length expect host http2-settings keep-alive proxy-authorization proxy-connection te trailer "
    "transfer-encoding upgrade".split()
)


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A request to send.

    `redirects` says how many may be followed (0 to 5). A body longer than `body_limit` bytes is cut there, or, with
    `refuse_large`, ends the exchange with the kind `too-large`. `connect_seconds` bounds the look-up of a name, and
    again the way to each of its addresses with its TLS; `total_seconds` bounds everything together. `tls` replaces the
    usual context of this request.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    connect_seconds: float = 10.0
    total_seconds: float = 30.0
    redirects: int = 0
    body_limit: int = BODY_LIMIT
    refuse_large: bool = False
    verify: bool = True
    tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        # URL, headers and body may hold secrets, and a repr ends up in logs
        return f"<Outgoing {self.method:.20} ({len(self.headers)} headers, {len(self.body or b'')} bytes)>"


class Incoming(msgspec.Struct, frozen=True, gc=False):
    """The answer.

    `body` is unpacked where the server packed it with gzip or deflate, and `cut` says that there was more. A body
    packed in another way is kept as it came, and `packed` names that way. `url` is the one that answered, without user
    and password; `redirects` counts how many led there. `seconds` is the time from the start to the end.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    cut: bool
    packed: str
    url: str
    redirects: int
    seconds: float

    def __repr__(self) -> str:
        return f"<Incoming {self.status} ({len(self.headers)} headers, {len(self.body)} bytes{', cut' * self.cut})>"

    def header(self, name: str) -> str | None:
        """The first value of a header, whatever the case of its name."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)


def headers_of(request: Outgoing) -> tuple[tuple[str, str], ...]:
    """The headers of a request, and those that are sent with every one."""
    given = {name.lower() for name, _ in request.headers}
    return (*request.headers, *((name, value) for name, value in _ALWAYS if name.lower() not in given))


def length_of(method: str, body: bytes | None) -> int | None:
    """The Content-Length that is sent; None where there is none."""
    if body is not None:
        return len(body)
    return None if method in _WITHOUT_LENGTH else 0


class HttpClient(Protocol):
    """Whatever sends requests. Every connection it makes has gone through an `Egress`."""

    async def fetch(self, request: Outgoing) -> Incoming:
        """Send a request and read its answer.

        Raises:
            EgressRefusedError: it was not let out.
            EgressFailedError: it was, and failed; `kind` says how.
        """
        ...

    async def close(self) -> None:
        """Close what is open; nothing can be sent afterwards."""
        ...


def check_outgoing(request: Outgoing) -> None:
    """Refuse a request that is not well-formed, without repeating a value of it."""
    if not _TOKEN.fullmatch(request.method) or request.method.upper() in {"CONNECT", "TRACE"}:
        raise EgressRefusedError("the request", "its method must be one such as GET or POST; not CONNECT or TRACE")
    if not 0 <= request.redirects <= MOST_REDIRECTS:
        raise EgressRefusedError("the request", f"redirects {request.redirects} must be from 0 to {MOST_REDIRECTS}")
    if request.body_limit < 0 or request.connect_seconds <= 0 or request.total_seconds <= 0:
        raise EgressRefusedError("the request", "its time limits must be above zero and its body limit not below it")
    for name, value in request.headers:
        _check_header(name, value)


def _check_header(name: str, value: str) -> None:
    _check_name(name)
    # what is printable holds no control character; that is quickly found out
    if len(value) > _LONGEST_VALUE or (not value.isprintable() and _NOT_IN_A_VALUE.search(value)):
        raise EgressRefusedError(
            "the request",
            f"the value of header {name} holds a control character, half a character, or more than {_LONGEST_VALUE}",
        )


@lru_cache(maxsize=1024)
def _check_name(name: str) -> None:
    if not _TOKEN.fullmatch(name):
        raise EgressRefusedError("the request", "has an invalid header name: letters, digits and hyphens only")
    if name.lower() in _RESERVED:
        raise EgressRefusedError("the request", f"sets the header {name}, which is made from the URL and the body")
