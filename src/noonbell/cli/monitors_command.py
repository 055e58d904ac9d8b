"""`noonbell monitors`: heartbeat monitors: create, show, edit, pause, remove and ping them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import click
import msgspec
from rich.text import Text

from noonbell.cli.backend.backend_protocol import Backend
from noonbell.cli.cli_errors import CliError, HintingCommand, HintingGroup, printable
from noonbell.cli.connection_target import ConnectionTarget, with_backend
from noonbell.cli.console_tables import ago, print_table
from noonbell.cli.spec_input import terminal
from noonbell.cli.typed_times import span_text
from noonbell.monitors import Monitor
from noonbell.monitors.monitor_state import PingKind
from noonbell.monitors.monitors import LONGEST_BODY

_Function = TypeVar("_Function", bound=Callable[..., Any])

_EXAMPLES: Final = """\b
noonbell monitors add backup --cron "30 2 * * *" --tz Europe/Kyiv --grace 1800
noonbell monitors list
noonbell monitors flips backup
"""
_STYLES: Final = {"up": "green", "late": "yellow", "down": "bold red", "paused": "dim", "new": "cyan"}


def _rhythm_options(function: _Function) -> _Function:
    for decorate in (
        click.option("--tag", "tags", multiple=True, help="May be given several times."),
        click.option(
            "--max-run", "max_run_seconds", type=float, metavar="SECONDS", help="How long a started run may take."
        ),
        click.option("--grace", "grace_seconds", type=float, metavar="SECONDS", help="How late a ping may come."),
        click.option("--dst", type=click.Choice(["once", "literal"]), help="Which times are due at clock changes."),
        click.option("--tz", "timezone", metavar="ZONE", help="IANA time zone of --cron."),
        click.option("--every", metavar="SECONDS", help="A ping is due so long after the one before."),
        click.option("--cron", metavar="EXPRESSION", help="A ping is due at these times."),
    ):
        function = decorate(function)
    return function


_monitor = click.argument("monitor", metavar="ID")


@click.group("monitors", cls=HintingGroup, epilog=_EXAMPLES)
def command() -> None:
    """Monitor jobs that run elsewhere and call a URL when they have run.

    A service or an engine receives the pings and detects missing ones; these commands work on its store, or through
    its API.
    """


# --- reading ----------------------------------------------------------------------------------------------------------


@command.command("list", cls=HintingCommand)
@click.option("--team", metavar="NAME", help="Only those of this team.")
@with_backend
def list_(*, team: str | None, place: ConnectionTarget) -> None:
    """List the monitors, by id."""

    async def ask(backend: Backend) -> list[Monitor]:
        found: list[Monitor] = []
        cursor: str | None = None
        while True:
            page = await backend.monitors.list(team=backend.team_seen(team), cursor=cursor, limit=1000)
            found += page.items
            cursor = page.next_cursor
            if cursor is None:
                return found

    found = place.ask(ask, read_only=True)
    if place.as_json:
        click.echo(json.dumps([_data(one) for one in found], ensure_ascii=False))
        return
    if not found:
        click.echo("No monitors.")
        return
    lines = []
    for one in found:
        status = Text(one.status + (" (running)" if one.running else ""), _STYLES[one.status])
        times = (ago(one.since, place.now), ago(one.last_ping_at, place.now), ago(one.due_at, place.now))
        lines.append((one.monitor_id, one.name, status, *times))
    print_table(("id", "name", "status", "since", "last ping", "due"), lines, folded=1)


@command.command("show", cls=HintingCommand)
@_monitor
@with_backend
def show(*, monitor: str, place: ConnectionTarget) -> None:
    """Show a monitor with its ping URL."""
    _print_monitor(place.ask(lambda backend: backend.monitors.get(monitor), read_only=True), place)


@command.command("pings", cls=HintingCommand)
@_monitor
@click.option("--limit", type=click.IntRange(1, 50), default=20, show_default=True)
@with_backend
def pings(*, monitor: str, limit: int, place: ConnectionTarget) -> None:
    """Show the last pings of a monitor, newest first, with the beginning of their bodies."""
    found = place.ask(lambda backend: backend.monitors.pings(monitor, limit=limit), read_only=True)
    if place.as_json:
        click.echo(json.dumps([_data(one) for one in found], ensure_ascii=False))
        return
    for one in found:
        said = one.kind if one.exit_code is None else f"{one.kind} ({one.exit_code})"
        ran = "" if one.ran_for is None else f"  ran for {one.ran_for.total_seconds():g} s"
        line = printable(one.body.strip().partition("\n")[0])[:100]
        terminal().print(Text(f"{_time(one.at)}  {said}{ran}  {line}".rstrip()))


@command.command("flips", cls=HintingCommand)
@_monitor
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True)
@with_backend
def flips(*, monitor: str, limit: int, place: ConnectionTarget) -> None:
    """Show the last changes of a monitor's status, newest first."""
    found = place.ask(lambda backend: backend.monitors.flips(monitor, limit=limit), read_only=True)
    if place.as_json:
        click.echo(json.dumps([_data(one) for one in found], ensure_ascii=False))
        return
    for one in found:
        before = f"{one.was} for {span_text(one.lasted)}"
        line = Text.assemble(
            f"{_time(one.at)}  ", (one.status, _STYLES[one.status]), f"  {printable(one.reason)}; was {before}"
        )
        terminal().print(line)


# --- changing ---------------------------------------------------------------------------------------------------------


@command.command("add", cls=HintingCommand)
@click.argument("name", metavar="NAME")
@click.option("--id", "monitor_id", metavar="ID", help="Default: generated.")
@click.option("--team", metavar="NAME", help='Default: "default".')
@_rhythm_options
@with_backend
def add(*, name: str, place: ConnectionTarget, **given: Any) -> None:
    """Create a monitor called NAME, and show its ping URL. --cron or --every sets when a ping is due."""
    fields = {"name": name, **_fields(given, as_json=place.as_json)}
    if "spec" not in fields:
        raise place.cli_error("Pass --cron or --every: it sets when a ping is due")

    async def make(backend: Backend) -> Monitor:
        return await backend.monitors.create(**{**fields, "team": backend.team_for(fields.get("team"))})

    _print_monitor(place.ask(make), place)


@command.command("edit", cls=HintingCommand)
@_monitor
@click.option("--name", metavar="NAME")
@_rhythm_options
@with_backend
def edit(*, monitor: str, place: ConnectionTarget, **given: Any) -> None:
    """Change the given fields. After a change of --cron or --every, the next ping is due counted from now."""
    fields = _fields(given, as_json=place.as_json)
    _print_monitor(place.ask(lambda backend: backend.monitors.update(monitor, **fields)), place)


@command.command("pause", cls=HintingCommand)
@_monitor
@with_backend
def pause(*, monitor: str, place: ConnectionTarget) -> None:
    """Pause a monitor: its state does not change until it is resumed."""
    _print_monitor(place.ask(lambda backend: backend.monitors.pause(monitor)), place)


@command.command("resume", cls=HintingCommand)
@_monitor
@with_backend
def resume(*, monitor: str, place: ConnectionTarget) -> None:
    """Resume a paused monitor; the next ping is due counted from now."""
    _print_monitor(place.ask(lambda backend: backend.monitors.resume(monitor)), place)


@command.command("new-url", cls=HintingCommand)
@_monitor
@with_backend
def new_url(*, monitor: str, place: ConnectionTarget) -> None:
    """Give a monitor a new ping URL; the old one stops working at once."""
    _print_monitor(place.ask(lambda backend: backend.monitors.renew_token(monitor)), place)


@command.command("rm", cls=HintingCommand)
@_monitor
@with_backend
def rm(*, monitor: str, place: ConnectionTarget) -> None:
    """Delete a monitor with its pings and flips; the audit is kept."""
    place.ask(lambda backend: backend.monitors.delete(monitor))
    click.echo(json.dumps({"deleted": monitor}) if place.as_json else f"{monitor} is deleted.")


@command.command("ping", cls=HintingCommand)
@_monitor
@click.option("--kind", type=click.Choice(["start", "success", "fail", "log"]), help="Default: success.")
@click.option("--exit-code", type=click.IntRange(0, 255), help="0 is a success, anything else a failure.")
@click.option("--run", default="", help="The name of the run.")
@click.option("--stdin", "from_stdin", is_flag=True, help="Send stdin as the body.")
@with_backend
def ping(
    *,
    monitor: str,
    kind: PingKind | None,
    exit_code: int | None,
    run: str,
    from_stdin: bool,
    place: ConnectionTarget,
) -> None:
    """Ping a monitor by its id: for jobs on the same machine, and for testing rules."""
    body = sys.stdin.buffer.read(2 * LONGEST_BODY) if from_stdin else b""

    async def ask(backend: Backend) -> Monitor:
        token = (await backend.monitors.get(monitor)).token
        return await backend.monitors.ping(token, kind, body=body, exit_code=exit_code, run=run)

    # the master keys are needed to mask secrets in the body of the ping
    _print_monitor(place.ask(ask, needs_keys=True), place)


# --- shared -----------------------------------------------------------------------------------------------------------


def _fields(given: dict[str, Any], *, as_json: bool) -> dict[str, Any]:
    """Return the fields of a monitor for the given options."""
    cron, every = given.pop("cron"), given.pop("every")
    if cron is not None and every is not None:
        raise CliError("--cron and --every exclude each other; pass one of them", {}, as_json=as_json)
    found = {key: value for key, value in given.items() if value not in (None, ())}
    if cron is not None or every is not None:
        found |= {"type": "interval" if cron is None else "cron", "spec": every if cron is None else cron}
    return found


def _data(value: object) -> Any:
    data = msgspec.to_builtins(value, builtin_types=(timedelta, datetime))
    return {key: _plain(part) for key, part in data.items()}


def _plain(part: Any) -> Any:
    if isinstance(part, timedelta):
        return part.total_seconds()
    if isinstance(part, datetime):
        return part.isoformat()
    if isinstance(part, dict):
        return {key: _plain(inner) for key, inner in part.items()}
    return [_plain(inner) for inner in part] if isinstance(part, (list, tuple)) else part


def _time(at: datetime | None) -> str:
    return "-" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"


def _ping_url(one: Monitor, place: ConnectionTarget) -> str:
    if not one.ping_path:
        return "shown to keys with the scope write"
    return f"{place.server.rstrip('/') if place.server else '…'}{one.ping_path}"


def _print_monitor(one: Monitor, place: ConnectionTarget) -> None:
    if place.as_json:
        click.echo(json.dumps(_data(one), ensure_ascii=False))
        return
    rhythm = f"every {one.spec} s" if one.type == "interval" else f"{one.spec} ({one.timezone})"
    lines = [
        ("id", one.monitor_id),
        ("team", one.team),
        ("due", f"{rhythm}, grace {one.grace_seconds:g} s"),
        ("status", f"{one.status} since {_time(one.since)}" + (f": {one.reason}" if one.reason else "")),
        ("running since", ", ".join(_time(run.since) for run in one.running)),
        ("next ping by", _time(one.due_at)),
        ("ping URL", _ping_url(one, place)),
    ]
    terminal().print(Text(printable(one.name), "bold"))
    for label, value in lines:
        if value:
            terminal().print(Text(f"  {label + ':':<15}{printable(value)}"))
