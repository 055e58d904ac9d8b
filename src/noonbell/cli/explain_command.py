"""`noonbell explain`: what an expression means, field by field."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Final

import click
from rich.text import Text

from noonbell.cli import reading as readings
from noonbell.cli.complaints import SpeakingCommand
from noonbell.cli.instants import find_zone, offset_text, span_text
from noonbell.cron import FIELD_NAMES, CronExpression, DstPolicy
from noonbell.errors import CronCalculationError

_DAY_RULES: Final = {
    (False, False): ("every day", ""),
    (True, False): ("day", ""),
    (False, True): ("weekday", ""),
    (True, True): ("either", "Day and weekday are both given: it fires when either matches."),
}


@click.command("explain", cls=SpeakingCommand)
@readings.options
@click.pass_obj
def command(now: datetime, expression: str, tz: str | None, dst: DstPolicy, *, as_json: bool) -> None:
    """Say in English when EXPRESSION fires, field by field, with the clock changes that bend it in the coming year.

    \b
    noonbell explain '0 0 1,15 * 1'
    noonbell explain '0 0 12 ? * MON-FRI' --tz Europe/Berlin
    """  # noqa: D301 - click wants the character itself
    reading = readings.read(expression, as_json=as_json)
    zone = find_zone(tz, as_json=as_json)
    here = now.astimezone(zone)
    parsed = reading.expression
    surprises = readings.coming_surprises(reading, here, zone, dst)
    coming = _next(parsed, here, dst)
    rule, rule_sentence = _DAY_RULES[parsed.day_restricted, parsed.weekday_restricted]
    if as_json:
        data = {
            "expression": expression,
            "posix": parsed.text,
            "description": reading.description,
            "fields": {name: sorted(values) for name, values in _fields(parsed).items()},
            "day_rule": rule,
            "minimum_spacing_seconds": int(parsed.minimum_spacing().total_seconds()),
            "zone": str(zone),
            "dst": dst,
            "next": coming.isoformat() if coming else None,
            "surprises": [readings.surprise_data(surprise) for surprise in surprises],
        }
        click.echo(json.dumps(data, ensure_ascii=False))
        return
    console = readings.terminal()
    readings.print_head(console, reading)
    console.print()
    for name, text in zip(FIELD_NAMES, parsed.text.split(), strict=True):
        console.print(Text.assemble((f"  {name:9}", "dim"), (text, "cyan")))
    console.print()
    if rule_sentence:
        console.print(Text(f"  {rule_sentence}", "yellow"))
    console.print(Text.assemble(("  closest  ", "dim"), f"{span_text(parsed.minimum_spacing())} apart"))
    if coming:
        console.print(
            Text.assemble(
                ("  next     ", "dim"),
                (f"{coming:%a} {coming.date()} {coming:%H:%M}", "bold green"),
                f" {offset_text(coming)}, in {span_text(coming - now)} ({zone})",
            )
        )
    readings.print_surprises(console, surprises)


def _next(expression: CronExpression, after: datetime, dst: DstPolicy) -> datetime | None:
    try:
        return expression.next(after, dst=dst)
    except CronCalculationError:
        return None


def _fields(expression: CronExpression) -> dict[str, frozenset[int]]:
    sets = (expression.minutes, expression.hours, expression.days, expression.months, expression.weekdays)
    return dict(zip(FIELD_NAMES, sets, strict=True))
