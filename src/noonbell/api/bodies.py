"""JSON bodies whose cost is known before they are decoded.

A body is decoded only if its sender may use the route, and if it holds few enough keys and values: FEW_VALUES, or
MOST_VALUES on routes that take schedules and calendars. They are counted from its bytes, at the speed of a copy. Large
bodies are decoded one at a time, with a pause as long as the work after each. The models (`api/models/base.py`) ensure
that a body with wrong fields yields few errors, whatever it holds.

Every module of routes of the API has an `api_router()`; a test checks the table of routes for this.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope

from noonbell.api.callers import REQUIRES, require_scope

MOST_VALUES: Final = 50_000
FEW_VALUES: Final = 5_000
_LARGE: Final = 32 * 1024


class ApiRoute(APIRoute):
    """A route whose body is counted before it is decoded, for a caller who may use the route."""

    most_values = FEW_VALUES

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        most = self.most_values
        scopes = [REQUIRES[one.call] for one in self.dependant.dependencies if one.call in REQUIRES]

        async def handled(request: Request) -> Response:
            for scope in scopes:
                require_scope(request, scope)
            return await handle(_CountedRequest(request.scope, request.receive, most))

        return handled


class LargeRoute(ApiRoute):
    """A route for batches, payloads and calendars."""

    most_values = MOST_VALUES


def api_router(tag: str, *, large: bool = False) -> APIRouter:
    return APIRouter(tags=[tag], route_class=LargeRoute if large else ApiRoute)


class _CountedRequest(Request):
    def __init__(self, scope: Scope, receive: Receive, most: int) -> None:
        super().__init__(scope, receive)
        self._most = most

    async def json(self) -> Any:
        body = await self.body()
        if len(body) <= _LARGE:
            return decode(body, self._most)
        turn = _turn_of(self.app)
        await turn.acquire()
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            return decode(body, self._most)
        finally:
            # large bodies have half of the event loop at most, however many are sent at once
            loop.call_later(loop.time() - began, turn.release)


def _turn_of(app: FastAPI) -> asyncio.Lock:
    if not hasattr(app.state, "large_bodies"):
        app.state.large_bodies = asyncio.Lock()
    found: asyncio.Lock = app.state.large_bodies
    return found


def decode(body: bytes, most: int) -> Any:
    """Return the value of a body in UTF-8.

    Raises HTTPException 413 if it holds too many values, and JSONDecodeError if it is not JSON.
    """
    if count_values(body) > most:
        raise HTTPException(413, f"The body of a request may hold {most} keys and values at most here")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise json.JSONDecodeError("not UTF-8", "", error.start) from None
    return json.loads(text)


def count_values(body: bytes) -> int:
    """Count the keys and values of a body, give or take a few, without those that decoding would not reach.

    Text within quotes is not structure. A body with very many quotes is not split: it holds too many texts.
    """
    bare = body.replace(rb"\\", b"").replace(rb"\"", b"")
    texts = bare.count(b'"') // 2
    if texts > MOST_VALUES:
        return texts
    outside = b"".join(bare.split(b'"')[::2])
    return sum(outside.count(sign) for sign in (b",", b":", b"[", b"{")) + 1
