"""The routes of the dashboard: its pages, the files they load, and the live connection.

`api/app.py` includes ROUTERS. A route that works without a session is listed in PUBLIC, with its reason; every other
route requires exactly one right of `web/session.py`.
"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, FastAPI

from noonbell.web import assets, login, missing
from noonbell.web import live_stream as live
from noonbell.web.pages import (
    audit,
    channels,
    dead_letters,
    forecast,
    instances,
    keys,
    monitors,
    overview,
    plans,
    quiet_hours,
    rules,
    run,
    runs_list,
    schedule,
    schedule_form,
    schedules,
    secrets,
    settings,
    signing_keys,
    team,
    verify,
)

# The pages, one line each.
PAGES: Final[tuple[APIRouter, ...]] = (
    overview.router,
    schedules.router,
    schedule_form.router,  # before the next: /schedules/new is not the page of a schedule
    signing_keys.router,
    verify.router,
    schedule.router,
    run.router,
    runs_list.router,
    forecast.router,
    plans.router,
    monitors.router,
    quiet_hours.router,
    channels.router,
    rules.router,
    dead_letters.router,
    secrets.router,
    audit.router,
    keys.router,
    team.router,
    instances.router,
    settings.router,
)  # fmt: skip

# All of the dashboard.
ROUTERS: Final[tuple[APIRouter, ...]] = (assets.router, login.router, live.router, *PAGES)

PUBLIC: Final = {
    "/login": "the login page",
    "/logout": "ends the session of the cookie, if any",
    "/setup/{token}": "the token in the address is the key, and works once",
    "/welcome/{name}/{token}": "as /setup",
    "/static/{digest}/{name:path}": "the looks of the pages",
}


def add_missing_pages(app: FastAPI) -> None:
    """Render unknown addresses as pages; call it after the app's handlers of problems are installed."""
    missing.install(app)
