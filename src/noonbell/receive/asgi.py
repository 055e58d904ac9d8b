"""A guard around any ASGI application: it sees only messages that are genuine, recent and new.

The body is read and checked before the application is called, and given to it as if it had just come. The message
itself is at `scope["noonbell.received"]`. An answer of 2xx means that the message was handled, and is noted before
the answer goes out; any other, or an error, means that it was not. Messages that are not let through are answered
here, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from noonbell.errors import ReceiveError, WebhookTooLargeError

if TYPE_CHECKING:
    from noonbell.receive.receiver import Receiver

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

SCOPE_KEY: Final = "noonbell.received"
# Seconds, sent to a sender that should try again.
RETRY_AFTER: Final = 5


class GuardedApp:
    """`app` behind a receiver. Lifespan events go through; WebSockets, which carry no signature, are closed."""

    def __init__(self, app: ASGIApp, receiver: Receiver) -> None:
        self._app = app
        self._receiver = receiver

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                await self._http(scope, receive, send)
            except _SenderGoneError:
                return
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await _whole_body(scope, receive, self._receiver.longest_body)
            message = self._receiver.verify(scope["headers"], body)
            claim = await self._receiver.begin(message)
        except ReceiveError as error:
            await _answer(send, error)
            return
        handled = False

        async def watched(event: Message) -> None:
            nonlocal handled
            if event["type"] == "http.response.start" and 200 <= event["status"] < 300:
                await self._receiver.finish(message)
                handled = True
            await send(event)

        try:
            await self._app({**scope, SCOPE_KEY: message}, _replayed(body, receive), watched)
        finally:
            if not handled:
                await self._receiver.forget(message, claim)


class _SenderGoneError(Exception):
    """The connection ended before the body was there."""


async def _whole_body(scope: Scope, receive: Receive, longest: int) -> bytes:
    for name, value in scope["headers"]:
        if name.lower() == b"content-length" and value.isdigit() and int(value[:20]) > longest:
            raise WebhookTooLargeError(f"the body has more than {longest} bytes")
    body = bytearray()
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise _SenderGoneError
        body += event.get("body", b"")
        if len(body) > longest:
            raise WebhookTooLargeError(f"the body has more than {longest} bytes")
        if not event.get("more_body", False):
            return bytes(body)


def _replayed(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def answer_headers(error: ReceiveError) -> dict[str, str]:
    """Return the headers of an answer that is not the application's own."""
    if error.status == 200:
        return {"noonbell-repeated": "true"}
    return {"retry-after": str(RETRY_AFTER)} if error.status in {409, 503} else {}


async def _answer(send: Send, error: ReceiveError) -> None:
    body = json.dumps({"detail": error.reason}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **answer_headers(error)}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
