"""The application: the modules of routes, the middleware, and the endpoints that require no key.

`create_app` starts nothing: the owner of the service starts and stops it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Final, cast

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.routing import BaseRoute, Route

from noonbell import __version__
from noonbell.api import demo, openapi, problems
from noonbell.api.callers import RateLimits, Writing, admit
from noonbell.api.measures import Measures
from noonbell.api.middleware import RequestMiddleware
from noonbell.api.routes import (
    audit,
    channels,
    dead_letters,
    events,
    explain,
    health,
    instances,
    keys,
    metrics,
    monitors,
    plans,
    preview,
    quiet_hours,
    rules,
    runs,
    schedules,
    secrets,
    teams,
)
from noonbell.api.routes.tasks import periodic_router
from noonbell.bootstrap import Service
from noonbell.core.records import DEFAULT_TEAM
from noonbell.monitors.ping_app import PingApp
from noonbell.web import app as web

PREFIX: Final = "/api/v1"

# Below PREFIX; each needs a key.
ROUTERS: Final[tuple[APIRouter, ...]] = (
    schedules.router,
    runs.router,
    explain.router,
    preview.router,
    plans.router,
    quiet_hours.router,
    audit.router,
    dead_letters.router,
    events.router,
    secrets.router,
    channels.router,
    rules.router,
    monitors.router,
    keys.router,
    teams.router,
    instances.router,
)

# Public paths, each with its reason. Every other path requires a key.
PUBLIC: Final = {
    "/healthz": "for process supervisors and load balancers",
    "/readyz": "as /healthz",
    "/ping/{rest:path}": "the token in the address is the key",
    f"{PREFIX}/openapi.json": "the description of the API holds no data",
    "/demo/bell": "the target of the demo's schedules: it stores nothing and returns no data",
    "/demo/moody": "as /demo/bell",
    **web.PUBLIC,  # public pages; `web/session.py` requires a session for the others
}


def create_app(service: Service) -> FastAPI:
    """Return the API of a service."""
    app = FastAPI(
        title="Noonbell",
        version=__version__,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # its page loads scripts from elsewhere, which the content policy forbids
        redoc_url=None,
        redirect_slashes=False,  # it would send people to whatever host a request names
    )
    app.state.service = service
    app.state.limits = RateLimits(service)
    app.state.measures = measures = Measures(service)
    app.router.routes.extend(_routes())
    if service.tasks is not None:
        app.include_router(periodic_router(service.tasks, dependencies=[Depends(_of_first_team)]))
    if service.settings.demo:
        app.include_router(demo.router)
    app.router.routes.append(Route("/ping/{rest:path}", PingApp(service.monitors), include_in_schema=False))
    problems.install(app)
    web.add_missing_pages(app)
    _describe_validation(app)
    openapi.install(app)
    app.add_middleware(
        RequestMiddleware, largest_body=service.settings.largest_body_bytes, prefix=PREFIX, observe=measures.request,
        admit=_key_check(service), https=service.settings.is_https, stopping=service.stopping,
    )  # fmt: skip
    return app


@cache
def _routes() -> list[BaseRoute]:
    """Return the routes that every application has. Building them is slow, so it is done once in a process."""
    included = APIRouter()
    for router in (health.router, metrics.router):
        included.include_router(router)
    for router in ROUTERS:
        included.include_router(router, prefix=PREFIX)
    for router in web.ROUTERS:
        included.include_router(router)
    return included.routes


async def _of_first_team(caller: Writing) -> None:
    """Hide declared tasks from every team but the first, to which they belong."""
    if caller.team != DEFAULT_TEAM:
        raise problems.ProblemError(404, "Address not found", kind="not-found")


def _key_check(service: Service) -> Callable[[Request], Awaitable[None]]:
    """Return the check of the API key that runs before a body is read; pages check their session themselves."""

    async def ask(request: Request) -> None:
        path = request.scope["path"]
        if path.startswith("/api/") and path not in PUBLIC:
            await admit(request, service)

    return ask


def _describe_validation(app: FastAPI) -> None:
    async def invalid(request: Request, error: Exception) -> Response:
        return problems.answer(request, problems.of_validation(cast("RequestValidationError", error), request))

    app.add_exception_handler(RequestValidationError, invalid)
