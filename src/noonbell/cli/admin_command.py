"""`noonbell admin`: the users who may log in, and the teams. Passwords are read only from a prompt or stdin."""

from __future__ import annotations

import json
from typing import Final

import click

from noonbell.access import Access, Team, User
from noonbell.access.access_records import DEFAULT_TEAM, SCOPES
from noonbell.cli.access_options import with_access
from noonbell.cli.secret_options import json_option, read_value, store_option

_EXAMPLES: Final = """\b
noonbell admin create ann --store sqlite:///noonbell.db
noonbell admin teams --store sqlite:///noonbell.db
"""


@click.group("admin", epilog=_EXAMPLES)
def command() -> None:
    """Manage the users and teams of a service."""


@command.command("create")
@click.argument("name")
@click.option("--team", default=DEFAULT_TEAM, show_default=True, help="Admins of the first team manage all teams.")
@click.option("--scope", type=click.Choice(SCOPES), default="admin", show_default=True, help="What NAME may do.")
@store_option
@json_option
def create(name: str, team: str, scope: str, url: str, *, as_json: bool) -> None:
    """Create the user NAME, by default an admin. The password is read from a prompt or from stdin."""
    password = read_value("Password", as_json=as_json)
    if (team, scope) == (DEFAULT_TEAM, "admin"):
        user = with_access(url, lambda access: access.create_admin(name, password), as_json=as_json, create=True)
        message = f'"{user.name}" can log in now and manage all teams.'
    else:
        user = with_access(
            url, lambda access: access.create_user(name, team, scope, password), as_json=as_json, create=True
        )
        message = f'"{user.name}" can log in now to the team {user.team}, with the right to {user.scope}.'
    _print_result(message, {"name": user.name, "team": user.team, "scope": user.scope}, as_json=as_json)


@command.command("link")
@click.argument("name")
@store_option
@json_option
def link(name: str, url: str, *, as_json: bool) -> None:
    """Create a link with which NAME chooses a new password. It works once, within three days."""
    token = with_access(url, lambda access: access.new_password_link(name), as_json=as_json)
    path = f"/welcome/{name}/{token}"
    message = f"Append this path to the address of the service, and give the link to {name} only: {path}"
    _print_result(message, {"name": name, "path": path}, as_json=as_json)


@command.command("password")
@click.argument("name")
@store_option
@json_option
def password(name: str, url: str, *, as_json: bool) -> None:
    """Set a new password for NAME. All sessions of NAME end."""
    chosen = read_value("New password", as_json=as_json)
    with_access(url, lambda access: access.set_password(name, chosen), as_json=as_json)
    _print_result(f'"{name}" has a new password.', {"name": name}, as_json=as_json)


@command.command("delete")
@click.argument("name")
@store_option
@json_option
def delete(name: str, url: str, *, as_json: bool) -> None:
    """Remove the user NAME and end all sessions of the user."""
    with_access(url, lambda access: access.delete_user(name), as_json=as_json)
    _print_result(f'"{name}" may not log in any more.', {"name": name}, as_json=as_json)


@command.command("list")
@store_option
@json_option
def list_users(url: str, *, as_json: bool) -> None:
    """List the users who may log in."""
    users = with_access(url, lambda access: access.list_users(), as_json=as_json)
    lines = [f"{user.name}  {user.scope}  of {user.team}  since {user.created_at:%Y-%m-%d}" for user in users]
    _print_result("\n".join(lines) or "No users yet.", [_user(user) for user in users], as_json=as_json)


@command.command("teams")
@store_option
@json_option
def teams(url: str, *, as_json: bool) -> None:
    """List the teams."""

    async def all_teams(access: Access) -> list[Team]:
        found: list[Team] = []
        while page := await access.list_teams(after=found[-1].name if found else ""):
            found.extend(page)
        return found

    listed = with_access(url, all_teams, as_json=as_json)
    lines = [team.name if team.title == team.name else f"{team.name}  {team.title}" for team in listed]
    _print_result("\n".join(lines), [{"name": team.name, "title": team.title} for team in listed], as_json=as_json)


@command.command("add-team")
@click.argument("name")
@click.option("--title", help="The name for people.")
@store_option
@json_option
def add_team(name: str, title: str | None, url: str, *, as_json: bool) -> None:
    """Create the team NAME."""
    team = with_access(url, lambda access: access.create_team(name, title), as_json=as_json, create=True)
    message = f'Created the team "{team.name}". Create its first key: noonbell api-keys create NAME --team {team.name}'
    _print_result(message, {"name": team.name, "title": team.title}, as_json=as_json)


def _user(user: User) -> dict[str, str]:
    return {"name": user.name, "team": user.team, "scope": user.scope, "created_at": user.created_at.isoformat()}


def _print_result(text: str, facts: object, *, as_json: bool) -> None:
    click.echo(json.dumps(facts, ensure_ascii=False) if as_json else text)
