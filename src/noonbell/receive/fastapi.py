"""Messages as a dependency of FastAPI: `Annotated[Received, Depends(received(receiver))]`.

An endpoint that returns has handled the message; one that raises has not, an HTTPException included. A response that
was made by hand counts as handled whatever its status is: raise instead.

The size is checked while the body is read, unless the endpoint also takes a body parameter: FastAPI has read it all by
then. Put `receiver.guard` around the application where that matters, or a limit in the server in front.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from fastapi import HTTPException, Request

from noonbell.errors import ReceiveError, WebhookTooLargeError
from noonbell.receive.asgi import answer_headers
from noonbell.receive.receiver import Received, Receiver


def received(receiver: Receiver) -> Callable[[Request], AsyncIterator[Received]]:
    """A dependency that verifies, and gives each message to the endpoint once."""

    async def message(request: Request) -> AsyncIterator[Received]:
        try:
            found = receiver.verify(request.headers.raw, await _body(request, receiver.longest_body))
            claim = await receiver.begin(found)
        except ReceiveError as error:
            raise HTTPException(error.status, error.reason, answer_headers(error)) from error
        try:
            yield found
        except BaseException:
            await receiver.forget(found, claim)
            raise
        await receiver.finish(found)

    return message


async def _body(request: Request, longest: int) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > longest:
            raise WebhookTooLargeError(f"the body has more than {longest} bytes")
    return bytes(body)
