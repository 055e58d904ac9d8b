"""`noonbell next`: the next occurrences of an expression or a phrase."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from noonbell.cli import spec_input as readings
from noonbell.cli.cli_errors import CliError, HintingCommand
from noonbell.cli.typed_times import Start, find_start, offset_text, span_text
from noonbell.cron import DstPolicy
from noonbell.language.preview import coming


@click.command("next", cls=HintingCommand)
@readings.options
@click.option("--count", "-n", type=click.IntRange(1, 100_000), default=5, show_default=True, help="How many to list.")
@click.option("--from", "from_", metavar="TIME", help="Count from this ISO-8601 time, itself excluded. Default: now.")
@click.pass_obj
def command(
    now: datetime, *, expression: str, tz: str | None, dst: DstPolicy, count: int, from_: str | None, as_json: bool
) -> None:
    """List the next occurrences of EXPRESSION, and the clock changes that affect it in the year after.

    EXPRESSION is cron or English. An interval is counted from the time of --from.

    \b
    noonbell next 'every weekday at 9am in Kyiv'
    noonbell next '30 1 * * *' --tz America/New_York
    noonbell next '*/15 9-17 * * mon-fri' --count 20
    noonbell next @daily --from 2027-03-13 --json
    """  # noqa: D301 - click wants the character itself
    reading = readings.read(expression, tz, now, as_json=as_json)
    start = find_start(from_, reading.zone, now, as_json=as_json)
    occurrences = coming(reading.understood, start.after, count, dst)
    if not occurrences:
        why = "it comes once" if reading.understood.kind == "one_shot" else "the calendar ends in 9999"
        message = f'"{reading.understood.spec}" never fires after {start.at.isoformat()}: {why}'
        raise CliError(message, {"expression": expression, "from": start.at.isoformat()}, as_json=as_json)
    surprises = readings.coming_surprises(reading, start.at, dst)
    if as_json:
        data = {
            **reading.data,
            "dst": dst,
            "from": start.at.isoformat(),
            "remark": start.remark,
            "occurrences": [_data(at) for at in occurrences],
            "surprises": [readings.surprise_data(surprise) for surprise in surprises],
        }
        click.echo(json.dumps(data, ensure_ascii=False))
        return
    console = readings.terminal()
    readings.print_head(console, reading)
    complete = len(occurrences) == count or reading.understood.kind == "one_shot"
    _print_occurrences(console, str(reading.zone), start, occurrences, complete=complete)
    if surprises:
        console.print()
        readings.print_surprises(console, surprises)


def _data(at: datetime) -> dict[str, Any]:
    utc = at.astimezone(UTC)
    return {"at": at.isoformat(), "utc": utc.strftime("%Y-%m-%dT%H:%M:%SZ"), "epoch": int(utc.timestamp())}


def _print_occurrences(
    console: Console, zone: str, start: Start, occurrences: list[datetime], *, complete: bool
) -> None:
    since = "from" if start.given else "now"
    console.print(Text(f"  {zone}, {since} {start.at.date()} {start.at:%H:%M} ({offset_text(start.at)})", "dim"))
    if start.remark:
        console.print(Text(f"  ! {start.remark}", "yellow"))
    console.print()
    for at in occurrences:
        span = span_text(at.astimezone(UTC) - start.at.astimezone(UTC))
        console.print(
            Text.assemble(
                (f"  {at:%a} {at.date()} ", "default"),
                (f"{at:%H:%M:%S}" if any(other.second for other in occurrences) else f"{at:%H:%M}", "bold green"),
                (f"  {offset_text(at):11}", "dim"),
                (f"  {span} later" if start.given else f"  in {span}", "default"),
                ("  (the second time)" if at.fold else "", "yellow"),
            )
        )
    if not complete:
        console.print(Text("  The calendar ends here.", "dim"))
