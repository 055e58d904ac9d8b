"""`noonbell rules`: which events are sent to which channels: add, list, remove."""

from __future__ import annotations

import json
from typing import Any, Final

import click
import msgspec

from noonbell.cli.cli_errors import HintingCommand, HintingGroup
from noonbell.cli.connection_target import ConnectionTarget, team_option, with_backend
from noonbell.cli.console_tables import print_table
from noonbell.notify.notice_records import EVENTS, Rule

_EXAMPLES: Final = """\b
noonbell rules add nightly --on failed --on recovered --to ops --tag nightly
noonbell rules add slow-reports --on slow --slow 600 --to ops --schedule 3f0c
"""
_id = click.argument("rule_id", metavar="ID")


@click.group("rules", cls=HintingGroup, epilog=_EXAMPLES)
def command() -> None:
    """Manage which events are sent to which channels. `noonbell channels` manages the channels."""


@command.command("add", cls=HintingCommand)
@_id
@click.option("--name", help="Default: the ID.")
@click.option("--on", "on", type=click.Choice(EVENTS), multiple=True, required=True, help="May be given several times.")
@click.option("--to", "channels", multiple=True, required=True, metavar="CHANNEL", help="As --on.")
@click.option("--schedule", "schedule_id", metavar="ID", help="Only for this schedule.")
@click.option("--monitor", "monitor_id", metavar="ID", help="Only for this monitor.")
@click.option("--tag", help="Only for what has this tag. Default: everything of the team.")
@click.option("--late", "late_seconds", type=float, metavar="SECONDS", help="From when on a start is late.")
@click.option("--slow", "slow_seconds", type=float, metavar="SECONDS", help="From when on a run is slow.")
@click.option("--window", "window_seconds", type=float, metavar="SECONDS", help="Repeats within it are only counted.")
@click.option("--title", help="A text with fields such as {{name}}.")
@click.option("--text", help="As --title.")
@team_option
@with_backend
def add(*, rule_id: str, name: str | None, team: str | None, place: ConnectionTarget, **given: Any) -> None:
    """Add the rule ID."""
    fields = {field: value for field, value in given.items() if value is not None}
    made = place.ask(
        lambda backend: backend.rules.create(
            rule_id=rule_id, name=name or rule_id, team=backend.team_for(team), **fields
        )
    )
    click.echo(_json(made) if place.as_json else f"Rule {rule_id} created: {_said(made)}.")


@command.command("list", cls=HintingCommand)
@click.option("--team", metavar="NAME", help="Only those of one team.")
@with_backend
def list_(*, team: str | None, place: ConnectionTarget) -> None:
    """List the rules."""
    page = place.ask(lambda backend: backend.rules.list(team=backend.team_seen(team), limit=1_000), read_only=True)
    if place.as_json:
        click.echo(_json(page.items))
        return
    if not page.items:
        click.echo("No rules.")
        return
    lines = [(one.rule_id, one.team, _said(one), "" if one.enabled else "off") for one in page.items]
    print_table(("id", "team", "what", ""), lines, folded=2)


@command.command("rm", cls=HintingCommand)
@_id
@with_backend
def remove(*, rule_id: str, place: ConnectionTarget) -> None:
    """Remove the rule ID."""
    place.ask(lambda backend: backend.rules.delete(rule_id))
    click.echo(json.dumps({"removed": rule_id}) if place.as_json else f"{rule_id} is removed.")


def _said(rule: Rule) -> str:
    if rule.schedule_id is not None:
        subject = f"the schedule {rule.schedule_id}"
    elif rule.monitor_id is not None:
        subject = f"the monitor {rule.monitor_id}"
    else:
        subject = "everything" if rule.tag is None else f"what is tagged {rule.tag}"
    limits = {"late": rule.late_seconds, "slow": rule.slow_seconds}
    events = [event if limits.get(event) is None else f"{event} (over {limits[event]:g} s)" for event in rule.on]
    return f"{', '.join(events)} of {subject} to {', '.join(rule.channels)}"


def _json(value: Rule | list[Rule]) -> str:
    return msgspec.json.encode(value).decode()
