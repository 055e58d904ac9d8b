"""`noonbell secrets`: put secrets in, list their names, remove them, move them to a new master key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click
from rich.table import Table
from rich.text import Text

from noonbell.actions.secrets.book import Rotation
from noonbell.actions.secrets.records import SecretFacts
from noonbell.cli.complaints import Complaint, SpeakingCommand, printable
from noonbell.cli.reading import terminal
from noonbell.cli.sealed_store import json_option, key_option, read_value, store_option, team_option, with_secrets
from noonbell.ledger.reading import moment
from noonbell.ledger.wording import counted

_EXAMPLES: Final = """\b
noonbell secrets set TOKEN --store sqlite:///app.db --key-file master.keys
pass show token | noonbell secrets set TOKEN
noonbell secrets list
noonbell secrets rotate
"""
_name = click.argument("name", metavar="NAME")


@click.group("secrets", epilog=_EXAMPLES)
def command() -> None:
    """Put in the secrets that requests name as ${secrets.NAME}.

    They are sealed under the master keys (`noonbell keys`). No command gives a value back.
    """


@command.command("set", cls=SpeakingCommand)
@_name
@team_option
@store_option
@key_option
@json_option
def set_(*, name: str, team: str, url: str, key_file: Path | None, as_json: bool) -> None:
    """Store the secret NAME, or a new value of it. The value is asked for, or read from stdin."""
    value = read_value(f"Value of {printable(name)}", as_json=as_json)
    facts = with_secrets(url, key_file, lambda secrets: secrets.put(team, name, value), as_json=as_json)
    if as_json:
        click.echo(json.dumps(_as_json(facts), ensure_ascii=False))
    else:
        click.echo(f"{name} of team {printable(team)} is stored, version {facts.version}.")


@command.command("list", cls=SpeakingCommand)
@team_option
@store_option
@json_option
def list_(*, team: str, url: str, as_json: bool) -> None:
    """List names, versions and times. Needs no master key."""
    found = with_secrets(
        url, None, lambda secrets: secrets.list(team), as_json=as_json, read_only=True, needs_keys=False
    )
    if as_json:
        click.echo(json.dumps([_as_json(facts) for facts in found], ensure_ascii=False))
        return
    if not found:
        click.echo(f"Team {printable(team)} has no secrets.")
        return
    table = Table("name", "version", "master key", "created", "value put", box=None, pad_edge=False)
    for facts in found:
        times = (f"{moment(at):%Y-%m-%d %H:%M}" for at in (facts.created_at, facts.updated_at))
        table.add_row(Text(printable(facts.name)), str(facts.version), str(facts.key_version), *times)
    terminal().print(table)


@command.command("rm", cls=SpeakingCommand)
@_name
@team_option
@store_option
@json_option
def remove(*, name: str, team: str, url: str, as_json: bool) -> None:
    """Remove the secret NAME. What refers to it fails from then on, before anything is sent."""
    gone = with_secrets(url, None, lambda secrets: secrets.delete(team, name), as_json=as_json, needs_keys=False)
    if not gone:
        told = f'Team "{printable(team)}" has no secret "{printable(name)}"'
        raise Complaint(told, {"argument": "NAME", "value": name, "team": team}, as_json=as_json)
    click.echo(json.dumps({"removed": name, "team": team}) if as_json else f"{name} is removed.")


@command.command("rotate", cls=SpeakingCommand)
@store_option
@key_option
@json_option
def rotate(*, url: str, key_file: Path | None, as_json: bool) -> None:
    """Wrap what is sealed under older master keys anew, under the newest.

    Others may read and write meanwhile. It can be stopped and started again. Exit status 1: some records do not open;
    they are named, and left as they are.
    """
    shows = not as_json and terminal().is_terminal

    def progress(done: int) -> None:
        if shows:
            terminal().print(Text(f"{done} rewrapped", "dim"))

    done = with_secrets(url, key_file, lambda secrets: secrets.rotate(progress=progress), as_json=as_json)
    _tell(done, as_json=as_json)
    if done.unreadable:
        click.get_current_context().exit(1)


def _tell(done: Rotation, *, as_json: bool) -> None:
    if as_json:
        unreadable = [{"team": team, "name": name} for team, name in done.unreadable]
        click.echo(json.dumps({"rewrapped": done.rewrapped, "unreadable": unreadable}, ensure_ascii=False))
        return
    click.echo(f"{counted(done.rewrapped, 'record')} rewrapped under the newest master key.")
    for team, name in done.unreadable:
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
