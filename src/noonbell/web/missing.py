"""The page for unknown addresses, in the layout of the user who is logged in.

Programs get a problem document, as everywhere: below /api, and whenever a client does not accept HTML, which every
browser does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from noonbell.api.callers import require_room_of_address
from noonbell.api.problems import ProblemError
from noonbell.bootstrap import Service
from noonbell.errors import NoonbellError
from noonbell.web import forms
from noonbell.web.routing import error_page
from noonbell.web.session import RequestContext

_UNROUTED: Final = {404: "Page not found", 405: "This address is not opened in this way"}
_OF_PROGRAMS: Final = ("/api/", "/ping/", "/static/")

Handler = Callable[[Request, Exception], Any]


def install(app: FastAPI) -> None:
    """Render an unknown address as a page for browsers; for other clients the handlers of `api/problems.py` remain."""
    usual = cast("Handler", app.exception_handlers[HTTPException])

    async def missing(request: Request, error: Exception) -> Response:
        caught = cast("HTTPException", error)
        answer = await cast("Awaitable[Response]", usual(request, error))
        if caught.status_code not in _UNROUTED or not _is_person(request):
            return answer
        page = await _page(request, ProblemError(caught.status_code, _UNROUTED[caught.status_code], kind="unrouted"))
        if "allow" in answer.headers:
            page.headers["allow"] = answer.headers["allow"]
        return page

    app.add_exception_handler(HTTPException, missing)


def _is_person(request: Request) -> bool:
    asked = request.headers.get("accept", "")
    return "text/html" in asked and not request.url.path.startswith(_OF_PROGRAMS)


async def _page(request: Request, problem: ProblemError) -> Response:
    service: Service = request.app.state.service
    try:
        require_room_of_address(request)
        found = await forms.session_of(service, request)
    except ProblemError as refused:
        return await error_page(request, refused)
    except NoonbellError:
        found = None  # the session cannot be checked now; the page is shown without it
    if found is not None:
        request.state.visitor = RequestContext(service, request, *found)
    return await error_page(request, problem)
