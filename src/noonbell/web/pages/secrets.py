"""Secrets: they can be written and never read back. The page shows names, versions and times of change."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from fastapi import Path
from fastapi.responses import Response

from noonbell.api.problems import ProblemError
from noonbell.core.instants import moment
from noonbell.errors import NoonbellError
from noonbell.web.pages.refused import refused
from noonbell.web.routing import page_router
from noonbell.web.session import Changing, RequestContext, Visiting

router = page_router()

# What channels have sealed: it belongs to them, and a person who takes it away breaks them.
_OF_CHANNEL: Final = re.compile(r"CHANNEL_[0-9a-f]{16}")
NameInPath = Annotated[str, Path(alias="name", pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]


@router.get("/secrets")
async def show(visitor: Visiting) -> Response:
    return await _shown(visitor)


@router.post("/secrets")
async def put(visitor: Changing) -> Response:
    """Create a secret, or give an existing one a new value. A refused value is not shown again either."""
    name = visitor.form.text("name")
    value = visitor.form.get("value", "").replace("\r\n", "\n")  # as browsers send the ends of lines
    try:
        stored = await visitor.schedules.secrets.put(visitor.team, name, value)
    except NoonbellError as error:
        return await _shown(visitor, 422, typed=name, errors=await refused(visitor, error, ("name", "value")))
    visitor.service.events.nudge()
    if stored.version > 1:
        return visitor.go("/secrets", f"{name} has a new value, version {stored.version}; runs use it from now on")
    return visitor.go("/secrets", f"{name} is kept. Refer to it as ${{secrets.{name}}}")


@router.post("/secrets/{name}/delete")
async def delete(visitor: Changing, name: NameInPath) -> Response:
    if not await visitor.schedules.secrets.delete(visitor.team, name):
        raise ProblemError(404, f'Secret not found: "{name}"', kind="secret-not-found")
    visitor.service.events.nudge()
    return visitor.go("/secrets", f"{name} is deleted; runs that refer to it fail from now on")


async def _shown(visitor: RequestContext, status: int = 200, *, typed: str = "", **values: Any) -> Response:
    secrets = visitor.schedules.secrets
    found = await secrets.list(visitor.team)
    own = [one for one in found if not _OF_CHANNEL.fullmatch(one.name)]
    items = [
        {"name": one.name, "version": one.version, "updated_at": moment(one.updated_at),
         "created_at": moment(one.created_at)}
        for one in own
    ]  # fmt: skip
    values.setdefault("errors", {})
    typed = typed or visitor.request.query_params.get("name", "")
    return visitor.page(
        "secrets.html",
        status,
        items=items,
        usable=secrets.usable,
        typed=typed,
        of_channels=len(found) - len(own),
        **values,
    )
