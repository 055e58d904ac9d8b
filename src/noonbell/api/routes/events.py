"""Live changes as server-sent events.

    curl -N -H "Authorization: Bearer …" https://…/api/v1/events

    id: 3f2a91c0-17
    event: run
    data: {"run_id": "…", "schedule_id": "…", "state": "succeeded", …}

`schedules/live_changes.py` describes each kind of event. A client that reconnects with `Last-Event-ID` gets the events
it missed, or a `reset` if they are no longer buffered. A comment line every 15 seconds keeps the connection alive. A
client that does not read is disconnected after a timeout: nothing is buffered for it, and it can query what it missed.

A stream ends with the right to it: every few seconds the key (or the session of the dashboard) is checked again, and
the stream ends if it was revoked, has expired or now belongs to another team. The number of streams is limited for each
key, each user and each team, so that no caller can take them all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import aclosing, contextmanager
from typing import Annotated, Any, Final, cast

import msgspec
from fastapi import Header, Request, Response

from noonbell.access import Caller
from noonbell.api.bodies import api_router
from noonbell.api.callers import Reading
from noonbell.api.deps import Serving
from noonbell.api.problems import ProblemError, problems
from noonbell.bootstrap import Service
from noonbell.errors import StoreError
from noonbell.schedules.live_changes import LiveEvent

router = api_router("events")

MOST_READERS: Final = 500
MOST_OF_TEAM: Final = 200
MOST_OF_ONE: Final = 20  # of a key, or of a user
SEND_SECONDS: Final = 20.0
IDLE_SECONDS: Final = 15.0
ASK_SECONDS: Final = 5.0  # between two checks of whether a stream may continue

LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=100, description="Continue after the event with this id.")
]
Asking = Callable[[], Awaitable[Caller | None]]


class Places:
    """The number of open streams: of each caller, of each team and in total."""

    def __init__(self) -> None:
        self._taken: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def taken(self, caller: Caller) -> Iterator[None]:
        """Take a place for the time of the block; raise 429 at the caller's or team's limit, 503 at the total one."""
        shares = {("caller", caller.actor): MOST_OF_ONE, ("team", caller.team): MOST_OF_TEAM, ("all", ""): MOST_READERS}
        for (kind, name), most in shares.items():
            if self._taken[kind, name] >= most:
                whose = {"caller": "with this key or login", "team": "in this team", "all": "here"}[kind]
                detail = f"{most} streams of events are open {whose}, and more are not allowed; close one of them"
                status, problem_kind = (503, "busy") if kind == "all" else (429, "too-many-streams")
                raise ProblemError(status, detail, kind=problem_kind, headers={"Retry-After": "30"})
        self._taken.update(shares.keys())
        try:
            yield
        finally:
            self._taken.subtract(shares.keys())
            for share in shares:
                if not self._taken[share]:
                    del self._taken[share]


class EventStream(Response):
    """A response that lasts. It ends when the client goes, does not read for too long, may not read any more, or the
    service stops.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncIterator[LiveEvent | None],
        stopping: asyncio.Event,
        *,
        caller: Caller,
        places: Places,
        ask: Asking,
        send_seconds: float = SEND_SECONDS,
        ask_seconds: float = ASK_SECONDS,
    ) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no", "Cache-Control": "no-store"})
        self._events = events
        self._stopping = stopping
        self._caller = caller
        self._places = places
        self._ask = ask
        self._send_seconds = send_seconds
        self._ask_seconds = ask_seconds
        self._ended = False  # the last part has been sent

    async def __call__(
        self,
        scope: MutableMapping[str, Any],  # noqa: ARG002 - as every ASGI application is called
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        with self._places.taken(self._caller):  # before anything is sent, so that a refusal is an error response
            await self._stream(receive, send)

    async def _stream(
        self,
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        sending, gone = asyncio.ensure_future(self._send(send)), asyncio.ensure_future(_gone(receive))
        ends = [sending, gone, asyncio.ensure_future(self._stopping.wait()), asyncio.ensure_future(self._refused())]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not gone.done() and not sending.done():
                sending.cancel()
                await asyncio.wait([sending])
                # it may have come to its own end before it heard of that: the hub stops at the same moment
                if not self._ended:
                    async with asyncio.timeout(1):  # a clean end, for those who read
                        await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            pass  # and none for those who do not
        finally:
            for task in ends:
                task.cancel()
            await asyncio.gather(*ends, return_exceptions=True)

    async def _refused(self) -> None:
        """Return when the caller may not read any more."""
        while True:
            await asyncio.sleep(self._ask_seconds)
            try:
                caller = await self._ask()
            except StoreError:
                continue  # while the store does not answer, there are no new events either
            if caller is None or caller.team != self._caller.team or not caller.may("read"):
                return

    async def _send(self, send: Callable[[MutableMapping[str, Any]], Awaitable[None]]) -> None:
        async def write(text: str, *, more: bool = True) -> None:
            async with asyncio.timeout(self._send_seconds):
                self._ended = not more
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
    summary="Stream of changes",
    response_class=EventStream,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}, **problems(503)},
)
async def follow_events(
    request: Request, service: Serving, caller: Reading, last_event_id: LastEventId = None
) -> Response:
    """Server-sent events of the team, without end: `change`, `run` and `reset`."""
    _, _, key = request.headers.get("Authorization", "").partition(" ")

    async def ask() -> Caller | None:
        return await service.access.authenticate(key.strip())

    return await stream_for(request, service, caller, ask, last_event_id)


async def stream_for(
    request: Request, service: Service, caller: Caller, ask: Asking, last_event_id: str | None
) -> EventStream:
    """Return the events of the caller's team; `ask` authenticates the caller again every few seconds."""
    state = request.app.state
    if not hasattr(state, "event_places"):
        state.event_places = Places()
    after = last_event_id or await service.events.here()  # before anything is answered: from then on nothing is missed
    events = service.events.follow(caller.team, after, idle_seconds=IDLE_SECONDS)
    places = cast("Places", state.event_places)
    return EventStream(events, service.stopping, caller=caller, places=places, ask=ask, ask_seconds=ASK_SECONDS)
