"""API keys of the team. A new key is shown once, in the response that creates it; no other page can show it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, Final

from fastapi import Path
from fastapi.responses import Response

from noonbell.api.deps import access_of
from noonbell.api.problems import ProblemError
from noonbell.errors import AccessNotFoundError, NoonbellError
from noonbell.web.pages.refused import refused
from noonbell.web.routing import page_router
from noonbell.web.session import Managing, RequestContext

router = page_router()

KeyInPath = Annotated[str, Path(alias="key_id", pattern=r"^[a-z0-9]{1,64}$")]
LASTS: Final = {"1": "a day", "30": "30 days", "90": "90 days", "365": "a year", "": "for ever"}
_PAGE: Final = 50
_MOST_TEAMS: Final = 100


@router.get("/keys")
async def show(visitor: Managing) -> Response:
    return await _shown(visitor)


@router.post("/keys")
async def create(visitor: Managing) -> Response:
    """Respond with the page itself instead of a redirect: the key is in this response and nowhere else."""
    form = visitor.form
    typed = {name: form.text(name) for name in ("name", "scope", "lasts", "team")}
    team = typed["team"] or visitor.team
    if team != visitor.team and not visitor.caller.manages_teams:
        raise ProblemError(403, "Keys of another team are created by its own admins", kind="foreign-team")
    if typed["lasts"] not in LASTS:
        return await _shown(visitor, 422, typed=typed, errors={"lasts": "must be one of those that are offered"})
    until = visitor.now + timedelta(days=int(typed["lasts"])) if typed["lasts"] else None
    access = access_of(visitor.service, visitor.caller)
    try:
        record, key = await access.create_key(team, [typed["scope"]], name=typed["name"], expires_at=until)
    except AccessNotFoundError:
        return await _shown(visitor, 422, typed=typed, errors={"team": "is not a team; create it first"})
    except NoonbellError as error:
        errors = await refused(visitor, error, tuple(typed), {"scopes": "scope"})
        return await _shown(visitor, 422, typed=typed, errors=errors)
    visitor.service.events.nudge()
    return await _shown(visitor, made=record, key=key)


@router.post("/keys/{key_id}/revoke")
async def revoke(visitor: Managing, key_id: KeyInPath) -> Response:
    record = await visitor.service.access.get_key(key_id, team=visitor.team)
    revoked = await access_of(visitor.service, visitor.caller).revoke_key(key_id, team=visitor.team)
    visitor.service.events.nudge()
    return visitor.go("/keys", f"The key “{record.name}” is revoked{_and_others(revoked)}")


@router.post("/keys/take-back")
async def take_back(visitor: Managing) -> Response:
    """Let users who manage teams revoke another team's key by its id, which was shown when they created it."""
    if not visitor.caller.manages_teams:
        raise ProblemError(403, "Keys of another team are revoked by its own admins", kind="foreign-team")
    key_id = visitor.form.text("key_id")
    try:
        revoked = await access_of(visitor.service, visitor.caller).revoke_key(key_id[:64])
    except AccessNotFoundError:
        errors = {"key_id": "is not the id of a key: the id is the part between nbk_ and the next _"}
        return await _shown(visitor, 422, errors=errors, typed_id=key_id[:100])
    visitor.service.events.nudge()
    return visitor.go("/keys", f"The key {key_id} is revoked{_and_others(revoked)}")


def _and_others(revoked: Sequence[str]) -> str:
    return f", and so are the {len(revoked) - 1} keys that were created with it" if len(revoked) > 1 else ""


async def _shown(visitor: RequestContext, status: int = 200, **values: Any) -> Response:
    after = visitor.request.query_params.get("cursor", "")
    found = list(await visitor.service.access.list_keys(visitor.team, after=after, limit=_PAGE + 1))
    teams = []
    if visitor.caller.manages_teams:
        teams = [team.name for team in await visitor.service.access.list_teams(limit=_MOST_TEAMS)]
    usual: dict[str, Any] = {
        "made": None, "key": None, "errors": {}, "typed_id": "",
        "typed": {"scope": "read", "lasts": "90", "team": visitor.team},
    }  # fmt: skip
    return visitor.page(
        "keys.html", status, items=found[:_PAGE], after=after,
        more=found[_PAGE - 1].key_id if len(found) > _PAGE else None, teams=teams, lasts=list(LASTS.items()),
        address_of_service=visitor.service.settings.address, **(usual | values),
    )  # fmt: skip
