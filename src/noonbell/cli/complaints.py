"""What the program says about bad input: exit status 2, in words, or as JSON on stdout where --json was asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any, Final

import click
from rich.console import Console
from rich.text import Text

from noonbell.cron import FIELD_NAMES
from noonbell.errors import InvalidCronExpressionError

_RIGHT: Final = {
    "minute": "0-59, such as 5 or 0,30 or 10-20",
    "hour": "0-23, such as 3 or 9,17 or 9-17",
    "day": "1-31, such as 1 or 1,15 or 1-7",
    "month": "1-12 or jan-dec, such as 1 or 1,7 or jun-aug",
    "weekday": "0-6 or sun-sat, such as 0 (Sunday) or 1-5 or mon,wed",
    "expression": "five fields: minute hour day month weekday, such as 15 3 * * 1-5",
}


class Complaint(click.ClickException):
    """Bad input: a message, facts for programs, and hints for people."""

    exit_code = 2

    def __init__(self, message: str, facts: Mapping[str, Any], hints: tuple[str, ...] = (), *, as_json: bool) -> None:
        super().__init__(message)
        self.facts = dict(facts)
        self.hints = hints
        self.as_json = as_json

    def show(self, file: IO[Any] | None = None) -> None:
        if self.as_json:
            click.echo(json.dumps({"error": {"message": self.message, **self.facts}}, ensure_ascii=False), file=file)
            return
        console = Console(stderr=True, file=file, highlight=False, soft_wrap=True)
        console.print(Text.assemble(("Error: ", "bold red"), printable(self.message)))
        for hint in self.hints:
            console.print(Text(f"  {printable(hint)}"))


class SpeakingCommand(click.Command):
    """A command with --json whose usage errors are JSON too, and which knows the forgotten quotes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        as_json = "--json" in args
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            message = error.format_message()
            if "unexpected extra argument" in message and any(param.name == "expression" for param in self.params):
                message += ". Put the expression in quotes, as in '15 3 * * 1-5'"
            if as_json:
                raise Complaint(message, {"usage": ctx.get_usage()}, as_json=True) from error
            raise click.UsageError(message, ctx) from error


def about_expression(error: InvalidCronExpressionError, *, as_json: bool) -> Complaint:
    """The complaint about an expression: the offending field marked, and what would be right there."""
    value = _value_of(error)
    right = _RIGHT.get(error.field, _RIGHT["expression"])
    facts = {
        "expression": error.expression,
        "field": error.field,
        "value": value,
        "reason": error.reason,
        "right": right,
        "suggestion": error.suggestion,
    }
    hints = (*_marked(error, value), f"The {error.field} field takes {right}")
    if error.field not in FIELD_NAMES:
        hints = (f"An expression is {right}",)
    if error.suggestion:
        hints += (f"Did you mean: {error.suggestion}",)
    return Complaint(str(error), facts, hints, as_json=as_json)


def printable(text: str) -> str:
    """Without characters that would steer the terminal."""
    return "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in text)


def _value_of(error: InvalidCronExpressionError) -> str:
    parts = error.expression.split()
    if error.field not in FIELD_NAMES or len(parts) not in (5, 6, 7):
        return error.expression
    seconds = len(parts) > 5  # Quartz puts them first
    return parts[FIELD_NAMES.index(error.field) + seconds]


def _marked(error: InvalidCronExpressionError, value: str) -> tuple[str, ...]:
    parts = error.expression.split()
    if error.field not in FIELD_NAMES or value not in parts or len(error.expression) > 80:
        return ()
    at = FIELD_NAMES.index(error.field) + (len(parts) > 5)
    return " ".join(parts), " " * len(" ".join([*parts[:at], ""])) + "^" * len(value)
