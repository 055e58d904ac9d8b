"""The settings of the service, each with its source. They are changed at their source, not here."""

from __future__ import annotations

from fastapi.responses import Response

from noonbell import __version__
from noonbell.api.problems import ProblemError
from noonbell.config import ABOUT, shown
from noonbell.web.routing import page_router
from noonbell.web.session import Managing, RequestContext

router = page_router()


@router.get("/settings")
async def show(visitor: Managing) -> Response:
    """Show the settings, which apply to all teams, to the operator."""
    _require_operator(visitor)
    items = [
        {"name": name, "value": _text(value), "source": source, "about": ABOUT[name]}
        for name, value, source in shown(visitor.service.settings)
    ]
    return visitor.page("settings.html", items=items, version=__version__, usable=visitor.service.secrets.usable)


@router.post("/settings/rotate-master-key")
async def rotate(visitor: Managing) -> Response:
    """Rewrap all secrets under the newest master key, after one was added. No value is shown or changed."""
    _require_operator(visitor)
    done = await visitor.schedules.secrets.rotate()
    outcome = f"{done.rewrapped} rewrapped under the newest master key"
    if done.unreadable:
        return visitor.go("/settings", f"{outcome}, {len(done.unreadable)} could not be read", "bad")
    return visitor.go("/settings", outcome)


def _require_operator(visitor: RequestContext) -> None:
    if not visitor.caller.manages_teams:
        detail = "Settings and master keys belong to all teams; this takes an admin of the team default"
        raise ProblemError(403, detail, kind="operator")


def _text(value: object) -> str:
    """Return a setting as text."""
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
