"""`noonbell apply`: apply a file of schedules to a store."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from datetime import timedelta
from typing import Final

import click

from noonbell.cli.backend.backend_protocol import ShownPlan
from noonbell.cli.connection_target import ConnectionTarget
from noonbell.cli.declared_files import (
    WOULD_CHANGE,
    WRONG,
    PlanningCommand,
    cli_error,
    options,
    planned,
    print_plan,
    read_file,
)
from noonbell.cli.progress import working
from noonbell.cli.schedule_views import print_warnings
from noonbell.planning import Format

_EXAMPLES: Final = """\b
noonbell apply schedules.toml --store sqlite:///app.db
noonbell apply schedules.toml --yes --allow-delete --actor deploy
noonbell apply schedules.toml --server https://bell.example.org
"""


@click.command("apply", cls=PlanningCommand, epilog=_EXAMPLES)
@options
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--allow-delete", is_flag=True, help="Delete schedules that the file no longer declares.")
@click.option("--create", is_flag=True, help="Create the ledger if it does not exist.")
@click.option("--actor", metavar="NAME", help="The actor in the audit. Default: file:NAME.")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    file: str,
    form: Format | None,
    check: bool,
    yes: bool,
    allow_delete: bool,
    create: bool,
    actor: str | None,
    place: ConnectionTarget,
) -> None:
    """Apply FILE: create, change and delete the schedules that belong to it, all or none; the plan is shown first.

    If the store has changed since the plan was shown, nothing is applied. Running engines see the changes at their
    next poll. Exit status: 0 done; 2 with --check if something would change; 1 on an error, or if the answer was no.
    """
    as_json = place.as_json
    begun = time.monotonic()
    made = planned(place, read_file(file, form, as_json=as_json), create=create)
    if not as_json:
        print_plan(made, place)
    if made.empty or check:
        if as_json:
            click.echo(json.dumps({**made.data, "applied": False}, ensure_ascii=False))
        ctx.exit(WOULD_CHANGE if check and not made.empty else 0)
    _confirm(ctx, made, yes=yes, allow_delete=allow_delete, as_json=as_json)
    # the answer may have taken a while: new schedules begin now, not when the plan was made
    later = replace(place, now=place.now + timedelta(seconds=time.monotonic() - begun))
    with working(f"Applying {len(made.schedules) + len(made.quiet_hours)} changes", as_json=as_json):
        warnings = later.ask(lambda backend: backend.files.apply(made, actor))
    if as_json:
        click.echo(json.dumps({**made.data, "applied": True, "warnings": list(warnings)}, ensure_ascii=False))
    else:
        print_warnings(warnings)
        click.echo("Applied.")


def _confirm(ctx: click.Context, made: ShownPlan, *, yes: bool, allow_delete: bool, as_json: bool) -> None:
    """Ask for confirmation of what no option allows; without a terminal that is an error."""
    asks = sys.stdin.isatty() and not yes and not as_json  # a question would spoil the JSON
    named = ", ".join(made.deleted)
    if made.deleted and not allow_delete:
        if not asks:
            message = f"The plan deletes {named}; nothing was applied"
            hint = "Pass --allow-delete to delete them"
            raise cli_error(message, {"deleted": made.deleted}, (hint,), as_json=as_json)
        if not click.confirm(f"Delete {named}?"):
            click.echo("Nothing was applied.")
            ctx.exit(WRONG)
    if yes:
        return
    if not asks:
        raise cli_error("Not a terminal; nothing was applied", {}, ("Pass --yes to apply",), as_json=as_json)
    if not click.confirm("Apply?"):
        click.echo("Nothing was applied.")
        ctx.exit(WRONG)
