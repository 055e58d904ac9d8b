"""Routes of pages: errors are rendered as pages, and visitors who are not logged in are redirected to the login.

Each module of pages has a `page_router()`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from noonbell.api.problems import TITLES, ProblemError, of_error, of_validation
from noonbell.errors import NoonbellError, StoreError
from noonbell.web import rendering
from noonbell.web.session import NotLoggedInError, RequestContext

logger = logging.getLogger("noonbell.api")

_SEE_OTHER: Final = 303


class PageRoute(APIRoute):
    """A route whose errors are rendered as pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except NotLoggedInError:
                return to_login(request)
            except ProblemError as problem:
                return await error_page(request, problem)
            except RequestValidationError as error:
                return await error_page(request, of_validation(error, request))
            except HTTPException as error:
                return await error_page(request, ProblemError(error.status_code, str(error.detail)))
            except NoonbellError as error:
                found = of_error(error)
                if found.status == 500:
                    return await _own_fault(request, error)
                return await error_page(request, found)
            except ClientDisconnect:
                return Response(status_code=400)  # the browser has left the page: the response is not read
            except Exception as error:  # noqa: BLE001 - whatever it is, a person is to see a page
                return await _own_fault(request, error)

        return handled


async def _own_fault(request: Request, error: Exception) -> Response:
    """Render the page of an internal error: the log has the details, and the page names its id."""
    request_id = str(request.scope.get("noonbell.request_id", "-"))
    facts = {"request_id": request_id, "path": request.url.path}
    logger.error("page failed", exc_info=error, extra={"noonbell": facts})
    detail = f"Internal error. The log of the service has the details under the id {request_id}"
    return await error_page(request, ProblemError(500, detail, kind="internal"))


def page_router() -> APIRouter:
    return APIRouter(route_class=PageRoute, include_in_schema=False)


def to_login(request: Request) -> Response:
    """Redirect to the login, and from there back to the page that was requested."""
    if request.headers.get("hx-request") == "true":
        return Response(status_code=401, headers={"HX-Redirect": "/login"})
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    back = "" if request.method != "GET" or wanted == "/" else f"?{urlencode({'next': wanted})}"
    return RedirectResponse(f"/login{back}", _SEE_OTHER)


async def error_page(request: Request, problem: ProblemError) -> Response:
    """Render an error in the layout of the user who is logged in, or as a line for a script."""
    visitor: RequestContext | None = getattr(request.state, "visitor", None)
    title = TITLES.get(problem.status, "It did not work")
    detail = problem.detail if visitor is None else await _masked(visitor, problem.detail)
    values: dict[str, Any] = {"title": title, "problem": problem, "detail": detail}
    if visitor is not None and visitor.by_script:
        answer = visitor.part("parts/problem.html", problem.status, **values)
    elif visitor is not None:
        answer = visitor.page("error.html", problem.status, **values)
    else:
        answer = HTMLResponse(rendering.render("error_outside.html", values), problem.status)
    answer.headers.update(problem.headers)
    return answer


async def _masked(visitor: RequestContext, text: str) -> str:
    """Mask the secrets of the user's team; if the store does not answer, those that are known here."""
    try:
        return (await visitor.masking())(text)
    except StoreError:
        return visitor.service.secrets.masker(visitor.team).text(text)
