"""`noonbell rules`: who is told of what: add, list, remove."""

from __future__ import annotations

import json
from typing import Any, Final

import click
import msgspec
from rich.table import Table
from rich.text import Text

from noonbell.cli.complaints import SpeakingCommand, printable
from noonbell.cli.notify_store import with_notify
from noonbell.cli.reading import terminal
from noonbell.cli.sealed_store import json_option, store_option, team_option
from noonbell.notify.records import EVENTS, Rule

_EXAMPLES: Final = """\b
noonbell rules add nightly --on failed --on recovered --to ops --tag nightly --store sqlite:///app.db
noonbell rules add slow-reports --on slow --slow 600 --to ops --schedule 3f0c
"""
_id = click.argument("rule_id", metavar="ID")


@click.group("rules", epilog=_EXAMPLES)
def command() -> None:
    """Say who is told of what. `noonbell channels` says where notices can go."""


@command.command("add", cls=SpeakingCommand)
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
@store_option
@json_option
def add(*, rule_id: str, name: str | None, team: str, url: str, as_json: bool, **given: Any) -> None:
    """Add the rule ID."""
    fields = {field: value for field, value in given.items() if value is not None}
    made = with_notify(
        url,
        lambda faces: faces.rules.create(rule_id=rule_id, name=name or rule_id, team=team, **fields),
        as_json=as_json,
    )
    click.echo(_json(made) if as_json else f"{rule_id} is there: {_said(made)}.")


@command.command("list", cls=SpeakingCommand)
@click.option("--team", metavar="NAME", help="Only those of one team.")
@store_option
@json_option
def list_(*, team: str | None, url: str, as_json: bool) -> None:
    """List the rules."""
    page = with_notify(url, lambda faces: faces.rules.list(team=team, limit=1_000), as_json=as_json, read_only=True)
    if as_json:
        click.echo(_json(page.items))
        return
    if not page.items:
        click.echo("There are no rules.")
        return
    table = Table("id", "team", "what", "", box=None, pad_edge=False)
    for one in page.items:
        cells = (one.rule_id, one.team, _said(one), "" if one.enabled else "off")
        table.add_row(*(Text(printable(cell)) for cell in cells))
    terminal().print(table)


@command.command("rm", cls=SpeakingCommand)
@_id
@store_option
@json_option
def remove(*, rule_id: str, url: str, as_json: bool) -> None:
    """Remove the rule ID."""
    with_notify(url, lambda faces: faces.rules.delete(rule_id), as_json=as_json)
    click.echo(json.dumps({"removed": rule_id}) if as_json else f"{rule_id} is removed.")


def _said(rule: Rule) -> str:
    if rule.schedule_id is not None:
        subject = f"the schedule {rule.schedule_id}"
    elif rule.monitor_id is not None:
        subject = f"the monitor {rule.monitor_id}"
    else:
        subject = "everything" if rule.tag is None else f"what is tagged {rule.tag}"
    limits = {"late": rule.late_seconds, "slow": rule.slow_seconds}
    told = [event if limits.get(event) is None else f"{event} (over {limits[event]:g} s)" for event in rule.on]
    return f"{', '.join(told)} of {subject} to {', '.join(rule.channels)}"


def _json(value: Rule | list[Rule]) -> str:
    return msgspec.json.encode(value).decode()
