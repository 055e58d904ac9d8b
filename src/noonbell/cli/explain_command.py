"""`noonbell explain`: the meaning of an expression or a phrase, field by field."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from noonbell.cli import spec_input as readings
from noonbell.cli.cli_errors import HintingCommand
from noonbell.cli.typed_times import offset_text, span_text
from noonbell.cron import FIELD_NAMES, CronExpression, DstPolicy
from noonbell.language.preview import coming

_DAY_RULES: Final = {
    (False, False): ("every day", ""),
    (True, False): ("day", ""),
    (False, True): ("weekday", ""),
    (True, True): ("either", "Day and weekday are both given: it fires when either matches."),
}


@click.command("explain", cls=HintingCommand)
@readings.options
@click.pass_obj
def command(now: datetime, expression: str, tz: str | None, dst: DstPolicy, *, as_json: bool) -> None:
    """Explain when EXPRESSION fires, field by field, with the clock changes that affect it in the coming year.

    EXPRESSION is cron or English; for English, the interpretation is shown.

    \b
    noonbell explain '0 0 1,15 * 1'
    noonbell explain 'every weekday at 9am in Kyiv'
    noonbell explain '0 0 12 ? * MON-FRI' --tz Europe/Berlin
    """  # noqa: D301 - click wants the character itself
    reading = readings.read(expression, tz, now, as_json=as_json)
    here = now.astimezone(reading.zone)
    found = coming(reading.understood, here, 1, dst)
    surprises = readings.coming_surprises(reading, here, dst)
    if as_json:
        data = {
            **reading.data,
            **_cron_data(reading.expression),
            "dst": dst,
            "next": found[0].isoformat() if found else None,
            "surprises": [readings.surprise_data(surprise) for surprise in surprises],
        }
        click.echo(json.dumps(data, ensure_ascii=False))
        return
    console = readings.terminal()
    readings.print_head(console, reading)
    console.print()
    if reading.expression is not None:
        _print_fields(console, reading.expression)
    for at in found:
        clock = f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}"
        console.print(
            Text.assemble(
                ("  next     ", "dim"),
                (f"{at:%a} {at.date()} {clock}", "bold green"),
                f" {offset_text(at)}, in {span_text(at - now)} ({reading.zone})",
            )
        )
    readings.print_surprises(console, surprises)


def _cron_data(expression: CronExpression | None) -> dict[str, Any]:
    if expression is None:
        return {"fields": None, "day_rule": None, "minimum_spacing_seconds": None}
    return {
        "fields": {name: sorted(values) for name, values in _fields(expression).items()},
        "day_rule": _DAY_RULES[expression.day_restricted, expression.weekday_restricted][0],
        "minimum_spacing_seconds": int(expression.minimum_spacing().total_seconds()),
    }


def _print_fields(console: Console, expression: CronExpression) -> None:
    for name, text in zip(FIELD_NAMES, expression.text.split(), strict=True):
        console.print(Text.assemble((f"  {name:9}", "dim"), (text, "cyan")))
    console.print()
    rule_sentence = _DAY_RULES[expression.day_restricted, expression.weekday_restricted][1]
    if rule_sentence:
        console.print(Text(f"  {rule_sentence}", "yellow"))
    console.print(Text.assemble(("  closest  ", "dim"), f"{span_text(expression.minimum_spacing())} apart"))


def _fields(expression: CronExpression) -> dict[str, frozenset[int]]:
    sets = (expression.minutes, expression.hours, expression.days, expression.months, expression.weekdays)
    return dict(zip(FIELD_NAMES, sets, strict=True))
