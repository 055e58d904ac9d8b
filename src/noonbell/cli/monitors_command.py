"""`noonbell monitors`: heartbeat monitors on a local store: make, show, change, pause, remove and ping them."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar, cast

import click
import msgspec
from rich.table import Table
from rich.text import Text

from noonbell.cli.complaints import Complaint, SpeakingCommand, printable
from noonbell.cli.instants import span_text
from noonbell.cli.reading import terminal
from noonbell.engine import SystemClock
from noonbell.errors import NoonbellError
from noonbell.ledger.reading import instant
from noonbell.monitors import Monitor, Monitors
from noonbell.monitors.fields import MonitorChanges, MonitorFields
from noonbell.monitors.monitors import LONGEST_BODY
from noonbell.monitors.state import PingKind
from noonbell.ports import DocumentStore
from noonbell.store.opening import open_store, require_ledger

T = TypeVar("T")
_Function = TypeVar("_Function", bound=Callable[..., Any])

_EXAMPLES: Final = """\b
noonbell monitors add backup --cron "30 2 * * *" --tz Europe/Kyiv --grace 1800 --store sqlite:///app.db
noonbell monitors list
noonbell monitors flips backup
"""
_STYLES: Final = {"up": "green", "late": "yellow", "down": "bold red", "paused": "dim", "new": "cyan"}


class _Stopped(SystemClock):
    """The clock of one command: it stands at the moment when the command was called."""

    def __init__(self, at: datetime) -> None:
        super().__init__()
        self._at = instant(at)

    def now(self) -> int:
        return self._at


def _options(function: _Function) -> _Function:
    for decorate in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON, errors included."),
        click.option(
            "--store",
            "--db",
            "url",
            metavar="ADDRESS",
            envvar="NOONBELL_STORE",
            required=True,
            help="The ledger, such as sqlite:///app.db. Default: the environment's NOONBELL_STORE.",
        ),
    ):
        function = decorate(function)
    return cast("_Function", click.pass_obj(function))


def _rhythm_options(function: _Function) -> _Function:
    for decorate in (
        click.option("--tag", "tags", multiple=True, help="May be given several times."),
        click.option(
            "--max-run", "max_run_seconds", type=float, metavar="SECONDS", help="How long a started run may take."
        ),
        click.option("--grace", "grace_seconds", type=float, metavar="SECONDS", help="How late a ping may come."),
        click.option("--dst", type=click.Choice(["once", "literal"]), help="What is due at clock changes."),
        click.option("--tz", "timezone", metavar="ZONE", help="IANA time zone of a cron rhythm."),
        click.option("--every", metavar="SECONDS", help="A ping is due so long after the one before."),
        click.option("--cron", metavar="EXPRESSION", help="A ping is due at these times."),
    ):
        function = decorate(function)
    return function


_monitor = click.argument("monitor", metavar="ID")


@click.group("monitors", epilog=_EXAMPLES)
def command() -> None:
    """Watch over jobs that run elsewhere and call a URL when they have run.

    A service or an engine takes the pings and notices when one does not come; these commands work on its store.
    """


# --- reading ----------------------------------------------------------------------------------------------------------


@command.command("list", cls=SpeakingCommand)
@click.option("--team", metavar="NAME", help="Only those of this team.")
@_options
def list_(now: datetime, *, team: str | None, url: str, as_json: bool) -> None:
    """List the monitors, by id."""

    async def ask(monitors: Monitors) -> list[Monitor]:
        found: list[Monitor] = []
        cursor: str | None = None
        while True:
            page = await monitors.list(team=team, cursor=cursor, limit=1000)
            found += page.items
            cursor = page.next_cursor
            if cursor is None:
                return found

    found = _with_monitors(now, url, ask, as_json=as_json, read_only=True)
    if as_json:
        click.echo(json.dumps([_data(one) for one in found], ensure_ascii=False))
        return
    if not found:
        click.echo("There are no monitors.")
        return
    table = Table("id", "name", "status", "since", "last ping", "due", box=None, pad_edge=False)
    for one in found:
        status = Text(one.status + (" (running)" if one.running else ""), _STYLES[one.status])
        name = Text(printable(one.name))
        table.add_row(one.monitor_id, name, status, _time(one.since), _time(one.last_ping_at), _time(one.due_at))
    terminal().print(table)


@command.command("show", cls=SpeakingCommand)
@_monitor
@_options
def show(now: datetime, *, monitor: str, url: str, as_json: bool) -> None:
    """Show a monitor, its ping URL included."""
    _tell(_with_monitors(now, url, lambda monitors: monitors.get(monitor), as_json=as_json, read_only=True), as_json)


@command.command("pings", cls=SpeakingCommand)
@_monitor
@click.option("--limit", type=click.IntRange(1, 50), default=20, show_default=True)
@_options
def pings(now: datetime, *, monitor: str, limit: int, url: str, as_json: bool) -> None:
    """Show the last pings of a monitor, newest first, and the beginning of what they said."""
    found = _with_monitors(now, url, lambda one: one.pings(monitor, limit=limit), as_json=as_json, read_only=True)
    if as_json:
        click.echo(json.dumps([_data(one) for one in found], ensure_ascii=False))
        return
    for one in found:
        said = one.kind if one.exit_code is None else f"{one.kind} ({one.exit_code})"
        ran = "" if one.ran_for is None else f"  ran for {one.ran_for.total_seconds():g} s"
        line = printable(one.body.strip().partition("\n")[0])[:100]
        terminal().print(Text(f"{_time(one.at)}  {said}{ran}  {line}".rstrip()))


@command.command("flips", cls=SpeakingCommand)
@_monitor
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True)
@_options
def flips(now: datetime, *, monitor: str, limit: int, url: str, as_json: bool) -> None:
    """Show the last changes of a monitor's status, newest first."""
    found = _with_monitors(now, url, lambda one: one.flips(monitor, limit=limit), as_json=as_json, read_only=True)
    if as_json:
        click.echo(json.dumps([_data(one) for one in found], ensure_ascii=False))
        return
    for one in found:
        before = f"{one.was} for {span_text(one.lasted)}"
        line = Text.assemble(
            f"{_time(one.at)}  ", (one.status, _STYLES[one.status]), f"  {printable(one.reason)}; was {before}"
        )
        terminal().print(line)


# --- changing ---------------------------------------------------------------------------------------------------------


@command.command("add", cls=SpeakingCommand)
@click.argument("name", metavar="NAME")
@click.option("--id", "monitor_id", metavar="ID", help="Default: one is made.")
@click.option("--team", metavar="NAME", help='Default: "default".')
@_rhythm_options
@_options
def add(now: datetime, *, name: str, url: str, as_json: bool, **given: Any) -> None:
    """Make a monitor called NAME, and show its ping URL. One of --cron and --every says when a ping is due."""
    fields = cast("MonitorFields", {"name": name, **_fields(given, as_json=as_json)})
    if "spec" not in fields:
        raise Complaint("When is a ping due? Say --cron or --every", {}, as_json=as_json)
    _tell(_with_monitors(now, url, lambda monitors: monitors.create(**fields), as_json=as_json), as_json)


@command.command("edit", cls=SpeakingCommand)
@_monitor
@click.option("--name", metavar="NAME")
@_rhythm_options
@_options
def edit(now: datetime, *, monitor: str, url: str, as_json: bool, **given: Any) -> None:
    """Change what is given. Where the rhythm changes, what is due is counted from now."""
    fields = cast("MonitorChanges", _fields(given, as_json=as_json))
    _tell(_with_monitors(now, url, lambda monitors: monitors.update(monitor, **fields), as_json=as_json), as_json)


@command.command("pause", cls=SpeakingCommand)
@_monitor
@_options
def pause(now: datetime, *, monitor: str, url: str, as_json: bool) -> None:
    """Conclude nothing about a monitor until it is resumed."""
    _tell(_with_monitors(now, url, lambda monitors: monitors.pause(monitor), as_json=as_json), as_json)


@command.command("resume", cls=SpeakingCommand)
@_monitor
@_options
def resume(now: datetime, *, monitor: str, url: str, as_json: bool) -> None:
    """Watch a paused monitor again; the next ping is counted from now."""
    _tell(_with_monitors(now, url, lambda monitors: monitors.resume(monitor), as_json=as_json), as_json)


@command.command("new-url", cls=SpeakingCommand)
@_monitor
@_options
def new_url(now: datetime, *, monitor: str, url: str, as_json: bool) -> None:
    """Give a monitor another ping URL; the old one is unknown from then on."""
    _tell(_with_monitors(now, url, lambda monitors: monitors.renew_token(monitor), as_json=as_json), as_json)


@command.command("rm", cls=SpeakingCommand)
@_monitor
@_options
def rm(now: datetime, *, monitor: str, url: str, as_json: bool) -> None:
    """Delete a monitor with its pings and flips; the audit stays."""
    _with_monitors(now, url, lambda monitors: monitors.delete(monitor), as_json=as_json)
    click.echo(json.dumps({"deleted": monitor}) if as_json else f"{monitor} is deleted.")


@command.command("ping", cls=SpeakingCommand)
@_monitor
@click.option("--kind", type=click.Choice(["start", "success", "fail", "log"]), help="Default: success.")
@click.option("--exit-code", type=click.IntRange(0, 255), help="0 is a success, anything else a failure.")
@click.option("--run", default="", help="The name of the run.")
@click.option("--stdin", "from_stdin", is_flag=True, help="Keep what is read from stdin as its body.")
@_options
def ping(
    now: datetime,
    *,
    monitor: str,
    kind: PingKind | None,
    exit_code: int | None,
    run: str,
    from_stdin: bool,
    url: str,
    as_json: bool,
) -> None:
    """Ping a monitor by its id, straight into the store: for jobs on the same machine, and for trying out rules."""
    body = sys.stdin.buffer.read(2 * LONGEST_BODY) if from_stdin else b""

    async def ask(monitors: Monitors) -> Monitor:
        token = (await monitors.get(monitor)).token
        return await monitors.ping(token, kind, body=body, exit_code=exit_code, run=run)

    _tell(_with_monitors(now, url, ask, as_json=as_json), as_json)


# --- what they share --------------------------------------------------------------------------------------------------


def _with_monitors(
    now: datetime, url: str, ask: Callable[[Monitors], Awaitable[T]], *, as_json: bool, read_only: bool = False
) -> T:
    """Open the store, ask its monitors, and close it; what goes wrong becomes a complaint."""

    async def session() -> T:
        require_ledger(url)
        store = open_store(url, read_only=read_only)
        await store.open()
        try:
            return await ask(Monitors(cast("DocumentStore", store), _Stopped(now), actor=_actor()))
        finally:
            await store.close()

    try:
        return asyncio.run(session())
    except NoonbellError as error:
        facts = {"store": re.sub(r"//[^/]*@", "//…@", url), "kind": type(error).__name__}
        raise Complaint(str(error), facts, as_json=as_json) from error


def _actor() -> str:
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a user without a name
        return f"cli:{os.getuid()}"


def _fields(given: dict[str, Any], *, as_json: bool) -> dict[str, Any]:
    """The fields of a monitor that options were given for."""
    cron, every = given.pop("cron"), given.pop("every")
    if cron is not None and every is not None:
        raise Complaint("--cron and --every exclude each other; say one of them", {}, as_json=as_json)
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


def _tell(one: Monitor, as_json: bool) -> None:  # noqa: FBT001 - the last word of every command
    if as_json:
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
        ("ping URL", f"…{one.ping_path}"),
    ]
    terminal().print(Text(printable(one.name), "bold"))
    for label, value in lines:
        if value:
            terminal().print(Text(f"  {label + ':':<15}{printable(value)}"))
