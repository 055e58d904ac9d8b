"""`noonbell signing`: the keys that sign a schedule's requests, for their receiver."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from noonbell.actions.signatures import SigningKey
from noonbell.cli.backend.backend_protocol import Backend
from noonbell.cli.cli_errors import HintingCommand, HintingGroup
from noonbell.cli.completion_sources import schedule_names
from noonbell.cli.connection_target import ConnectionTarget, key_file_option, team_option, with_backend
from noonbell.cli.schedule_lookup import find_schedule
from noonbell.core.instants import moment

_EXAMPLES: Final = """\b
noonbell signing show SCHEDULE --store sqlite:///app.db --key-file master.keys
noonbell signing rotate SCHEDULE --overlap 72
"""
_schedule = click.argument("schedule_id", metavar="SCHEDULE", shell_complete=schedule_names)


@click.group("signing", cls=HintingGroup, epilog=_EXAMPLES)
def command() -> None:
    """Show or replace the keys that sign a schedule's requests.

    A key is enough to sign as this schedule: give it only to the receiver.
    """


@command.command("show", cls=HintingCommand)
@_schedule
@team_option
@key_file_option
@with_backend
def show(*, schedule_id: str, team: str | None, key_file: Path | None, place: ConnectionTarget) -> None:
    """Print the current keys, newest first. If the schedule has none, the first one is created."""

    async def ask(backend: Backend) -> Sequence[SigningKey]:
        found = await find_schedule(backend.schedules, schedule_id)
        return await backend.secrets.signing_keys(found.schedule_id, backend.team_for(team or found.team))

    _print(place.ask(ask, key_file=key_file, needs_keys=True), as_json=place.as_json)


@command.command("rotate", cls=HintingCommand)
@_schedule
@click.option("--overlap", metavar="HOURS", type=click.FloatRange(0, 8_760), default=24, show_default=True,
              help="How long the old key keeps signing beside the new one.")  # fmt: skip
@team_option
@key_file_option
@with_backend
def rotate(
    *, schedule_id: str, overlap: float, team: str | None, key_file: Path | None, place: ConnectionTarget
) -> None:
    """Replace the key, and print the current keys. With --overlap 0, the old one becomes invalid at once."""
    beside = timedelta(hours=overlap)

    async def ask(backend: Backend) -> Sequence[SigningKey]:
        found = await find_schedule(backend.schedules, schedule_id)
        team_of = backend.team_for(team or found.team)
        return await backend.secrets.rotate_signing_keys(found.schedule_id, team_of, overlap=beside)

    _print(place.ask(ask, key_file=key_file, needs_keys=True), as_json=place.as_json)


def _print(keys: Sequence[SigningKey], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([{"key": key.key, "until": _until(key)} for key in keys]))
        return
    for key in keys:
        until = _until(key)
        click.echo(key.key if until is None else f"{key.key}  until {until}")


def _until(key: SigningKey) -> str | None:
    return None if key.expires_at is None else moment(key.expires_at).isoformat()
