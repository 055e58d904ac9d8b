"""`Egress`, the one way out: every connection whose target a user chose is made here.

The way of a connection:

    1. The host is read strictly (`hosts`), so that no library down the line reads it differently.
    2. A name is looked up, once, in `look_up`; a literal address needs no look-up.
    3. Every address is judged (`policy`). One bad address refuses the whole name: an honest name has no such mix, and
       to use the good ones would let the order of an answer decide.
    4. The socket is made for an address that passed. It is not looked up again, so an answer that changes in between
       is never seen. `open_socket` judges once more, since clients do not ask a resolver about literal addresses.

Redirects begin again at 1. What is not promised: that an address that passed is harmless, or, with a proxy, what the
proxy connects to.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl as tls
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec

from noonbell.actions.egress.failures import failure_of
from noonbell.actions.egress.hosts import Host, read_host, read_port
from noonbell.actions.egress.ip_addresses import Address
from noonbell.actions.egress.policy import EgressPolicy
from noonbell.actions.egress.resolver_threads import ResolverThreads
from noonbell.errors import EgressFailedError, EgressRefusedError

if TYPE_CHECKING:
    import aiohttp

    from noonbell.actions.egress.client import AiohttpClient

T = TypeVar("T")

LookUp: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host name and port to the texts of its addresses; raises OSError where there is none."""

_MOST_ADDRESSES: Final = 64
# As many as there are requests under way by default; a name server that does not answer holds up its callers.
_resolvers: Final = ResolverThreads(256)


class ApprovedRoute(msgspec.Struct, frozen=True):
    """Leave to connect: the host, the port, and the addresses that were judged good for them."""

    host: Host
    port: int
    addresses: tuple[Address, ...]

    def covers(self, address: Address, port: int) -> bool:
        return port == self.port and address in self.addresses


# What the task that is connecting was given leave for. The resolver of a session sets it and its socket factory reads
# it; both run in that task, or in one that was made from it.
current_passage: ContextVar[ApprovedRoute | None] = ContextVar("noonbell_egress_passage", default=None)


async def look_up(host: str, port: int) -> Sequence[str]:
    """Ask the system's resolver. The only place of the package that does."""
    found = await _resolvers.ask(
        lambda: socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_ADDRCONFIG
        )
    )
    return [str(sockaddr[0]) for _, _, _, _, sockaddr in found]


class Egress:
    """Connections under one policy. Cheap to make; holds nothing open itself.

    `look_up` replaces the system's resolver, and `tls` the usual context for verified TLS.
    """

    def __init__(
        self, policy: EgressPolicy | None = None, *, look_up: LookUp = look_up, tls: tls.SSLContext | None = None
    ) -> None:
        self.policy = policy or EgressPolicy()
        self.tls = tls
        self._look_up = look_up

    async def admit(self, host: str, port: int) -> ApprovedRoute:
        """Look a host up and judge every address of it.

        Raises:
            EgressRefusedError: the host or one of its addresses may not be reached.
            EgressFailedError: `dns`: the name has no address.
        """
        read = read_host(host)
        read_port(port, read.text)
        self.policy.check_host(read)
        addresses = (read.address,) if read.address is not None else await self._addresses(read, port)
        for address in addresses:
            self.policy.check(address, port, read)
        return ApprovedRoute(read, port, addresses)

    async def _addresses(self, host: Host, port: int) -> tuple[Address, ...]:
        where = host.at(port)
        try:
            texts = await self._look_up(host.text, port)
        except (OSError, UnicodeError):
            raise EgressFailedError("dns", where, "the name could not be resolved") from None
        if not texts:
            raise EgressFailedError("dns", where, "the name has no address")
        if len(texts) > _MOST_ADDRESSES:
            raise EgressFailedError("dns", where, f"the name has more than {_MOST_ADDRESSES} addresses")
        return tuple(dict.fromkeys(_read_address(text, where) for text in texts))

    def open_socket(self, address_info: tuple[Any, ...]) -> socket.socket:
        """Make the socket for an entry as of `getaddrinfo`, if its address may be reached. Does not connect it.

        Raises:
            EgressRefusedError: neither the passage of this task nor the policy covers the address.
        """
        family, kind, protocol, _, sockaddr = address_info
        if family not in (socket.AF_INET, socket.AF_INET6):
            raise EgressRefusedError("the socket", f"of family {family!r:.50} is not allowed; only IPv4 and IPv6 are")
        port = int(sockaddr[1])
        address = _read_address(str(sockaddr[0]), f"port {port}")
        passage = current_passage.get()
        if passage is None or not passage.covers(address, port):
            self.policy.check(address, read_port(port, str(address)))
        made = socket.socket(family, kind, protocol)
        made.settimeout(0)
        return made

    async def open_connection(
        self, host: str, port: int, *, ssl: bool | tls.SSLContext = False, seconds: float = 10.0, limit: int = 65_536
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Streams to a host, for protocols other than HTTP. `ssl` turns TLS on, verified unless the context differs.

        The addresses are tried in their order, all within `seconds`, look-up and TLS included. `limit` is the
        buffer of the reader.

        Raises:
            EgressRefusedError: the host or one of its addresses may not be reached.
            EgressFailedError: no address answered; `kind` says how the last one failed.
        """
        where = read_host(host).at(read_port(port, host[:100]))
        context = ssl if isinstance(ssl, tls.SSLContext) else self._verified() if ssl else None
        try:
            async with asyncio.timeout(seconds):
                passage = await self.admit(host, port)
                name = passage.host.text if context is not None else None

                async def streams(made: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
                    return await asyncio.open_connection(sock=made, ssl=context, server_hostname=name, limit=limit)

                return await self._first_that_answers(passage, streams)
        except TimeoutError:
            raise EgressFailedError("timeout", where, f"no connection within {seconds:g} s") from None

    async def connect(self, host: str, port: int, *, seconds: float = 10.0) -> socket.socket:
        """A connected socket, for libraries that speak a protocol over one of ours. Raises as `open_connection`."""
        where = read_host(host).at(read_port(port, host[:100]))
        try:
            async with asyncio.timeout(seconds):
                return await self._first_that_answers(await self.admit(host, port), _as_it_is)
        except TimeoutError:
            raise EgressFailedError("timeout", where, f"no connection within {seconds:g} s") from None

    async def _first_that_answers(self, passage: ApprovedRoute, then: Callable[[socket.socket], Awaitable[T]]) -> T:
        """Connect to the addresses in their order, until one answers and `then` makes of it what is wanted."""
        last: BaseException | None = None
        token = current_passage.set(passage)
        try:
            for address in passage.addresses:
                made = self.open_socket(_info(address, passage.port))
                try:
                    await asyncio.get_running_loop().sock_connect(made, _sockaddr(address, passage.port))
                    return await then(made)
                except OSError as error:
                    made.close()
                    if isinstance(error, TimeoutError) and error.errno is None:
                        raise
                    last = error
                except BaseException:
                    made.close()
                    raise
        finally:
            current_passage.reset(token)
        raise failure_of(last or OSError(), passage.host.at(passage.port)) from None

    def _verified(self) -> tls.SSLContext:
        return self.tls or tls.create_default_context()

    def session(self, *, limit: int = 100, limit_per_host: int = 0, **options: Any) -> aiohttp.ClientSession:
        """A session of aiohttp whose every connection is judged here. See `client.make_session`."""
        from noonbell.actions.egress.client import make_session  # noqa: PLC0415 - aiohttp is heavy, and an extra

        return make_session(self, limit=limit, limit_per_host=limit_per_host, **options)

    def client(self, *, limit: int = 100, limit_per_host: int = 0) -> AiohttpClient:
        """Return an `HttpClient` over such a session. Call it within a running loop, and close the client."""
        from noonbell.actions.egress.client import AiohttpClient  # noqa: PLC0415 - as above

        return AiohttpClient(self, limit=limit, limit_per_host=limit_per_host)


async def _as_it_is(made: socket.socket) -> socket.socket:
    return made


def _read_address(text: str, where: str) -> Address:
    with contextlib.suppress(ValueError):
        if "%" not in text:
            return ip_address(text)
    raise EgressRefusedError(where, "the look-up answered with something that is not a plain address")


def _sockaddr(address: Address, port: int) -> tuple[Any, ...]:
    return (str(address), port) if address.version == 4 else (str(address), port, 0, 0)


def _info(address: Address, port: int) -> tuple[Any, ...]:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    return family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", _sockaddr(address, port)
