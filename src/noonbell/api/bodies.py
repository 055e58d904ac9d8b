"""JSON bodies whose cost is known before they are decoded.

A body is decoded only if it holds at most MOST_VALUES keys and values; they are counted from its bytes, at the speed of
a copy. Decoding that many takes less than 50 ms. The models (`api/models/base.py`) see to it that a body with wrong
fields yields few errors, whatever it holds.

Every module of routes of the API has an `api_router()`; a test goes through the table of routes and holds that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

MOST_VALUES: Final = 50_000


class ApiRoute(APIRoute):
    """A route whose body is counted before it is decoded."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            return await handle(_CountedRequest(request.scope, request.receive))

        return handled


def api_router(tag: str, dependencies: Sequence[Any] = ()) -> APIRouter:
    return APIRouter(tags=[tag], route_class=ApiRoute, dependencies=list(dependencies))


class _CountedRequest(Request):
    async def json(self) -> Any:
        return decode(await self.body())


def decode(body: bytes) -> Any:
    """The value of a body in UTF-8.

    Raises HTTPException 413 where it holds too many values, and JSONDecodeError where it is no JSON.
    """
    if count_values(body) > MOST_VALUES:
        raise HTTPException(413, f"The body of a request may hold {MOST_VALUES} keys and values at most")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise json.JSONDecodeError("not UTF-8", "", error.start) from None
    return json.loads(text)


def count_values(body: bytes) -> int:
    """The keys and values of a body, up to a few; without those that decoding would not reach.

    What stands within quotes is no structure. A body with very many quotes is not taken apart: it holds too many texts.
    """
    bare = body.replace(rb"\\", b"").replace(rb"\"", b"")
    texts = bare.count(b'"') // 2
    if texts > MOST_VALUES:
        return texts
    outside = b"".join(bare.split(b'"')[::2])
    return sum(outside.count(sign) for sign in (b",", b":", b"[", b"{")) + 1
