"""`noonbell plan`: the changes that a file of schedules would make."""

from __future__ import annotations

import json
from typing import Final

import click

from noonbell.cli.connection_target import ConnectionTarget
from noonbell.cli.declared_files import WOULD_CHANGE, PlanningCommand, options, planned, print_plan, read_file
from noonbell.planning import Format

_EXAMPLES: Final = """\b
noonbell plan schedules.toml --store sqlite:///app.db
noonbell plan schedules.yaml --check --json
noonbell plan schedules.toml --server https://bell.example.org
"""


@click.command("plan", cls=PlanningCommand, epilog=_EXAMPLES)
@options
@click.pass_context
def command(ctx: click.Context, *, file: str, form: Format | None, check: bool, place: ConnectionTarget) -> None:
    """Show what applying FILE (TOML or YAML, - for stdin) would change: schedules, and runs in the coming weeks.

    Only schedules that belong to the file are read. Exit status: 0, or 2 with --check if something would change; 1 on
    an error.
    """
    made = planned(place, read_file(file, form, as_json=place.as_json))
    if place.as_json:
        click.echo(json.dumps(made.data, ensure_ascii=False))
    else:
        print_plan(made, place)
    ctx.exit(WOULD_CHANGE if check and not made.empty else 0)
