"""The people of the team with their rights, the user's own password, and, for users who manage teams, the teams.

An admin adds people to the own team, changes their rights, and removes them; admins of the first team do so in every
team. An admin never types another person's password: a new user gets a link that works once. It is shown in the
response that creates it and on no other page.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Path
from fastapi.responses import Response

from noonbell.access import Access, User
from noonbell.api.callers import address_of
from noonbell.api.deps import access_of
from noonbell.api.problems import ProblemError
from noonbell.errors import AccessNotFoundError, DocumentConflictError, LoginRefusedError, NoonbellError
from noonbell.web.pages.refused import refused
from noonbell.web.routing import page_router
from noonbell.web.session import Managing, RequestContext, Visiting

router = page_router()

UserInPath = Annotated[str, Path(alias="name", pattern=r"^[a-z0-9][a-z0-9_.-]{0,62}$")]
SCOPES: Final = {"read": "look", "write": "look and change", "admin": "everything, people and keys included"}
_PAGE: Final = 100
_MOST_TEAMS: Final = 200


@router.get("/team")
async def show(visitor: Visiting) -> Response:
    return await _shown(visitor)


@router.post("/team/password")
async def change_password(visitor: Visiting) -> Response:
    """Change the user's own password, given the old one. All sessions of the user end, including this one."""
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
        return await _shown(visitor, 422, errors=await refused(visitor, error, ("new",), {"password": "new"}))
    return visitor.go("/login")


# --- people -----------------------------------------------------------------------------------------------------------


@router.post("/team/people")
async def add(visitor: Managing) -> Response:
    """Respond with the page itself: the link is in this response and nowhere else."""
    form = visitor.form
    typed = {"name": form.text("name").lower(), "scope": form.text("scope"), "of": form.text("of") or visitor.team}
    if typed["of"] != visitor.team:
        _require_manager(visitor)
    access = access_of(visitor.service, visitor.caller)
    try:
        user = await access.create_user(typed["name"], typed["of"], typed["scope"])
    except AccessNotFoundError:
        return await _shown(visitor, 422, errors={"of": "is not a team; create it first"}, typed=typed)
    except NoonbellError as error:
        errors = await refused(visitor, error, ("name", "scope"), {"scopes": "scope"})
        return await _shown(visitor, 422, errors=errors, typed=typed)
    return await _with_link(visitor, access, user)


@router.post("/team/people/{name}/link")
async def new_link(visitor: Managing, name: UserInPath) -> Response:
    """Create a link for a user who forgot the password; the old password stays valid until the link is used."""
    user = await _person(visitor, name)
    return await _with_link(visitor, access_of(visitor.service, visitor.caller), user)


@router.post("/team/people/{name}/scope")
async def change_scope(visitor: Managing, name: UserInPath) -> Response:
    user = await _person(visitor, name)
    _refuse_oneself(visitor, user, "change their own rights")
    scope = visitor.form.text("scope")
    if scope not in SCOPES:
        raise ProblemError(422, f"The right must be one of {', '.join(SCOPES)}", field="scope", value=scope)
    await access_of(visitor.service, visitor.caller).set_scope(name, scope)
    return visitor.go("/team", f"{name} may {SCOPES[scope]} from now on")


@router.post("/team/people/{name}/remove")
async def remove(visitor: Managing, name: UserInPath) -> Response:
    user = await _person(visitor, name)
    _refuse_oneself(visitor, user, "remove themselves")
    await access_of(visitor.service, visitor.caller).delete_user(name)
    return visitor.go("/team", f"{name} is removed, and logged out everywhere")


async def _person(visitor: RequestContext, name: str) -> User:
    """Return a user; for users who do not manage teams, one of another team counts as not found."""
    user = await visitor.service.access.get_user(name)
    if user.team != visitor.team and not visitor.caller.manages_teams:
        raise AccessNotFoundError("user", name)
    return user


def _refuse_oneself(visitor: RequestContext, user: User, what: str) -> None:
    if user.name == visitor.session.user:
        raise ProblemError(409, f"Users cannot {what}; another admin can", kind="own-account")


async def _with_link(visitor: RequestContext, access: Access, user: User) -> Response:
    token = await access.new_password_link(user.name)
    link = f"{visitor.service.settings.address}/welcome/{user.name}/{token}"
    return await _shown(visitor, invited=user, link=link)


# --- teams ------------------------------------------------------------------------------------------------------------


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
        return await _shown(visitor, 422, errors=await refused(visitor, error, ("team", "title")), typed=typed)
    return visitor.go("/team", f"The team {made.name} was created; add its first admin, or create its first key")


def _require_manager(visitor: RequestContext) -> None:
    if not visitor.caller.manages_teams:
        raise ProblemError(403, "Teams are managed by the admins of the team default", kind="foreign-team")


async def _shown(visitor: RequestContext, status: int = 200, **values: Any) -> Response:
    access, manages = visitor.service.access, visitor.caller.manages_teams
    after = visitor.request.query_params.get("after", "")[:100]
    users = await access.list_members(None if manages else visitor.team, after=after, limit=_PAGE + 1)
    teams = await access.list_teams(limit=_MOST_TEAMS + 1) if manages else []
    usual: dict[str, Any] = {"errors": {}, "typed": {}, "invited": None, "link": None}
    return visitor.page(
        "team.html", status, users=users[:_PAGE], more=users[_PAGE - 1].name if len(users) > _PAGE else None,
        first=not after, teams=teams[:_MOST_TEAMS], teams_cut=len(teams) > _MOST_TEAMS, manages=manages,
        scopes=SCOPES, session=visitor.session, **(usual | values),
    )  # fmt: skip
