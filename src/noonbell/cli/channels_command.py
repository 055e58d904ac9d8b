"""`noonbell channels`: the destinations of notices: add, list, test, remove.

The secrets of a channel are read from a prompt or from stdin, never from the arguments of a command.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from noonbell.cli.cli_errors import CliError, HintingCommand, HintingGroup, printable
from noonbell.cli.connection_target import ConnectionTarget, key_file_option, team_option, with_backend
from noonbell.cli.console_tables import print_table
from noonbell.cli.secret_options import read_value
from noonbell.notify.kinds import KINDS
from noonbell.notify.notice_records import DEFAULT_PER_MINUTE, Channel

_EXAMPLES: Final = """\b
noonbell channels add ops --kind slack --key-file master.keys
noonbell channels add mail --kind email --set host=smtp.example.com \\
    --set from=bell@example.com --set to=ann@example.com --set user=bell
noonbell channels test ops
"""
# The fields that are read from a prompt if they were not given; a password only with a user.
_ASKED: Final = {"slack": "url", "discord": "url", "apprise": "url", "telegram": "token", "email": "password"}
_id = click.argument("channel_id", metavar="ID")
_allow = click.option("--allow", multiple=True, metavar="PLACE", help="A private host that may be reached.")
_apprise = click.option("--apprise", is_flag=True, help="Let apprise connect without egress checks.")


@click.group("channels", cls=HintingGroup, epilog=_EXAMPLES)
def command() -> None:
    """Manage destinations of notices: mail, Slack, Discord, Telegram, webhooks. `noonbell rules` chooses events."""


@command.command("add", cls=HintingCommand)
@_id
@click.option("--kind", type=click.Choice(list(KINDS)), required=True)
@click.option("--name", help="Default: the ID.")
@click.option("--set", "given", multiple=True, metavar="FIELD=VALUE", help="A field that is not secret.")
@click.option("--most-per-minute", type=int, default=DEFAULT_PER_MINUTE, show_default=True)
@_apprise
@team_option
@key_file_option
@with_backend
def add(
    *,
    channel_id: str,
    kind: str,
    name: str | None,
    given: tuple[str, ...],
    most_per_minute: int,
    apprise: bool,
    team: str | None,
    key_file: Path | None,
    place: ConnectionTarget,
) -> None:
    """Add the channel ID. Its secret (the address of a hook, a token, a password) is read from a prompt or stdin."""
    config = _config(kind, given, as_json=place.as_json)
    asked = _ASKED.get(kind)
    if asked is not None and asked not in config and (kind != "email" or "user" in config):
        config[asked] = read_value(f"{asked} of {printable(channel_id)}", as_json=place.as_json)
    made = place.ask(
        lambda backend: backend.channels.create(
            name=name or channel_id,
            kind=kind,
            config=config,
            team=backend.team_for(team),
            channel_id=channel_id,
            most_per_minute=most_per_minute,
        ),
        key_file=key_file,
        needs_keys=True,
        apprise=apprise,
    )
    click.echo(
        _json(made) if place.as_json else f"Channel {channel_id} created; test it: noonbell channels test {channel_id}"
    )


def _config(kind: str, given: tuple[str, ...], *, as_json: bool) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for one in given:
        field, sign, value = one.partition("=")
        if not sign:
            raise CliError(f"--set {printable(one)} must be FIELD=VALUE", {"option": "--set"}, as_json=as_json)
        head, _, inner = field.partition(".")
        if head in KINDS[kind].secret and "${secrets." not in value:
            message = f"{printable(field)} is secret and must not be an argument"
            hints = ("Leave it out to enter it at a prompt, or refer to a stored secret: '${secrets.NAME}'",)
            raise CliError(message, {"option": "--set", "field": field}, hints, as_json=as_json)
        if inner:
            config.setdefault(head, {})[inner] = value
        else:
            config[head] = _value(value)
    return config


def _value(text: str) -> Any:
    """Return a number, true, false or a list given as JSON; anything else as text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | list) else text


@command.command("list", cls=HintingCommand)
@click.option("--team", metavar="NAME", help="Only those of one team.")
@with_backend
def list_(*, team: str | None, place: ConnectionTarget) -> None:
    """List the channels."""
    page = place.ask(lambda backend: backend.channels.list(team=backend.team_seen(team), limit=1_000), read_only=True)
    if place.as_json:
        click.echo(_json(page.items))
        return
    if not page.items:
        click.echo("No channels.")
        return
    lines = []
    for one in page.items:
        rate = "no limit" if one.most_per_minute is None else str(one.most_per_minute)
        lines.append((one.channel_id, one.kind, one.name, one.team, rate, "" if one.enabled else "off"))
    print_table(("id", "kind", "name", "team", "per minute", ""), lines, folded=2)


@command.command("rm", cls=HintingCommand)
@_id
@with_backend
def remove(*, channel_id: str, place: ConnectionTarget) -> None:
    """Remove the channel ID. It is refused while a rule uses the channel."""
    place.ask(lambda backend: backend.channels.delete(channel_id))
    click.echo(json.dumps({"removed": channel_id}) if place.as_json else f"{channel_id} is removed.")


@command.command("test", cls=HintingCommand)
@_id
@_allow
@_apprise
@key_file_option
@with_backend
def test(
    *, channel_id: str, allow: tuple[str, ...], apprise: bool, key_file: Path | None, place: ConnectionTarget
) -> None:
    """Send a test notice to the channel ID, and print the receiver's answer.

    A server sends it by its own egress settings: --allow, --apprise and --key-file require --store.
    """
    said = place.ask(
        lambda backend: backend.channels.test(channel_id),
        key_file=key_file,
        needs_keys=True,
        allow=allow,
        apprise=apprise,
    )
    if place.as_json:
        click.echo(json.dumps({"sent": channel_id, "said": said}, ensure_ascii=False))
    else:
        click.echo(f"Sent. The receiver answered: {printable(said)}")


@command.command("key", cls=HintingCommand)
@_id
@key_file_option
@with_backend
def key(*, channel_id: str, key_file: Path | None, place: ConnectionTarget) -> None:
    """Show the signing keys of the webhook ID. The receiver needs them to verify requests."""
    keys = place.ask(lambda backend: backend.channels.signing_keys(channel_id), key_file=key_file, needs_keys=True)
    click.echo(json.dumps(list(keys)) if place.as_json else "\n".join(keys))


def _json(value: Channel | list[Channel]) -> str:
    return msgspec.json.encode(value).decode()
