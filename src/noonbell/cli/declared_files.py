"""What `plan` and `apply` share: their options, reading the file, a store, and how a plan is shown.

Exit status: 0 done (with --check: nothing would change), 2 something would change (--check only), 1 anything wrong.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click
from rich.console import Console
from rich.text import Text

from noonbell.cli.complaints import Complaint, SpeakingCommand, printable
from noonbell.cli.reading import terminal
from noonbell.errors import NoonbellError, ScheduleFileInvalidError
from noonbell.planning import FieldChange, Format, Item, Plan, ScheduleFile, load, loads
from noonbell.ports import ScheduleStore
from noonbell.store.opening import open_store, require_ledger

T = TypeVar("T")
_Function = TypeVar("_Function", bound=Callable[..., Any])

WRONG: Final = 1
WOULD_CHANGE: Final = 2
_MOST_SHOWN: Final = 200
_LONGEST_VALUE: Final = 60
_DAYS: Final = "Sun Mon Tue Wed Thu Fri Sat".split()
_SIGNS: Final = {"create": ("+", "green"), "change": ("~", "yellow"), "delete": ("-", "red")}


class _WrongUsageError(click.UsageError):
    exit_code = WRONG


class _WrongComplaint(Complaint):
    exit_code = WRONG


class PlanningCommand(SpeakingCommand):
    """A command whose bad usage ends with 1: 2 has a meaning of its own here."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _WrongUsageError(error.message, ctx) from error
        except Complaint as error:
            raise complaint(error.message, error.facts, error.hints, as_json=error.as_json) from error


def options(function: _Function) -> _Function:
    for decorate in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON, errors included."),
        click.option("--check", is_flag=True, help="Change nothing; exit with 2 if something would change."),
        click.option("--format", "form", type=click.Choice(["toml", "yaml"]), help="Of FILE; default: by its ending."),
        click.option(
            "--store",
            "--db",
            "url",
            metavar="ADDRESS",
            envvar="NOONBELL_STORE",
            required=True,
            help="The ledger, such as sqlite:///app.db. Default: the environment's NOONBELL_STORE.",
        ),
        click.argument("file", metavar="FILE"),
    ):
        function = decorate(function)
    return function


def complaint(message: str, facts: dict[str, Any], hints: tuple[str, ...] = (), *, as_json: bool) -> Complaint:
    return _WrongComplaint(message, facts, hints, as_json=as_json)


def read_file(name: str, form: Format | None, *, as_json: bool) -> ScheduleFile:
    """The file, or stdin where its name is `-`."""
    try:
        if name != "-":
            return load(Path(name), format=form)
        if form is None:
            raise complaint("stdin has no ending; say --format toml or --format yaml", {}, as_json=as_json)
        return loads(sys.stdin.buffer.read(), format=form, source="<stdin>")
    except ScheduleFileInvalidError as error:
        raise about_file(error, as_json=as_json) from error
    except OSError as error:
        raise complaint(f"{name} cannot be read: {error.strerror}", {"file": name}, as_json=as_json) from error


def about_file(error: ScheduleFileInvalidError, *, as_json: bool) -> Complaint:
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
    return complaint(message, facts, tuple(problem.text for problem in error.problems), as_json=as_json)


def in_store(
    url: str, ask: Callable[[ScheduleStore], Awaitable[T]], *, read_only: bool, create: bool = False, as_json: bool
) -> T:
    """Open the store, ask, and close it; what goes wrong becomes a complaint."""

    async def session() -> T:
        if not create:
            require_ledger(url)
        store = open_store(url, read_only=read_only)
        if not hasattr(store, "apply_schedules"):
            raise complaint(f"{store!r} cannot hold durable schedules yet", {}, as_json=as_json)
        await store.open()
        try:
            return await ask(cast("ScheduleStore", store))
        finally:
            await store.close()

    try:
        return asyncio.run(session())
    except ScheduleFileInvalidError as error:
        raise about_file(error, as_json=as_json) from error
    except NoonbellError as error:
        facts = {"store": shown_address(url), "kind": type(error).__name__}
        raise complaint(str(error), facts, as_json=as_json) from error


def shown_address(url: str) -> str:
    """Without a password."""
    return re.sub(r"//[^/]*@", "//…@", url)


# --- a plan on the terminal -------------------------------------------------------------------------------------------


def print_plan(plan: Plan, url: str) -> None:
    console = terminal()
    console.print(
        Text.assemble(
            (printable(plan.file.document.source), "bold"), f" ({plan.file.owner}) against {shown_address(url)}"
        )
    )
    prefix = f"{plan.file.owner}:"
    items = [
        *(("quiet hours ", item.id.removeprefix(prefix), item) for item in plan.quiet_hours),
        *(("", item.id, item) for item in plan.schedules),
    ]
    for kind, shown_id, item in items[:_MOST_SHOWN]:
        _print_item(console, kind, shown_id, item)
    if len(items) > _MOST_SHOWN:
        console.print(Text(f"\n… and {len(items) - _MOST_SHOWN} more; --json tells them all"))
    console.print()
    console.print(Text(summary(plan), "bold"))


def summary(plan: Plan) -> str:
    """How much there is to do, in one line."""
    if plan.empty:
        return f"Nothing to change: {plan.unchanged} as declared"
    parts = [
        f"{len(plan.ids('create'))} to create",
        f"{len(plan.ids('change'))} to change",
        f"{len(plan.ids('delete'))} to delete",
        f"{plan.unchanged} unchanged",
    ]
    if plan.quiet_hours:
        parts.append(f"{len(plan.quiet_hours)} quiet hours to change")
    return ", ".join(parts)


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
        before, after = _windows(change.before), _windows(change.after)
    else:
        before, after = _shortened(_value(change.before), _value(change.after))
    field = Text(f"{printable(change.field)}: ", "dim")
    _print_wrapped(console, Text.assemble(field, before, (" → ", "dim"), after))


def _print_wrapped(console: Console, line: Text) -> None:
    """Indented; on a terminal what is too long goes on below, elsewhere a line stays a line."""
    width = max(20, console.width - 6)
    lines = line.wrap(console, width, overflow="fold") if console.is_terminal else [line]
    for number, one in enumerate(lines):
        one.rstrip()
        console.print(Text("      " if number else "    ") + one)


def _windows(windows: list[dict[str, Any]]) -> str:
    """Quiet hours as people say them: `Mon-Fri 22:00-06:00 Europe/Kyiv`."""
    said = []
    for window in windows:
        days = [_DAYS[day] for day in window.get("weekdays", [])]
        named = f"{days[0]}-{days[-1]}" if window.get("weekdays") == [1, 2, 3, 4, 5] else ",".join(days)
        when = [part for part in (named, ",".join(window.get("dates", []))) if part]
        bounds = [f"{key[6:]} {window[key]}" for key in ("valid_from", "valid_to") if key in window]
        said.append(" ".join([*when, f"{window['from']}-{window['to']}", window["timezone"], *bounds]))
    return printable("; ".join(said)) or "none"


def _value(value: Any) -> str:
    if value is None:
        return "none"
    return printable(json.dumps(value, ensure_ascii=False))


def _shortened(before: str, after: str) -> tuple[str, str]:
    """Two long values from a little before where they part."""
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
