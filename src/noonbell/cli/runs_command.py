"""`noonbell runs`: list runs, show one with its attempts, and follow runs live."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, get_args

import click
from rich.text import Text

from noonbell.cli.backend.backend_protocol import Backend
from noonbell.cli.cli_errors import WRONG, HintingCommand, HintingGroup
from noonbell.cli.completion_sources import schedule_names
from noonbell.cli.connection_target import ConnectionTarget, with_backend
from noonbell.cli.console_tables import console
from noonbell.cli.following import events_of, until_ended
from noonbell.cli.schedule_lookup import find_schedule
from noonbell.cli.schedule_views import dumped, print_run, print_runs, run_data, run_line
from noonbell.core.ids import parse_run_id
from noonbell.core.records import Outcome
from noonbell.errors import ScheduleNotFoundError
from noonbell.schedules.history import Run
from noonbell.schedules.schedule_records import Page

_EXAMPLES: Final = """\b
noonbell runs list
noonbell runs list report --limit 5
noonbell runs list --outcome failed --json
noonbell runs show report
noonbell runs follow
"""
_PAGE: Final = 1_000


@click.group("runs", cls=HintingGroup, epilog=_EXAMPLES)
def command() -> None:
    """List, show and follow runs. SCHEDULE is a name or an id."""


@command.command("list", cls=HintingCommand)
@click.argument("schedule", metavar="[SCHEDULE]", required=False, shell_complete=schedule_names)
@click.option("--outcome", type=click.Choice(get_args(Outcome)), help="Only runs with this outcome.")
@click.option("--limit", "-n", type=click.IntRange(1, 100_000), default=20, show_default=True, help="How many.")
@click.option("--team", metavar="NAME", help="Only those of this team.")
@click.option("--cursor", metavar="CURSOR", help="Continue a list after this cursor, which the list has printed.")
@with_backend
def list_(
    *,
    schedule: str | None,
    outcome: str | None,
    limit: int,
    team: str | None,
    cursor: str | None,
    place: ConnectionTarget,
) -> None:
    """List ended runs, the latest first: of one schedule, or of all."""

    async def ask(backend: Backend) -> Page[Run]:
        of_one = None if schedule is None else (await find_schedule(backend.schedules, schedule)).schedule_id
        found: list[Run] = []
        after = cursor
        while len(found) < limit:
            size = min(_PAGE, limit - len(found))
            if of_one is not None:
                page = await backend.schedules.runs(of_one, cursor=after, limit=size)
            else:
                page = await backend.schedules.recent_runs(
                    cursor=after, limit=size, outcome=outcome, team=backend.team_seen(team)
                )
            found += [run for run in page.items if outcome in (None, run.state)]
            after = page.next_cursor
            if after is None:
                break
        return Page(found, after)

    page = place.ask(ask, read_only=True)
    if place.as_json:
        click.echo(dumped({"items": [run_data(run) for run in page.items], "next_cursor": page.next_cursor}))
        return
    if not page.items:
        click.echo("Nothing has run yet." if outcome is None else f"No run has {outcome}.")
        return
    print_runs(page.items, place.now, names=schedule is None)
    if page.next_cursor is not None:
        click.echo(f"More runs: --limit, or --cursor {page.next_cursor}", err=True)


@command.command("show", cls=HintingCommand)
@click.argument("run", metavar="RUN", shell_complete=schedule_names)
@with_backend
def show(*, run: str, place: ConnectionTarget) -> None:
    """Show a run with all its attempts: answers, output, errors. RUN is its id, or a schedule for the latest run."""

    async def ask(backend: Backend) -> Run:
        if parse_run_id(run) is not None:
            try:
                return await backend.schedules.run(run)
            except ScheduleNotFoundError:
                message = f'Run not found: "{run}"; its day may have been pruned'
                raise place.cli_error(message, {"argument": "RUN", "value": run}) from None
        found = await find_schedule(backend.schedules, run)
        latest: Sequence[Run] = (await backend.schedules.runs(found.schedule_id, limit=1)).items
        if not latest:
            raise place.cli_error(f"{found.name} has not run yet", {"argument": "RUN", "value": run})
        return await backend.schedules.run(latest[0].run_id)

    found = place.ask(ask, read_only=True)
    if place.as_json:
        click.echo(dumped(run_data(found)))
    else:
        print_run(found, place.now)


@command.command("follow", cls=HintingCommand)
@click.argument("what", metavar="[RUN|SCHEDULE]", required=False, shell_complete=schedule_names)
@click.option("--team", metavar="NAME", help="Only those of this team.")
@click.option("--count", "-n", type=click.IntRange(1), metavar="N", help="Exit after this many events.")
@with_backend
def follow(*, what: str | None, team: str | None, count: int | None, place: ConnectionTarget) -> None:
    """Show runs of one schedule or of all as they happen, until Ctrl-C; with --json, one object a line.

    With one RUN, wait for its end and show it; exit status 1 if it has not succeeded.
    """
    if what is not None and parse_run_id(what) is not None:
        run = until_ended(place, what)
        if place.as_json:
            click.echo(dumped(run_data(run)))
        else:
            print_run(run, run.ended_at or place.now)
        click.get_current_context().exit(0 if run.state == "succeeded" else WRONG)

    async def watch(backend: Backend) -> None:
        only = None if what is None else (await find_schedule(backend.schedules, what)).schedule_id
        if not place.as_json:
            out.print(Text("Runs as they happen; Ctrl-C ends it.", "dim"))
        shown = 0
        async for event in events_of(backend, team):
            if event is None or not _wanted(event.kind, event.data, only):
                continue
            _print_event(event.kind, event.data)
            shown += 1
            if shown == count:
                return

    def _print_event(kind: str, data: dict[str, Any]) -> None:
        if place.as_json:
            click.echo(dumped({"event": kind, **data}))
        elif kind == "reset":
            out.print(Text(f"… {data.get('reason', 'something may have been lost')}", "yellow"))
        else:
            out.print(run_line(data, datetime.now(UTC), width=24 if out.width < 110 else 40), soft_wrap=True)

    out = console()
    place.ask(watch, read_only=True, live=True)


def _wanted(kind: str, data: dict[str, Any], only: str | None) -> bool:
    return kind == "reset" or (kind == "run" and only in (None, data.get("schedule_id")))
