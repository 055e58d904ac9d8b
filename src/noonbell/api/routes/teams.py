"""Teams, which isolate schedules, secrets, channels, monitors and keys.

Admins of the team `default` manage them. They create teams and their first keys, and do not see the objects of other
teams.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from noonbell.access import Caller
from noonbell.api.bodies import api_router
from noonbell.api.callers import Administering
from noonbell.api.deps import Serving, access_of
from noonbell.api.models.access import TeamRequest, TeamResponse
from noonbell.api.models.base import PageOf
from noonbell.api.paging import ById
from noonbell.api.problems import ProblemError, problems

router = api_router("teams")


@router.get("/teams", summary="List the teams, by name")
async def list_teams(service: Serving, caller: Administering, asked: Annotated[ById, Query()]) -> PageOf[TeamResponse]:
    _require_manager(caller)
    found = await service.access.list_teams(after=asked.cursor or "", limit=asked.limit + 1)
    items = [TeamResponse.model_validate(team) for team in found[: asked.limit]]
    return PageOf(items=items, next_cursor=items[-1].name if len(found) > asked.limit else None)


@router.post("/teams", status_code=201, summary="Create a team", responses=problems(409))
async def create_team(service: Serving, caller: Administering, given: TeamRequest) -> TeamResponse:
    _require_manager(caller)
    return TeamResponse.model_validate(await access_of(service, caller).create_team(given.name, given.title))


def _require_manager(caller: Caller) -> None:
    if not caller.manages_teams:
        detail = "Teams are looked after by the admins of the team default"
        raise ProblemError(403, detail, kind="foreign-team")
