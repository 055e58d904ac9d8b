"""The shared part of `plan` and `apply`: options, reading the file, and printing a plan.

Exit status: 0 done (with --check: nothing would change), 2 something would change (--check only), 1 anything wrong.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click
from rich.console import Console
from rich.text import Text

from noonbell.cli.backend.backend_protocol import Backend, ShownPlan
from noonbell.cli.cli_errors import CliError, HintingCommand, printable
from noonbell.cli.connection_target import ConnectionTarget, with_backend
from noonbell.cli.quiet_windows import windows_text
from noonbell.cli.spec_input import terminal
from noonbell.errors import ScheduleFileInvalidError
from noonbell.planning import FieldChange, Format, Item, ScheduleFile, load, loads

_Function = TypeVar("_Function", bound=Callable[..., Any])

WRONG: Final = 1
WOULD_CHANGE: Final = 2
_MOST_SHOWN: Final = 200
_LONGEST_VALUE: Final = 60
_SIGNS: Final = {"create": ("+", "green"), "change": ("~", "yellow"), "delete": ("-", "red")}


class _WrongUsageError(click.UsageError):
    exit_code = WRONG


class PlanningCommand(HintingCommand):
    """A command whose usage errors exit with 1: 2 means here that something would change."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _WrongUsageError(error.format_message(), ctx) from error
        except CliError as error:
            error.end_with(WRONG)
            raise

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CliError as error:
            error.end_with(WRONG)
            raise


class Read(NamedTuple):
    """A parsed file, and its text, which a server parses again."""

    declared: ScheduleFile
    text: str
    form: Format


def options(function: _Function) -> _Function:
    for decorate in (
        with_backend,
        click.option("--check", is_flag=True, help="Change nothing; exit with 2 if something would change."),
        click.option("--format", "form", type=click.Choice(["toml", "yaml"]), help="Default: by FILE's extension."),
        click.argument("file", metavar="FILE"),
    ):
        function = decorate(function)
    return function


def cli_error(message: str, facts: dict[str, Any], hints: tuple[str, ...] = (), *, as_json: bool) -> CliError:
    return CliError(message, facts, hints, as_json=as_json, exit_code=WRONG)


def read_file(name: str, form: Format | None, *, as_json: bool) -> Read:
    """Read the file, or stdin if its name is `-`."""
    try:
        if name != "-":
            declared = load(Path(name), format=form)
            text = Path(name).read_text(encoding="utf-8-sig")
            return Read(declared, text, form or ("toml" if Path(name).suffix.lower() == ".toml" else "yaml"))
        if form is None:
            raise cli_error("The format of stdin is unknown; pass --format toml or --format yaml", {}, as_json=as_json)
        data = sys.stdin.buffer.read()
        return Read(loads(data, format=form, source="<stdin>"), data.decode("utf-8-sig"), form)
    except ScheduleFileInvalidError as error:
        raise about_file(error, as_json=as_json) from error
    except OSError as error:
        raise cli_error(f"{name} cannot be read: {error.strerror}", {"file": name}, as_json=as_json) from error


def about_file(error: ScheduleFileInvalidError, *, as_json: bool) -> CliError:
    count = len(error.problems)
    message = f"{count} {'problem' if count == 1 else 'problems'}; nothing was applied"
    facts = {
        "problems": [
            {
                "file": problem.source,
                "line": problem.line,
                "column": problem.column,
                "field": problem.field,
                "value": problem.value,
                "reason": problem.reason,
            }
            for problem in error.problems
        ]
    }
    return cli_error(message, facts, tuple(problem.text for problem in error.problems), as_json=as_json)


def planned(place: ConnectionTarget, file: Read, *, create: bool = False) -> ShownPlan:
    """Return the changes that the file would make at the target."""

    async def ask(backend: Backend) -> ShownPlan:
        try:
            return await backend.files.plan(file.declared, file.text, file.form, None)
        except ScheduleFileInvalidError as error:
            if not hasattr(error, "problems"):  # a server has sent them as notes
                raise
            raise about_file(error, as_json=place.as_json) from error

    return place.ask(ask, read_only=not create, create=create)


# --- a plan on the terminal -------------------------------------------------------------------------------------------


def print_plan(plan: ShownPlan, place: ConnectionTarget) -> None:
    console = terminal()
    console.print(Text.assemble((printable(plan.source), "bold"), f" ({plan.managed_by}) against {place.shown}"))
    prefix = f"{plan.managed_by}:"
    items = [
        *(("quiet hours ", item.id.removeprefix(prefix), item) for item in plan.quiet_hours),
        *(("", item.id, item) for item in plan.schedules),
    ]
    for kind, shown_id, item in items[:_MOST_SHOWN]:
        _print_item(console, kind, shown_id, item)
    if len(items) > _MOST_SHOWN:
        console.print(Text(f"\n… and {len(items) - _MOST_SHOWN} more; --json lists them all"))
    console.print()
    console.print(Text(summary(plan), "bold"))


def summary(plan: ShownPlan) -> str:
    """Return the number of changes, in one line."""
    if plan.empty:
        return f"Nothing to change: {plan.unchanged} as declared"
    parts = [
        f"{len(plan.ids('create'))} to create",
        f"{len(plan.ids('change'))} to change",
        f"{len(plan.ids('delete'))} to delete",
        f"{plan.unchanged} unchanged",
    ]
    summary_text = ", ".join(parts)
    if plan.quiet_hours:
        counts = Counter[str](item.kind for item in plan.quiet_hours)
        summary_text += "; quiet hours: " + ", ".join(f"{counts[kind]} to {kind}" for kind in _SIGNS if counts[kind])
    return summary_text


def _print_item(console: Console, kind: str, shown_id: str, item: Item) -> None:
    sign, style = _SIGNS[item.kind]
    name = f"  {printable(item.name)}" if item.name != shown_id else ""
    console.print()
    console.print(Text.assemble((f"{sign} {kind}{printable(shown_id)}", f"bold {style}"), (name, "dim")))
    if item.understood is not None:
        console.print(Text.assemble(("    read as ", "dim"), item.understood))
    for change in item.changes:
        _print_change(console, change)
    for sentence in item.words:
        _print_wrapped(console, Text(f"· {printable(sentence)}", style))


def _print_change(console: Console, change: FieldChange) -> None:
    if change.field in ("windows", "quiet_hours"):
        before, after = printable(windows_text(change.before)), printable(windows_text(change.after))
    else:
        before, after = _shortened(_value(change.before), _value(change.after))
    field = Text(f"{printable(change.field)}: ", "dim")
    _print_wrapped(console, Text.assemble(field, before, (" → ", "dim"), after))


def _print_wrapped(console: Console, line: Text) -> None:
    """Print indented; wrap long lines on a terminal, and keep them whole elsewhere."""
    width = max(20, console.width - 6)
    lines = line.wrap(console, width, overflow="fold") if console.is_terminal else [line]
    for number, one in enumerate(lines):
        one.rstrip()
        console.print(Text("      " if number else "    ") + one)


def _value(value: Any) -> str:
    if value is None:
        return "none"
    return printable(json.dumps(value, ensure_ascii=False))


def _shortened(before: str, after: str) -> tuple[str, str]:
    """Return two long values cut to begin shortly before their first difference."""
    if max(len(before), len(after)) <= _LONGEST_VALUE:
        return before, after
    pairs = enumerate(zip(before, after, strict=False))
    alike = next((number for number, (one, other) in pairs if one != other), min(len(before), len(after)))
    start = max(0, alike - _LONGEST_VALUE // 3)
    lead = "…" if start else ""
    first, second = (
        lead + said[start : start + _LONGEST_VALUE] + ("…" if len(said) > start + _LONGEST_VALUE else "")
        for said in (before, after)
    )
    return first, second
