"""`noonbell schedules`: list, add, show, edit, pause, resume, trigger and remove schedules."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from noonbell.cli import schedule_fields
from noonbell.cli import spec_input as readings
from noonbell.cli.backend.backend_protocol import Backend
from noonbell.cli.cli_errors import WRONG, HintingCommand, HintingGroup, printable
from noonbell.cli.completion_sources import schedule_names
from noonbell.cli.connection_target import ConnectionTarget, team_option, with_backend
from noonbell.cli.console_tables import clock
from noonbell.cli.following import until_ended
from noonbell.cli.schedule_lookup import find_schedule
from noonbell.cli.schedule_views import (
    dumped,
    print_coming,
    print_run,
    print_schedule,
    print_schedules,
    print_warnings,
    run_data,
    schedule_data,
    statistics_data,
)
from noonbell.core.records import DECLARED_OWNERS
from noonbell.language.preview import coming
from noonbell.schedules.schedule_records import Page, Schedule, Upcoming
from noonbell.schedules.statistics import Statistics
from noonbell.schedules.warnings import command_elsewhere, no_engine, unknown_callback

_ADD_EXAMPLES: Final = """\b
noonbell schedules add "every weekday at 9am in Kyiv" --name report \\
    --http https://example.com/report --method POST --body '{"full": true}'
noonbell schedules add "*/15 * * * *" --name sync --attempts 3 \\
    --command "rsync -a /srv/ backup:"
noonbell schedules add "in 10 minutes" --name tea --message team \\
    --payload '{"text": "{{name}} is ready"}'
"""
_EXAMPLES: Final = """\b
noonbell schedules add "every weekday at 9am in Kyiv" --name report \\
    --http https://example.com/report
noonbell schedules list --tag nightly
noonbell schedules edit report --when "weekdays at 8:30"
noonbell schedules trigger report --wait
"""
_PAGE: Final = 1_000
_COUNTED: Final = 100
_name = click.argument("schedule", metavar="SCHEDULE", shell_complete=schedule_names)


@click.group("schedules", cls=HintingGroup, epilog=_EXAMPLES)
def command() -> None:
    """Create, show, edit and run schedules. SCHEDULE is a name or an id."""


# --- looking ----------------------------------------------------------------------------------------------------------


@command.command("list", cls=HintingCommand)
@click.option("--enabled/--paused", "enabled", default=None, help="Only those that run, or only those that rest.")
@click.option("--type", "type_", type=click.Choice(["cron", "interval", "one_shot"]))
@click.option("--tag", help="Only those with this tag.")
@click.option("--name", "name_contains", metavar="TEXT", help="Only those whose name contains it.")
@click.option("--owner", "managed_by", metavar="OWNER", help="Only those of api, file:NAME, scheduler:NAME, ...")
@click.option("--quiet", "quiet_hours_policy_id", metavar="ID", help="Only those with these quiet hours.")
@click.option("--team", metavar="NAME", help="Only those of this team.")
@click.option("--limit", "-n", type=click.IntRange(1), default=50, show_default=True, help="How many.")
@click.option("--all", "everything", is_flag=True, help="All of them.")
@click.option("--cursor", metavar="CURSOR", help="Continue a list after this cursor, which the list has printed.")
@with_backend
def list_(
    *,
    type_: str | None,
    team: str | None,
    limit: int,
    everything: bool,
    cursor: str | None,
    place: ConnectionTarget,
    **given: Any,
) -> None:
    """List schedules, oldest first."""
    wanted = {key: value for key, value in {**given, "type": type_}.items() if value is not None}

    async def ask(backend: Backend) -> Page[Schedule]:
        filters = dict(wanted)
        if (whose := backend.team_seen(team)) is not None:
            filters["team"] = whose
        found: list[Schedule] = []
        after = cursor
        while everything or len(found) < limit:
            size = _PAGE if everything else min(_PAGE, limit - len(found))
            page = await backend.schedules.list(cursor=after, limit=size, **filters)
            found += page.items
            after = page.next_cursor
            if after is None:
                break
        return Page(found, after)

    page = place.ask(ask, read_only=True)
    if place.as_json:
        click.echo(dumped({"items": [schedule_data(one) for one in page.items], "next_cursor": page.next_cursor}))
        return
    if not page.items:
        click.echo("No schedule fits." if wanted else "No schedules yet; noonbell schedules add creates one.")
        return
    print_schedules(page.items, place.now)
    if page.next_cursor is not None:
        click.echo(f"More schedules: --all, or --cursor {page.next_cursor}", err=True)


@command.command("show", cls=HintingCommand)
@_name
@click.option("--count", "-n", type=click.IntRange(0, 1_000), default=5, show_default=True, help="Coming occurrences.")
@with_backend
def show(*, schedule: str, count: int, place: ConnectionTarget) -> None:
    """Show one schedule: its time, action and policies, and the next occurrences."""

    async def ask(backend: Backend) -> tuple[Schedule, Sequence[Upcoming], Statistics | None]:
        found = await find_schedule(backend.schedules, schedule)
        if found.managed_by.startswith(DECLARED_OWNERS):
            return found, (), None
        comes = await backend.schedules.preview(found.schedule_id, count) if found.enabled and count else ()
        return found, comes, await backend.schedules.statistics(found.schedule_id, last=_COUNTED)

    found, upcoming, counts = place.ask(ask, read_only=True)
    if place.as_json:
        document = {**schedule_data(found), "upcoming": [_upcoming(one) for one in upcoming]}
        click.echo(dumped({**document, "latest_runs": None if counts is None else statistics_data(counts)}))
        return
    print_schedule(found, upcoming, place.now, counts)


# --- changing ---------------------------------------------------------------------------------------------------------


@command.command("add", cls=HintingCommand, epilog=_ADD_EXAMPLES)
@click.argument("when", metavar="WHEN")
@click.option("--name", help="What people call it. Default: the ID.")
@click.option("--id", "schedule_id", metavar="ID", help="Cannot be changed later. Default: generated.")
@click.option("--paused", is_flag=True, help="Create it paused.")
@click.option("--dry-run", is_flag=True, help="Show the interpretation, and create nothing.")
@click.option("--create", is_flag=True, help="Create the database if it does not exist.")
@click.option("--count", "-n", type=click.IntRange(1, 100), default=3, show_default=True, help="Fires to show.")
@schedule_fields.action_options
@schedule_fields.policy_options
@team_option
@with_backend(needed=False)
def add(
    *,
    when: str,
    name: str | None,
    schedule_id: str | None,
    paused: bool,
    dry_run: bool,
    create: bool,
    count: int,
    tz: str | None,
    team: str | None,
    place: ConnectionTarget,
    **given: Any,
) -> None:
    """Create a schedule. WHEN is English or cron, in quotes; its interpretation and the next fires are shown."""
    if not dry_run:
        place = place.found()
    reading, fields = schedule_fields.read_when(when, tz, place)
    action = schedule_fields.action(given, place, needed=not dry_run)
    if name is None and schedule_id is None and not dry_run:
        raise place.cli_error("The name is missing: pass --name NAME", {"option": "--name"})
    fields |= {"name": name or schedule_id, "action": action, **schedule_fields.policies(given, place)}
    if schedule_id is not None:
        fields["schedule_id"] = schedule_id
    if paused:
        fields["enabled"] = False
    made: Schedule | None = None
    fires: Sequence[Upcoming] = ()
    warnings: list[str] = []
    if not dry_run:

        async def make(backend: Backend) -> tuple[Schedule, Sequence[Upcoming], list[str]]:
            new = await backend.schedules.create(team=backend.team_for(team), fields=fields)
            comes = await backend.schedules.preview(new.schedule_id, count) if new.enabled else ()
            found = await _warnings(backend, new, place)
            return new, comes, [one for one in found if one not in new.warnings]

        made, fires, warnings = place.ask(make, create=create)
        _warn(warnings, place)
    else:
        at = coming(reading.understood, place.now.astimezone(reading.zone), count, given["dst"] or "literal")
        fires = [Upcoming(one, one, quiet=False) for one in at]
    surprises = readings.coming_surprises(reading, place.now.astimezone(reading.zone), given["dst"] or "literal")
    if place.as_json:
        document = {"understood": reading.data, "upcoming": [_upcoming(one) for one in fires]}
        document["surprises"] = [readings.surprise_data(one) for one in surprises]
        if made is not None:
            document = {**schedule_data(made), **document, "warnings": [*made.warnings, *warnings]}
        click.echo(dumped(document))
        return
    out = readings.terminal()
    readings.print_head(out, reading)
    print_coming(fires, str(reading.zone), place.now)
    readings.print_surprises(out, surprises)
    print_warnings(() if made is None else made.warnings)
    if made is None:
        click.echo("Nothing was created (--dry-run).")
        return
    state = "" if made.enabled else "; it is paused"
    click.echo(f"Schedule {printable(made.name)} created, with the id {printable(made.schedule_id)}{state}.")


@command.command("edit", cls=HintingCommand)
@_name
@click.option("--when", metavar="WHEN", help="English or cron.")
@click.option("--name", help="Another name.")
@schedule_fields.action_options
@schedule_fields.policy_options
@with_backend
def edit(
    *, schedule: str, when: str | None, name: str | None, tz: str | None, place: ConnectionTarget, **given: Any
) -> None:
    """Change the given fields and keep the others. --quiet none, --since none and --until none clear a field."""
    fields = schedule_fields.policies(given, place)
    action = schedule_fields.action(given, place, needed=False)
    if action is not None:
        fields["action"] = action
    if name is not None:
        fields["name"] = name
    if when is None and tz is not None:
        fields["timezone"] = tz
    if when is None and not fields:
        raise place.cli_error("Nothing to change: pass --when, --name or another option", {"argument": "SCHEDULE"})

    async def change(backend: Backend) -> tuple[Schedule, Sequence[Upcoming]]:
        found = _editable(await find_schedule(backend.schedules, schedule), place)
        changes = dict(fields)
        if when is not None:
            # a text that names no zone stays in the schedule's
            reading, said = schedule_fields.read_when(when, tz, place)
            if tz is None and not reading.understood.zone_named:
                reading, said = schedule_fields.read_when(when, found.timezone, place)
            if said.pop("type") != found.type:
                message = (
                    f'"{when}" is of the type {reading.understood.kind}, and {found.name} is of the type {found.type}'
                )
                hint = "A schedule keeps its type: add another one, and remove this"
                raise place.cli_error(message, {"option": "--when", "value": when}, (hint,))
            changes |= said
        changed = await backend.schedules.update(found.schedule_id, changes)
        return changed, await backend.schedules.preview(changed.schedule_id, 3) if changed.enabled else ()

    _print_change(*place.ask(change), place)


@command.command("pause", cls=HintingCommand)
@_name
@with_backend
def pause(*, schedule: str, place: ConnectionTarget) -> None:
    """Pause a schedule: no occurrences until it is resumed. Occurrences due before are still decided."""

    async def change(backend: Backend) -> Schedule:
        found = _editable(await find_schedule(backend.schedules, schedule), place)
        return await backend.schedules.pause(found.schedule_id)

    changed = place.ask(change)
    click.echo(dumped(schedule_data(changed)) if place.as_json else f"Schedule {printable(changed.name)} paused.")


@command.command("resume", cls=HintingCommand)
@_name
@with_backend
def resume(*, schedule: str, place: ConnectionTarget) -> None:
    """Resume a schedule from the next occurrence on."""

    async def change(backend: Backend) -> Schedule:
        found = _editable(await find_schedule(backend.schedules, schedule), place)
        return await backend.schedules.resume(found.schedule_id)

    changed = place.ask(change)
    when = clock(changed.next_run_at, changed.timezone)
    click.echo(dumped(schedule_data(changed)) if place.as_json else f"{printable(changed.name)} runs next at {when}.")


@command.command("rm", cls=HintingCommand)
@_name
@click.option("--yes", is_flag=True, help="Ask nothing.")
@with_backend
def remove(*, schedule: str, yes: bool, place: ConnectionTarget) -> None:
    """Delete a schedule. Its history is kept; its id is never used again."""
    found = place.ask(lambda backend: find_schedule(backend.schedules, schedule), read_only=True)
    _editable(found, place)
    if not yes:
        if not sys.stdin.isatty() or place.as_json:
            raise place.cli_error("Not a terminal; nothing was deleted", {}, ("Pass --yes to delete without asking",))
        if not click.confirm(f"Delete {printable(found.name)} ({found.schedule_id})?"):
            click.echo("Nothing was deleted.")
            click.get_current_context().exit(WRONG)
    place.ask(lambda backend: backend.schedules.delete(found.schedule_id))
    document = {"deleted": found.schedule_id, "name": found.name}
    click.echo(dumped(document) if place.as_json else f"Schedule {printable(found.name)} deleted.")


@command.command("trigger", cls=HintingCommand)
@_name
@click.option("--wait", is_flag=True, help="Wait for its end; exit status 1 if it does not succeed.")
@click.option("--queue", is_flag=True, help="If a run is under way, run it after that instead of refusing.")
@click.option("--no-retry", is_flag=True, help="Attempt it once, whatever the retry policy of the schedule.")
@with_backend
def trigger(*, schedule: str, wait: bool, queue: bool, no_retry: bool, place: ConnectionTarget) -> None:
    """Start a manual run now. It is refused while a run is in progress, unless the overlap is allow.

    A run that fails is retried by the retry policy of the schedule.
    """

    async def ask(backend: Backend) -> tuple[str, list[str]]:
        found = _editable(await find_schedule(backend.schedules, schedule), place)
        run_id = await backend.schedules.trigger(found.schedule_id, queue=queue, retry=not no_retry)
        return run_id, await _warnings(backend, found, place)

    run_id, warnings = place.ask(ask)
    if not wait or not place.as_json:
        _warn(warnings, place)
    if not wait:
        message = f"The run {run_id} is queued; follow it with: noonbell runs follow {run_id}"
        click.echo(dumped({"run_id": run_id, "warnings": warnings}) if place.as_json else printable(message))
        return
    run = until_ended(place, run_id)
    if place.as_json:
        click.echo(dumped(run_data(run)))
    else:
        print_run(run, run.ended_at or place.now)
    click.get_current_context().exit(0 if run.state == "succeeded" else WRONG)


async def _warnings(backend: Backend, schedule: Schedule, place: ConnectionTarget) -> list[str]:
    """Return reasons why runs of a schedule may not start, as far as they are known here."""
    found = []
    if not any(one.lane == schedule.lane for one in await backend.engines()):
        found.append(no_engine(schedule.lane))
    kind = schedule.action.get("kind")
    if kind == "callback":
        found.append(unknown_callback(str(schedule.action.get("name"))))
    if kind == "command" and place.server is None:
        found.append(command_elsewhere(schedule.action))
    return found


def _warn(warnings: Sequence[str], place: ConnectionTarget) -> None:
    if not place.as_json:
        for one in warnings:
            click.echo(f"Warning: {printable(one)}", err=True)


def _editable(found: Schedule, place: ConnectionTarget) -> Schedule:
    if found.managed_by.startswith(DECLARED_OWNERS):
        kind, _, owner = found.managed_by.partition(":")
        message = f'{found.name} is declared by the {kind} "{owner}"; change it in the program that declares it'
        raise place.cli_error(message, {"field": "managed_by", "value": found.managed_by})
    return found


def _print_change(changed: Schedule, fires: Sequence[Upcoming], place: ConnectionTarget) -> None:
    if place.as_json:
        click.echo(dumped({**schedule_data(changed), "upcoming": [_upcoming(one) for one in fires]}))
    else:
        print_schedule(changed, fires, place.now)
        print_warnings(changed.warnings)


def _upcoming(one: Upcoming) -> dict[str, Any]:
    return {"scheduled_for": one.scheduled_for.isoformat(), "starts_at": one.starts_at.isoformat(), "quiet": one.quiet}
