"""API keys of the caller's team. A key is returned once, when it is created; lists do not contain it.

A key that manages teams creates the first key of another team, by naming the team.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from noonbell.access import Caller
from noonbell.api.bodies import api_router
from noonbell.api.callers import Administering, Reading
from noonbell.api.deps import Serving, access_of
from noonbell.api.models.access import CallerResponse, KeyMade, KeyRequest, KeyResponse, KeysRevoked
from noonbell.api.models.base import PageOf
from noonbell.api.paging import ById
from noonbell.api.problems import ProblemError, problems
from noonbell.errors import AccessNotFoundError

router = api_router("keys")

KeyInPath = Annotated[str, Path(alias="key_id", pattern=r"^[a-z0-9]{1,64}$")]


@router.get("/caller", summary="The caller that the key of this request authenticates")
async def show_caller(caller: Reading) -> CallerResponse:
    return CallerResponse(
        actor=caller.actor, team=caller.team, scopes=sorted(caller.scopes), manages_teams=caller.manages_teams
    )


@router.get("/keys", summary="List the keys of the team, by id")
async def list_keys(service: Serving, caller: Administering, asked: Annotated[ById, Query()]) -> PageOf[KeyResponse]:
    found = await service.access.list_keys(caller.team, after=asked.cursor or "", limit=asked.limit + 1)
    items = [KeyResponse.model_validate(key) for key in found[: asked.limit]]
    return PageOf(items=items, next_cursor=items[-1].key_id if len(found) > asked.limit else None)


@router.post("/keys", status_code=201, summary="Create a key", responses=problems(404))
async def create_key(service: Serving, caller: Administering, given: KeyRequest) -> KeyMade:
    """The response contains the key, which is not returned again.

    A key that expires can only create keys that expire at the same time or earlier.
    """
    team = _team(caller, given)
    record, key = await access_of(service, caller).create_key(
        team, given.scopes, name=given.name, expires_at=given.expires_at, made_with=caller.key_id
    )
    return KeyMade(**KeyResponse.model_validate(record).model_dump(), key=key)


@router.get("/keys/{key_id}", summary="One key", responses=problems(404))
async def get_key(service: Serving, caller: Administering, key_id: KeyInPath) -> KeyResponse:
    return KeyResponse.model_validate(await service.access.get_key(key_id, team=caller.team))


@router.delete("/keys/{key_id}", summary="Revoke a key and the keys created with it", responses=problems(404))
async def revoke_key(service: Serving, caller: Administering, key_id: KeyInPath) -> KeysRevoked:
    """The keys are rejected at once; other processes may accept them for a few seconds more."""
    access = access_of(service, caller)
    try:
        revoked = await access.revoke_key(key_id, team=caller.team)
    except AccessNotFoundError:
        if not caller.manages_teams:
            raise
        revoked = await access.revoke_key(key_id)  # the operator revokes keys of every team
    return KeysRevoked(revoked=revoked)


def _team(caller: Caller, given: KeyRequest) -> str:
    team: str = given.given().get("team", caller.team)
    if team != caller.team and not caller.manages_teams:
        detail = "Keys of another team are created by admins of the team default or of that team"
        raise ProblemError(403, detail, kind="foreign-team", field="team", value=team)
    return team
