"""Parsing of a typed expression, in English or any dialect of cron, for `explain` and `next`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, available_timezones

import click
from rich.console import Console
from rich.text import Text

from noonbell.cli.cli_errors import CliError, about_expression, about_language, printable
from noonbell.cli.typed_times import find_zone
from noonbell.cron import CronExpression, DstPolicy
from noonbell.errors import InvalidCronExpressionError, LanguageError
from noonbell.language import Surprise, Understood, parse
from noonbell.language.preview import coming_surprises as surprises_of

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Reading:
    """A typed expression, its meaning and its zone. `expression` is set only for cron."""

    typed: str
    understood: Understood
    expression: CronExpression | None
    zone: tzinfo

    @property
    def description(self) -> str:
        return self.understood.description

    @property
    def translated(self) -> bool:
        return self.typed.split() != self.understood.spec.split()

    @property
    def spec_text(self) -> str:
        if self.understood.kind == "interval":
            return f"an interval of {self.understood.spec} s"
        return self.understood.spec

    @property
    def data(self) -> dict[str, Any]:
        """The common part of the JSON output of both commands."""
        return {
            "expression": self.typed,
            "kind": self.understood.kind,
            "spec": self.understood.spec,
            "posix": self.understood.spec if self.understood.kind == "cron" else None,
            "description": self.description,
            "notes": list(self.understood.notes),
            "zone": self.understood.timezone,
        }


def read(typed: str, tz: str | None, now: datetime, *, as_json: bool) -> Reading:
    """Parse in the zone that the text names, else in that of --tz, else in the host's."""
    given = find_zone(tz, as_json=as_json)
    try:
        understood = parse(typed, now=now, timezone=given)
    except InvalidCronExpressionError as error:
        raise about_expression(error, as_json=as_json) from error
    except LanguageError as error:
        raise about_language(error, as_json=as_json) from error
    zone = ZoneInfo(understood.timezone) if understood.zone_named else given
    if tz is not None and str(zone) != str(given):
        message = f'The text names the time zone {zone}, and --tz says "{tz}"; give one of them'
        facts = {"option": "--tz", "value": tz, "zone": str(zone)}
        raise CliError(message, facts, as_json=as_json)
    return Reading(typed, understood, understood.expression, zone)


def coming_surprises(reading: Reading, start: datetime, dst: DstPolicy) -> tuple[Surprise, ...]:
    """Return the clock changes of the year after `start`, or until the end of the calendar."""
    return () if reading.expression is None else surprises_of(reading.expression, start, reading.zone, dst)


def options(function: _Function) -> _Function:
    """Add the argument and the options that both commands share."""
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
            "--tz",
            metavar="ZONE",
            shell_complete=complete_zone,
            help="IANA time zone. Default: that of the text, else the host's.",
        ),
        click.argument("expression"),
    ):
        function = decorate(function)
    return function


def complete_zone(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return sorted(zone for zone in available_timezones() if zone.lower().startswith(incomplete.lower()))


# --- as text and as data ----------------------------------------------------------------------------------------------


def terminal() -> Console:
    """Return a console with colours if stdout is a terminal and NO_COLOR is not set; it never cuts or wraps lines."""
    return Console(highlight=False, soft_wrap=True)


def print_head(console: Console, reading: Reading) -> None:
    console.print(Text.assemble((printable(reading.typed.strip()), "bold cyan")))
    if reading.translated:
        console.print(Text.assemble(("  read as ", "dim"), (reading.spec_text, "cyan")))
    console.print(Text(f"  {reading.description}"))
    for note in reading.understood.notes:
        console.print(Text(f"  ({printable(note)})", "dim"))


def print_surprises(console: Console, surprises: Sequence[Surprise]) -> None:
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
