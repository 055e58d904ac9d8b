"""Who belongs to the team, one's own password, and, for those who look after them, the teams."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Path
from fastapi.responses import Response

from noonbell.api.callers import address_of
from noonbell.api.deps import access_of
from noonbell.api.problems import ProblemError
from noonbell.errors import DocumentConflictError, LoginRefusedError, NoonbellError
from noonbell.web.pages.refused import refused
from noonbell.web.routing import page_router
from noonbell.web.session import Changing, Managing, Visiting, Visitor

router = page_router()

UserInPath = Annotated[str, Path(alias="name", pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$")]
_MOST_TEAMS: Final = 200


@router.get("/team")
async def show(visitor: Visiting) -> Response:
    return await _shown(visitor)


@router.post("/team/password")
async def change_password(visitor: Changing) -> Response:
    """One's own, by whoever knows the old one. All sessions end with it, this one too."""
    form, name = visitor.form, visitor.session.user
    new = form.get("new", "")
    if new != form.get("again", ""):
        return await _shown(visitor, 422, errors={"again": "differs from the new password"})
    access = access_of(visitor.service, visitor.caller)
    try:
        await access.verify_password(name, form.get("current", ""), address_of(visitor.request))
    except LoginRefusedError as error:
        reason = "is wrong" if error.retry_after_seconds is None else error.reason
        return await _shown(visitor, 422, errors={"current": reason})
    try:
        await access.set_password(name, new)
    except NoonbellError as error:
        return await _shown(visitor, 422, errors=refused(visitor, error, ("new",), {"password": "new"}))
    return visitor.go("/login")


@router.post("/team/admins")
async def add_admin(visitor: Managing) -> Response:
    _require_manager(visitor)
    name = visitor.form.text("name").lower()
    try:
        user = await access_of(visitor.service, visitor.caller).create_admin(name, visitor.form.get("password", ""))
    except NoonbellError as error:
        errors = refused(visitor, error, ("name", "password"))
        return await _shown(visitor, 422, errors=errors, typed={"name": name})
    return visitor.go("/team", f"{user.name} can log in now")


@router.post("/team/admins/{name}/remove")
async def remove(visitor: Managing, name: UserInPath) -> Response:
    _require_manager(visitor)
    if name == visitor.session.user:
        raise ProblemError(409, "Nobody can remove himself; let another admin do it", kind="own-account")
    await access_of(visitor.service, visitor.caller).delete_user(name)
    return visitor.go("/team", f"{name} is removed, and logged out everywhere")


@router.post("/team/teams")
async def add_team(visitor: Managing) -> Response:
    _require_manager(visitor)
    typed = {"team": visitor.form.text("team").lower(), "title": visitor.form.text("title")}
    access = access_of(visitor.service, visitor.caller)
    try:
        made = await access.create_team(typed["team"], typed["title"] or None)
    except DocumentConflictError:
        return await _shown(visitor, 422, errors={"team": "is taken; choose another"}, typed=typed)
    except NoonbellError as error:
        return await _shown(visitor, 422, errors=refused(visitor, error, ("team", "title")), typed=typed)
    return visitor.go("/team", f"The team {made.name} is there; make its first key on the page of keys")


def _require_manager(visitor: Visitor) -> None:
    if not visitor.caller.manages_teams:
        raise ProblemError(403, "Teams are looked after by the admins of the team default", kind="foreign-team")


async def _shown(visitor: Visitor, status: int = 200, **values: Any) -> Response:
    access = visitor.service.access
    users = [user for user in await access.list_users() if user.team == visitor.team]
    manages = visitor.caller.manages_teams
    teams = await access.list_teams(limit=_MOST_TEAMS) if manages else []
    usual: dict[str, Any] = {"errors": {}, "typed": {}}
    return visitor.page(
        "team.html", status, users=users, teams=teams, manages=manages, session=visitor.session, **(usual | values)
    )
