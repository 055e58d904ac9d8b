"""Templates. All values are escaped, and an undefined name is an error instead of a blank."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote, urlencode

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from noonbell.access import Scope
from noonbell.core.ids import run_id
from noonbell.web import page_times as times
from noonbell.web.assets import asset_url


class Place(NamedTuple):
    """An entry of the navigation, and the right that is required to see it."""

    path: str
    label: str
    icon: str
    needs: Scope | Literal["operator"] = "read"


NAVIGATION: Final[tuple[tuple[str, tuple[Place, ...]], ...]] = (
    (
        "Watch",
        (
            Place("/", "Overview", "bell"),
            Place("/schedules", "Schedules", "clock"),
            Place("/runs", "Runs", "play"),
            Place("/forecast", "Forecast", "grid"),
            Place("/monitors", "Monitors", "pulse"),
        ),
    ),
    (
        "Arrange",
        (
            Place("/quiet-hours", "Quiet hours", "moon"),
            Place("/channels", "Channels & rules", "megaphone"),
            Place("/secrets", "Secrets", "lock"),
            Place("/plan", "Plan & apply", "plan", "write"),
        ),
    ),
    (
        "Account for",
        (
            Place("/audit", "Audit", "list"),
            Place("/verify", "Verify", "check"),
            Place("/keys", "Keys", "key", "admin"),
            Place("/team", "Team", "people"),
            Place("/instances", "Instances", "server"),
            Place("/settings", "Settings", "gear", "operator"),
        ),
    ),
)


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("noonbell.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    made.globals.update(asset=asset_url, navigation=NAVIGATION, address=address, run_id=run_id)
    made.filters.update(
        iso=times.iso, clock=times.clock, day=times.day, full=times.full, place=times.place, ago=times.ago,
        lasted=times.lasted, segment=segment, pretty=pretty,
    )  # fmt: skip
    return made


def render(template: str, values: dict[str, Any]) -> str:
    return environment().get_template(template).render(values)


def page(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a page for a visitor who is not logged in."""
    return HTMLResponse(render(template, values), status)


def segment(text: str) -> str:
    """Return a text escaped as one segment of a path, including slashes."""
    return quote(str(text), safe="")


def address(path: str, **asked: Any) -> str:
    """Return a path with a query, without parameters that are None or empty."""
    given = {name: value for name, value in asked.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def pretty(value: Any) -> str:
    """Return a value as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
