"""`noonbell secrets`: store secrets, list their names, remove them, rewrap them under a new master key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from noonbell.actions.secrets.repository import Rotation
from noonbell.actions.secrets.secret_records import SecretFacts
from noonbell.cli.backend.backend_protocol import Backend
from noonbell.cli.cli_errors import HintingCommand, HintingGroup, printable
from noonbell.cli.connection_target import ConnectionTarget, key_file_option, team_option, with_backend
from noonbell.cli.console_tables import print_table
from noonbell.cli.progress import working
from noonbell.cli.secret_options import read_value
from noonbell.core.instants import moment
from noonbell.ledger.explanation_text import counted

_EXAMPLES: Final = """\b
noonbell secrets set TOKEN --store sqlite:///app.db --key-file master.keys
pass show token | noonbell secrets set TOKEN
noonbell secrets list
noonbell secrets rotate
"""
_name = click.argument("name", metavar="NAME")


@click.group("secrets", cls=HintingGroup, epilog=_EXAMPLES)
def command() -> None:
    """Manage the secrets that requests name as ${secrets.NAME}.

    They are encrypted under the master keys (`noonbell keys`). No command returns a value.
    """


@command.command("set", cls=HintingCommand)
@_name
@team_option
@key_file_option
@with_backend
def set_(*, name: str, team: str | None, key_file: Path | None, place: ConnectionTarget) -> None:
    """Store the secret NAME, or a new value of it. The value is read from a prompt or stdin."""
    value = read_value(f"Value of {printable(name)}", as_json=place.as_json)
    facts = place.ask(
        lambda backend: backend.secrets.put(backend.team_for(team), name, value), key_file=key_file, needs_keys=True
    )
    if place.as_json:
        click.echo(json.dumps(_as_json(facts), ensure_ascii=False))
    else:
        click.echo(f"{name} of team {printable(facts.team)} is stored, version {facts.version}.")


@command.command("list", cls=HintingCommand)
@team_option
@with_backend
def list_(*, team: str | None, place: ConnectionTarget) -> None:
    """List names, versions and times. Needs no master key."""

    async def ask(backend: Backend) -> tuple[str, Sequence[SecretFacts]]:
        whose = backend.team_for(team)
        return whose, await backend.secrets.list(whose)

    whose, found = place.ask(ask, read_only=True)
    if place.as_json:
        click.echo(json.dumps([_as_json(facts) for facts in found], ensure_ascii=False))
        return
    if not found:
        click.echo(f"Team {printable(whose)} has no secrets.")
        return
    lines = []
    for facts in found:
        times = (f"{moment(at):%Y-%m-%d %H:%M}" for at in (facts.created_at, facts.updated_at))
        lines.append((facts.name, str(facts.version), str(facts.key_version), *times))
    print_table(("name", "version", "master key", "created", "value put"), lines, folded=0)


@command.command("rm", cls=HintingCommand)
@_name
@team_option
@with_backend
def remove(*, name: str, team: str | None, place: ConnectionTarget) -> None:
    """Remove the secret NAME. Runs that refer to it fail from then on, before anything is sent."""

    async def ask(backend: Backend) -> tuple[str, bool]:
        whose = backend.team_for(team)
        return whose, await backend.secrets.delete(whose, name)

    whose, gone = place.ask(ask)
    if not gone:
        message = f'Team "{printable(whose)}" has no secret "{printable(name)}"'
        raise place.cli_error(message, {"argument": "NAME", "value": name, "team": whose})
    click.echo(json.dumps({"removed": name, "team": whose}) if place.as_json else f"{name} is removed.")


@command.command("rotate", cls=HintingCommand)
@key_file_option
@with_backend
def rotate(*, key_file: Path | None, place: ConnectionTarget) -> None:
    """Rewrap all secrets under the newest master key.

    Secrets can be read and written at the same time. The command can be interrupted and repeated. Exit status 1: some
    records cannot be decrypted; they are listed and not changed.
    """
    with working("Rewrapping", as_json=place.as_json, unit="records") as work:
        done = place.ask(
            lambda backend: backend.secrets.rotate(progress=work.counted), key_file=key_file, needs_keys=True
        )
    _print_rotation(done, as_json=place.as_json)
    if done.unreadable:
        click.get_current_context().exit(1)


def _print_rotation(done: Rotation, *, as_json: bool) -> None:
    if as_json:
        unreadable = [{"team": team or None, "name": name or None} for team, name in done.unreadable]
        click.echo(json.dumps({"rewrapped": done.rewrapped, "unreadable": unreadable}, ensure_ascii=False))
        return
    click.echo(f"{counted(done.rewrapped, 'record')} rewrapped under the newest master key.")
    unnamed = sum(not name for _, name in done.unreadable)
    if unnamed:
        click.echo(f"  {counted(unnamed, 'record')} cannot be opened; rotate --store names them", err=True)
    for team, name in done.unreadable if not unnamed else ():
        click.echo(f"  {printable(name)} of team {printable(team)} does not open; it is left as it is", err=True)
    if not done.unreadable:
        click.echo("Everything is under it: older keys can be taken out of the file.")


def _as_json(facts: SecretFacts) -> dict[str, Any]:
    return {
        "team": facts.team,
        "name": facts.name,
        "version": facts.version,
        "key_version": facts.key_version,
        "created_at": moment(facts.created_at).isoformat(),
        "updated_at": moment(facts.updated_at).isoformat(),
    }
