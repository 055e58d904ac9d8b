"""`noonbell plan`: what a file of schedules would change."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Final

import click

from noonbell.cli.declared_files import WOULD_CHANGE, PlanningCommand, in_store, options, print_plan, read_file
from noonbell.ledger.reading import instant
from noonbell.planning import Format, plan

_EXAMPLES: Final = """\b
noonbell plan schedules.toml --store sqlite:///app.db
noonbell plan schedules.yaml --check --json
"""


@click.command("plan", cls=PlanningCommand, epilog=_EXAMPLES)
@options
@click.pass_context
def command(ctx: click.Context, *, file: str, url: str, form: Format | None, check: bool, as_json: bool) -> None:
    """Show what applying FILE (TOML or YAML, - for stdin) would change: schedules and what fires in the coming weeks.

    Only schedules that belong to the file are looked at. Exit status: 0, or 2 with --check where something would
    change; 1 where something is wrong.
    """
    now: datetime = ctx.obj
    declared = read_file(file, form, as_json=as_json)
    made = in_store(url, lambda store: plan(store, declared, now=instant(now)), read_only=True, as_json=as_json)
    if as_json:
        click.echo(json.dumps(made.to_json(), ensure_ascii=False))
    else:
        print_plan(made, url)
    ctx.exit(WOULD_CHANGE if check and not made.empty else 0)
