"""`noonbell quiet`: quiet hours, in which the schedules that refer to them do not run."""

from __future__ import annotations

from typing import Any, Final

import click
import msgspec
from rich.text import Text

from noonbell.cli.backend.backend_protocol import Backend
from noonbell.cli.cli_errors import HintingCommand, HintingGroup, printable
from noonbell.cli.completion_sources import quiet_hours_ids
from noonbell.cli.connection_target import ConnectionTarget, team_option, with_backend
from noonbell.cli.console_tables import ago, clock, console, print_facts, print_table
from noonbell.cli.quiet_windows import RIGHT, read_window, window_text, windows_text
from noonbell.cli.schedule_views import dumped, print_warnings
from noonbell.cli.spec_input import complete_zone
from noonbell.cli.typed_times import find_zone
from noonbell.errors import ScheduleNotFoundError
from noonbell.schedules.schedule_records import QuietHoursRecord, Schedule

_EXAMPLES: Final = """\b
noonbell quiet add nights --window "Mon-Fri 22:00-06:00 Europe/Kyiv"
noonbell quiet add holidays --window "2026-12-25,2026-12-26 all day"
noonbell schedules edit report --quiet nights
noonbell quiet show nights
"""
_MOST_USERS: Final = 1_000
_id = click.argument("policy_id", metavar="ID", shell_complete=quiet_hours_ids)
_windows = click.option("--window", "windows", multiple=True, metavar="WINDOW", help=f"{RIGHT}; repeatable.")
_tz = click.option(
    "--tz", metavar="ZONE", shell_complete=complete_zone, help="Of windows that name none; default: the host's."
)


@click.group("quiet", cls=HintingGroup, epilog=_EXAMPLES)
def command() -> None:
    """Manage quiet hours, in which schedules do not run. A schedule refers to quiet hours by their id."""


@command.command("list", cls=HintingCommand)
@click.option("--team", metavar="NAME", help="Only those of this team.")
@with_backend
def list_(*, team: str | None, place: ConnectionTarget) -> None:
    """List quiet hours."""

    async def ask(backend: Backend) -> list[QuietHoursRecord]:
        whose = backend.team_seen(team)
        return [one for one in await backend.schedules.list_quiet_hours() if whose in (None, one.team)]

    found = place.ask(ask, read_only=True)
    if place.as_json:
        click.echo(dumped([msgspec.to_builtins(one) for one in found]))
        return
    if not found:
        click.echo("No quiet hours; noonbell quiet add creates them.")
        return
    print_table(
        ("id", "name", "silent"), [(one.policy_id, one.name, windows_text(one.windows)) for one in found], folded=2
    )


@command.command("add", cls=HintingCommand, epilog=_EXAMPLES)
@click.argument("policy_id", metavar="ID")
@click.option("--name", help="Default: the ID.")
@_windows
@_tz
@team_option
@with_backend
def add(
    *,
    policy_id: str,
    name: str | None,
    windows: tuple[str, ...],
    tz: str | None,
    team: str | None,
    place: ConnectionTarget,
) -> None:
    """Create the quiet hours ID."""
    read = _read(windows, tz, place)
    if not read:
        raise place.cli_error(
            "Pass --window: it sets when it is quiet", {"option": "--window", "right": RIGHT}, (f"Right is {RIGHT}",)
        )
    made = place.ask(
        lambda backend: backend.schedules.create_quiet_hours(
            name or policy_id, read, policy_id=policy_id, team=backend.team_for(team)
        )
    )
    _print_quiet_hours(made, place)


@command.command("show", cls=HintingCommand)
@_id
@with_backend
def show(*, policy_id: str, place: ConnectionTarget) -> None:
    """Show quiet hours, and the schedules that refer to them."""

    async def ask(backend: Backend) -> tuple[QuietHoursRecord, list[Schedule]]:
        found = await _find(backend, policy_id, place)
        page = await backend.schedules.list(limit=_MOST_USERS, quiet_hours_policy_id=found.policy_id)
        return found, page.items

    found, users = place.ask(ask, read_only=True)
    if place.as_json:
        click.echo(dumped({**msgspec.to_builtins(found), "schedules": [one.schedule_id for one in users]}))
        return
    _print_quiet_hours(found, place)
    print_facts([("used by", ", ".join(one.name for one in users) or "no schedule")])


@command.command("edit", cls=HintingCommand)
@_id
@click.option("--name", help="Another name.")
@_windows
@_tz
@with_backend
def edit(
    *, policy_id: str, name: str | None, windows: tuple[str, ...], tz: str | None, place: ConnectionTarget
) -> None:
    """Change the name, or replace all windows. The change applies at once to schedules that refer to them."""
    read = _read(windows, tz, place)
    if name is None and not read:
        raise place.cli_error("Nothing to change: pass --name or --window", {"argument": "ID"})

    async def change(backend: Backend) -> QuietHoursRecord:
        await _find(backend, policy_id, place)
        return await backend.schedules.update_quiet_hours(policy_id, name=name, windows=read or None)

    _print_quiet_hours(place.ask(change), place)


@command.command("rm", cls=HintingCommand)
@_id
@with_backend
def remove(*, policy_id: str, place: ConnectionTarget) -> None:
    """Remove quiet hours. It is refused while a schedule refers to them."""

    async def change(backend: Backend) -> None:
        await _find(backend, policy_id, place)
        await backend.schedules.delete_quiet_hours(policy_id)

    place.ask(change)
    click.echo(dumped({"deleted": policy_id}) if place.as_json else f"{printable(policy_id)} are removed.")


async def _find(backend: Backend, policy_id: str, place: ConnectionTarget) -> QuietHoursRecord:
    try:
        return await backend.schedules.get_quiet_hours(policy_id)
    except ScheduleNotFoundError:
        known = [one.policy_id for one in await backend.schedules.list_quiet_hours()]
        hints = (f"Known: {', '.join(known)}",) if known else ("noonbell quiet add creates them",)
        facts = {"argument": "ID", "value": policy_id, "known": known}
        raise place.cli_error(f'Quiet hours not found: "{policy_id}"', facts, hints) from None


def _read(windows: tuple[str, ...], tz: str | None, place: ConnectionTarget) -> list[dict[str, Any]]:
    zone = str(find_zone(tz, as_json=place.as_json))
    read: list[dict[str, Any]] = []
    for text in windows:
        try:
            read.append(read_window(text, zone))
        except ValueError as error:
            facts = {"option": "--window", "value": text, "right": RIGHT}
            raise place.cli_error(f'--window "{text}": {error}', facts, (f"Right is {RIGHT}",)) from None
    return read


def _print_quiet_hours(found: QuietHoursRecord, place: ConnectionTarget) -> None:
    if place.as_json:
        click.echo(dumped(msgspec.to_builtins(found)))
        return
    console().print(Text(printable(found.name), "bold"))
    silent = [("silent" if number == 0 else "", window_text(window)) for number, window in enumerate(found.windows)]
    changed = f"{clock(found.updated_at)}  ({ago(found.updated_at, place.now)})"
    print_facts([("id", found.policy_id), *silent, ("team", found.team), ("changed", changed)])
    print_warnings(found.warnings)
