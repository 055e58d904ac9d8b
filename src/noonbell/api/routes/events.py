"""Live changes as server-sent events.

    curl -N -H "Authorization: Bearer …" https://…/api/v1/events

    id: 3f2a91c0-17
    event: run
    data: {"run_id": "…", "schedule_id": "…", "state": "succeeded", …}

Each kind of event is told in `schedules/live.py`. A client that comes back with `Last-Event-ID` gets what it missed, or
a `reset` where that is not known any more. A line of comment every 15 seconds keeps the connection alive. A client that
does not read is cut off after a while: nothing is kept for it, and it loses nothing that it cannot look up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Header, Response

from noonbell.api.callers import Reading
from noonbell.api.deps import Serving
from noonbell.api.problems import ProblemError, problems
from noonbell.schedules.live import LiveEvent

router = APIRouter(tags=["events"])

MOST_READERS: Final = 500
SEND_SECONDS: Final = 20.0
IDLE_SECONDS: Final = 15.0

LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=100, description="Go on after the event of this id.")
]


class EventStream(Response):
    """A response that lasts. It ends when the client goes, does not read for too long, or the service stops."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncIterator[LiveEvent | None],
        stopping: asyncio.Event,
        *,
        send_seconds: float = SEND_SECONDS,
    ) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no", "Cache-Control": "no-store"})
        self._events = events
        self._stopping = stopping
        self._send_seconds = send_seconds

    async def __call__(
        self,
        scope: MutableMapping[str, Any],  # noqa: ARG002 - as every ASGI application is called
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        sending = asyncio.ensure_future(self._send(send))
        ends = [sending, asyncio.ensure_future(_gone(receive)), asyncio.ensure_future(self._stopping.wait())]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self._stopping.is_set() and not sending.done():
                sending.cancel()
                await asyncio.wait([sending])
                async with asyncio.timeout(1):  # a clean end, for those who read
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            pass  # and none for those who do not
        finally:
            for task in ends:
                task.cancel()
            await asyncio.gather(*ends, return_exceptions=True)

    async def _send(self, send: Callable[[MutableMapping[str, Any]], Awaitable[None]]) -> None:
        async def write(text: str, *, more: bool = True) -> None:
            async with asyncio.timeout(self._send_seconds):
                await send({"type": "http.response.body", "body": text.encode(), "more_body": more})

        await write(": hello\nretry: 2000\n\n")
        async with aclosing(self._events) as events:  # type: ignore[type-var]  # a generator, which can be closed
            async for event in events:
                await write(": still here\n\n" if event is None else written(event))
        await write("", more=False)


async def _gone(receive: Callable[[], Awaitable[MutableMapping[str, Any]]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def written(event: LiveEvent) -> str:
    """An event as it goes over the wire; JSON has no line breaks of its own."""
    return f"id: {event.id}\nevent: {event.kind}\ndata: {msgspec.json.encode(event.data).decode()}\n\n"


@router.get(
    "/events",
    status_code=200,
    summary="Follow what changes",
    response_class=EventStream,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}, **problems(503)},
)
async def follow_events(service: Serving, caller: Reading, last_event_id: LastEventId = None) -> Response:
    """Server-sent events of the team, without end: `change`, `run` and `reset`."""
    if service.events.readers >= MOST_READERS:
        raise ProblemError(503, "Too many are looking on; try again later", kind="busy", headers={"Retry-After": "30"})
    events = service.events.follow(caller.team, last_event_id, idle_seconds=IDLE_SECONDS)
    return EventStream(events, service.stopping)
