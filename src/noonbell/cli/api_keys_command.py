"""`noonbell api-keys`: the keys of the REST API. A key is shown once, when it is created.

The master keys that encrypt secrets are managed by `noonbell keys`.
"""

from __future__ import annotations

import json
from datetime import UTC, timedelta
from typing import Any, Final

import click

from noonbell.access import ApiKey
from noonbell.access.access_records import SCOPES
from noonbell.cli.backend.backend_protocol import Backend
from noonbell.cli.cli_errors import HintingCommand, HintingGroup, printable
from noonbell.cli.connection_target import ConnectionTarget, team_option, with_backend

_EXAMPLES: Final = """\b
noonbell api-keys create deploy --scope write --store sqlite:///noonbell.db
noonbell api-keys create grafana --scope read --days 90
noonbell api-keys list --server https://bell.example.org
noonbell api-keys revoke k3v9x2m7q1az
"""


@click.group("api-keys", cls=HintingGroup, epilog=_EXAMPLES)
def command() -> None:
    """Create and revoke the keys of the REST API."""


@command.command("create", cls=HintingCommand)
@click.argument("name")
@click.option("--scope", "scopes", type=click.Choice(SCOPES), multiple=True, default=("read",), show_default=True)
@click.option("--days", type=click.IntRange(1, 36_500), help="How long it is valid. Default: until it is revoked.")
@team_option
@with_backend
def create(*, name: str, scopes: tuple[str, ...], days: int | None, team: str | None, place: ConnectionTarget) -> None:
    """Create a key called NAME and print it. It cannot be shown again."""
    expires_at = None if days is None else place.now.astimezone(UTC) + timedelta(days=days)

    async def make(backend: Backend) -> tuple[ApiKey, str]:
        # whether a key of another team may be made is for the server to say
        return await backend.keys.create_key(team or backend.team_for(None), scopes, name=name, expires_at=expires_at)

    record, key = place.ask(make, create=True)
    if place.as_json:
        click.echo(json.dumps({**_facts(record), "key": key}, ensure_ascii=False))
        return
    click.echo(key)
    click.echo(f"The key {record.key_id} of team {record.team} may {', '.join(record.scopes)}.", err=True)
    click.echo("Keep it now: it is not stored and cannot be shown again.", err=True)


@command.command("list", cls=HintingCommand)
@team_option
@with_backend
def list_keys(*, team: str | None, place: ConnectionTarget) -> None:
    """List the keys of a team."""

    async def all_keys(backend: Backend) -> tuple[str, list[ApiKey]]:
        found: list[ApiKey] = []
        whose = backend.team_for(team)
        while page := await backend.keys.list_keys(whose, after=found[-1].key_id if found else ""):
            found.extend(page)
        return whose, found

    whose, keys = place.ask(all_keys)
    if place.as_json:
        click.echo(json.dumps([_facts(key) for key in keys], ensure_ascii=False))
        return
    for key in keys:
        used = "never used" if key.last_used_at is None else f"last used {key.last_used_at:%Y-%m-%d %H:%M} UTC"
        ends = "" if key.expires_at is None else f", expires {key.expires_at:%Y-%m-%d}"
        click.echo(f"{key.key_id}  {'+'.join(key.scopes)}  {printable(key.name)}  ({used}{ends})")
    if not keys:
        click.echo(f'The team "{whose}" has no keys.')


@command.command("revoke", cls=HintingCommand)
@click.argument("key_id")
@with_backend
def revoke(*, key_id: str, place: ConnectionTarget) -> None:
    """Revoke a key and the keys that were created with it. A running service rejects them within seconds."""
    revoked = list(place.ask(lambda backend: backend.keys.revoke_key(key_id)))
    if place.as_json:
        click.echo(json.dumps({"revoked": key_id, "made_with_it": revoked[1:]}))
        return
    click.echo(f"The key {key_id} is revoked.")
    if len(revoked) > 1:
        click.echo(f"Also revoked: {len(revoked) - 1} created with it: {', '.join(revoked[1:])}.")


def _facts(key: ApiKey) -> dict[str, Any]:
    return {
        "key_id": key.key_id,
        "team": key.team,
        "name": key.name,
        "scopes": list(key.scopes),
        "created_at": key.created_at.isoformat(),
        "created_by": key.created_by,
        "expires_at": None if key.expires_at is None else key.expires_at.isoformat(),
        "last_used_at": None if key.last_used_at is None else key.last_used_at.isoformat(),
    }
