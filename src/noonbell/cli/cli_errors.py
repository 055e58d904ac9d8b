"""Errors of the program, as text, or as JSON on stdout with --json.

Exit status, of every command unless its help says otherwise:

    0    done
    1    a check failed: a ledger with a problem, a run that failed, a broken installation
    2    bad input, or refused: the object does not exist, cannot be read, or the operation is not possible
    3    the server cannot be reached, or cannot answer now
    4    the server does not accept the key, or the key may not do this
    130  interrupted with Ctrl-C
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import IO, Any, Final

import click
from rich.console import Console
from rich.text import Text

from noonbell.cron import FIELD_NAMES
from noonbell.errors import InvalidCronExpressionError, LanguageError

_RIGHT: Final = {
    "minute": "0-59, such as 5 or 0,30 or 10-20",
    "hour": "0-23, such as 3 or 9,17 or 9-17",
    "day": "1-31, such as 1 or 1,15 or 1-7",
    "month": "1-12 or jan-dec, such as 1 or 1,7 or jun-aug",
    "weekday": "0-6 or sun-sat, such as 0 (Sunday) or 1-5 or mon,wed",
    "expression": "five fields: minute hour day month weekday, such as 15 3 * * 1-5",
}

_LONGEST_MARKED: Final = 100

WRONG: Final = 1
REFUSED: Final = 2
UNREACHABLE: Final = 3
NOT_PERMITTED: Final = 4
INTERRUPTED: Final = 130


class CliError(click.ClickException):
    """Bad input: a message, facts for programs, and hints for people."""

    exit_code = REFUSED

    def __init__(
        self,
        message: str,
        facts: Mapping[str, Any],
        hints: tuple[str, ...] = (),
        *,
        as_json: bool,
        exit_code: int | None = None,
    ) -> None:
        super().__init__(message)
        if exit_code is not None:
            self.end_with(exit_code)
        self.facts = dict(facts)
        self.hints = hints
        self.as_json = as_json

    def end_with(self, exit_code: int) -> None:
        """Exit the program with this status."""
        vars(self)["exit_code"] = exit_code  # click declares it for the class alone

    def show(self, file: IO[Any] | None = None) -> None:
        if self.as_json:
            click.echo(json.dumps({"error": {"message": self.message, **self.facts}}, ensure_ascii=False), file=file)
            return
        console = Console(stderr=True, file=file, highlight=False)
        whole = not console.is_terminal  # a terminal breaks lines between words, and programs want them whole
        console.print(Text.assemble(("Error: ", "bold red"), printable(self.message)), soft_wrap=whole)
        for hint in self.hints:
            console.print(Text(f"  {printable(hint)}"), soft_wrap=whole)


class HintingCommand(click.Command):
    """A command whose usage errors are JSON with --json, and which detects missing quotes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        as_json = "--json" in args
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            message = error.format_message()
            if "unexpected extra argument" in message and any(param.name == "expression" for param in self.params):
                message += ". Put the expression in quotes, as in '15 3 * * 1-5'"
            if as_json:
                raise CliError(message, {"usage": ctx.get_usage()}, as_json=True) from error
            raise click.UsageError(message, ctx) from error


class HintingGroup(click.Group):
    """A group of commands that suggests similar names, and whose errors are JSON with --json."""

    command_class = HintingCommand

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["noonbell.as_json"] = "--json" in args
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            raise self._unknown(ctx, name)
        return super().resolve_command(ctx, args)

    def _unknown(self, ctx: click.Context, name: str) -> click.ClickException:
        known = self.list_commands(ctx)
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        message = f'Unknown command "{name}" of {ctx.command_path}'
        hint = f"Did you mean: {', '.join(near)}" if near else f"Known: {', '.join(known)}"
        facts = {"value": name, "suggestions": near, "known": known}
        return CliError(message, facts, (hint,), as_json=bool(ctx.meta.get("noonbell.as_json")))


def about_expression(error: InvalidCronExpressionError, *, as_json: bool) -> CliError:
    """Return the error for an expression: the wrong field is marked, and the valid values are listed."""
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
    return CliError(str(error), facts, hints, as_json=as_json)


def about_language(error: LanguageError, *, as_json: bool) -> CliError:
    """Return the error for a phrase: the place is marked, with valid words for it and similar phrases."""
    facts = {
        "expression": error.text,
        "position": error.position,
        "end": error.end,
        "word": error.word,
        "reason": error.reason,
        "accepted": list(error.accepted),
        "suggestions": list(error.suggestions),
    }
    hints: tuple[str, ...] = error.marked if len(error.text) <= _LONGEST_MARKED else ()
    if error.accepted:
        hints += (f"Valid here: {', '.join(error.accepted)}",)
    hints += tuple(f"Did you mean: {suggestion}" for suggestion in error.suggestions)
    return CliError(str(error), facts, hints, as_json=as_json)


def printable(text: str) -> str:
    """Return the text without terminal control characters."""
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
