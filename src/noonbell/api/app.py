"""The application: every module of routes, what surrounds them, and the faces that answer without a key.

`create_app` starts nothing: the service it is given is started and stopped by its owner.
"""

from __future__ import annotations

from typing import Final, cast

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.routing import Route

from noonbell import __version__
from noonbell.api import demo, openapi, problems
from noonbell.api.callers import RateLimits, require_caller_first, writer
from noonbell.api.measures import Measures
from noonbell.api.middleware import Surrounding
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
from noonbell.monitors.asgi import PingApp
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

# Paths that are open to everybody, each with its reason. Whatever else there is asks for a key.
PUBLIC: Final = {
    "/healthz": "for those who watch over processes",
    "/readyz": "as /healthz",
    "/ping/{rest:path}": "the token in the address is the key",
    f"{PREFIX}/openapi.json": "the description of the API holds no data",
    "/demo/bell": "the target of the demo's schedules: it keeps nothing and tells nothing",
    "/demo/moody": "as /demo/bell",
    **web.PUBLIC,  # pages; the others ask for a session, which `web/session.py` sees to
}


def create_app(service: Service) -> FastAPI:
    """The API of a service."""
    app = FastAPI(
        title="Noonbell",
        version=__version__,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # its page loads scripts from elsewhere, which the content policy forbids
        redoc_url=None,
    )
    app.state.service = service
    app.state.limits = RateLimits(service)
    app.state.measures = measures = Measures(service)
    app.include_router(health.router)
    app.include_router(metrics.router)
    for router in ROUTERS:
        app.include_router(router, prefix=PREFIX)
    if service.tasks is not None:
        app.include_router(periodic_router(service.tasks, dependencies=[Depends(writer)]))
    if service.settings.demo:
        app.include_router(demo.router)
    web.mount(app)
    app.router.routes.append(Route("/ping/{rest:path}", PingApp(service.monitors), include_in_schema=False))
    problems.install(app)
    _ask_for_a_key_first(app, service)
    openapi.install(app)
    app.add_middleware(
        Surrounding, largest_body=service.settings.largest_body_bytes, prefix=PREFIX, observe=measures.request
    )
    return app


def _ask_for_a_key_first(app: FastAPI, service: Service) -> None:
    """A body that is no JSON is found out before anybody has asked who sent it."""

    async def invalid(request: Request, error: Exception) -> Response:
        if request.url.path.startswith(PREFIX):
            try:
                await require_caller_first(request, service)
            except problems.ProblemError as refused:
                return problems.answer(request, refused)
        return problems.answer(request, problems.of_validation(cast("RequestValidationError", error), request))

    app.add_exception_handler(RequestValidationError, invalid)
