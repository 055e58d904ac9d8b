"""An expression as it was typed, read in any dialect; and what both commands tell about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final, TypeVar
from zoneinfo import available_timezones

import click
from rich.console import Console
from rich.text import Text

from noonbell.cli.complaints import about_expression, printable
from noonbell.cron import CronExpression, DstPolicy, parse, translate
from noonbell.errors import InvalidCronExpressionError
from noonbell.language import Surprise, describe, dst_surprises

_LOOK_AHEAD: Final = timedelta(days=366)
_CALENDAR_END: Final = datetime(9999, 12, 31, tzinfo=UTC)
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Reading:
    """What was typed, and the POSIX expression that it means."""

    typed: str
    expression: CronExpression
    description: str

    @property
    def translated(self) -> bool:
        return self.typed.split() != self.expression.text.split()


def read(typed: str, *, as_json: bool) -> Reading:
    try:
        expression = parse(translate(typed))
    except InvalidCronExpressionError as error:
        raise about_expression(error, as_json=as_json) from error
    return Reading(typed, expression, describe(expression))


def coming_surprises(reading: Reading, start: datetime, zone: tzinfo, dst: DstPolicy) -> list[Surprise]:
    """Those of the year after `start`, or of what is left of the calendar."""
    since = start.astimezone(UTC)
    end = since + _LOOK_AHEAD if since < _CALENDAR_END - _LOOK_AHEAD else _CALENDAR_END
    return dst_surprises(reading.expression, zone, since, end, dst=dst)


def options(function: _Function) -> _Function:
    """The argument and the options that the commands share."""
    for decorate in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON, errors included."),
        click.option(
            "--dst",
            type=click.Choice(["literal", "once"]),
            default="literal",
            show_default=True,
            help="At clock changes: follow the clock to the letter, or fire repeated and skipped times once.",
        ),
        click.option(
            "--tz", metavar="ZONE", shell_complete=_complete_zone, help="IANA time zone. Default: the host's."
        ),
        click.argument("expression"),
    ):
        function = decorate(function)
    return function


def _complete_zone(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return sorted(zone for zone in available_timezones() if zone.lower().startswith(incomplete.lower()))


# --- as text and as data ----------------------------------------------------------------------------------------------


def terminal() -> Console:
    """Colours where stdout is a terminal and NO_COLOR is not set; lines are never cut or wrapped."""
    return Console(highlight=False, soft_wrap=True)


def print_head(console: Console, reading: Reading) -> None:
    console.print(Text.assemble((printable(reading.typed.strip()), "bold cyan")))
    if reading.translated:
        console.print(Text.assemble(("  read as ", "dim"), (reading.expression.text, "cyan")))
    console.print(Text(f"  {reading.description}"))


def print_surprises(console: Console, surprises: list[Surprise]) -> None:
    for surprise in surprises:
        style = "dim" if surprise.kind == "remark" else "yellow"
        console.print(Text(f"  ! {surprise.sentence}", style))


def surprise_data(surprise: Surprise) -> dict[str, Any]:
    return {
        "date": surprise.date.isoformat(),
        "kind": surprise.kind,
        "times": [f"{at:%H:%M}" for at in surprise.times],
        "sentence": surprise.sentence,
    }
