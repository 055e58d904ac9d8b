"""Servers on the loopback interface that notices are sent to: one for HTTP, one for mail. Both remember what came."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, NamedTuple

import msgspec
from aiohttp import web
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.patience import PATIENCE_SECONDS


class Came(NamedTuple):
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return msgspec.json.decode(self.body, type=dict[str, Any])


class Arrivals:
    """What came, in order, and a way to wait for it."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self.count = 0

    async def note(self) -> None:
        async with self._changed:
            self.count += 1
            self._changed.notify_all()

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), self._changed:
            await self._changed.wait_for(lambda: self.count >= count)


class Hook(Arrivals):
    """An HTTP server. Answers 200 `ok`, or what `answers` holds for the next requests; with `hold` it hangs."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.url = f"http://127.0.0.1:{port}"
        self.place = f"127.0.0.1:{port}"
        self.came: list[Came] = []
        self.answers: list[tuple[int, str]] = []
        self.hold: asyncio.Event | None = None

    async def answer(self, request: web.Request) -> web.Response:
        self.came.append(Came(request.path, request.headers.copy(), await request.read()))
        await self.note()
        if self.hold is not None:
            await self.hold.wait()
        status, text = self.answers.pop(0) if self.answers else (200, "ok")
        return web.Response(status=status, text=text)


@asynccontextmanager
async def hook_server() -> AsyncIterator[Hook]:
    holder: list[Hook] = []

    async def handle(request: web.Request) -> web.Response:
        return await holder[0].answer(request)

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    holder.append(Hook(int(runner.addresses[0][1])))
    yield holder[0]
    if holder[0].hold is not None:
        holder[0].hold.set()
    await runner.cleanup()


class MailBox(Arrivals):
    """A mail server. It refuses the recipients in `refused`, and knows one user."""

    def __init__(self) -> None:
        super().__init__()
        self.port = 0
        self.mails: list[EmailMessage] = []
        self.recipients: list[list[str]] = []
        self.logins: list[tuple[bytes, bytes]] = []
        self.encrypted: list[bool] = []
        self.refused: set[str] = set()
        self.password = b"right horse battery"

    async def handle_RCPT(  # noqa: N802 - the name is aiosmtpd's
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refused:
            return "550 5.1.1 nobody of that name"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - as above
        content = envelope.content
        assert isinstance(content, bytes)
        self.mails.append(message_from_bytes(content, policy=policy.default))
        self.recipients.append(list(envelope.rcpt_tos))
        self.encrypted.append(session.ssl is not None)
        await self.note()
        return "250 2.0.0 queued as 42"

    def authenticate(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.logins.append((data.login, data.password))
        return AuthResult(success=data.password == self.password, handled=False)


@asynccontextmanager
async def mail_server(tls: ssl.SSLContext | None = None, *, at_once: bool = False) -> AsyncIterator[MailBox]:
    """With a context it offers STARTTLS, or, `at_once`, speaks TLS from the beginning."""
    box = MailBox()

    open_now: set[asyncio.BaseTransport] = set()

    class Counted(SMTP):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            open_now.add(transport)
            super().connection_made(transport)

    def factory() -> SMTP:
        return Counted(
            box,
            hostname="mail.test",
            tls_context=None if at_once else tls,
            authenticator=box.authenticate,
            auth_require_tls=not at_once,
            loop=asyncio.get_running_loop(),
        )

    server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0, ssl=tls if at_once else None)
    box.port = server.sockets[0].getsockname()[1]
    yield box
    server.close()
    for transport in open_now:
        transport.close()
    for _ in range(5):  # a transport closes in steps of the loop
        await asyncio.sleep(0)
