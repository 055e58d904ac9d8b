"""`noonbell doctor`: checks an installation, and prints a remedy for each problem."""

from __future__ import annotations

import json
from typing import Final

import click
from rich.text import Text

from noonbell.cli.cli_errors import WRONG, HintingCommand, printable
from noonbell.cli.connection_target import ConnectionTarget, key_file_option, with_backend
from noonbell.cli.console_tables import console
from noonbell.cli.doctor import Finding, examine

_EXAMPLES: Final = """\b
noonbell doctor
noonbell doctor --store postgresql://db/noonbell --key-file master.keys
noonbell doctor --server https://bell.example.org --json
"""
_SIGNS: Final = {"ok": ("✓", "green"), "note": ("·", "dim"), "warning": ("!", "yellow"), "wrong": ("✗", "bold red")}


@click.command("doctor", cls=HintingCommand, epilog=_EXAMPLES)
@key_file_option
@with_backend(needed=False)
@click.pass_context
def command(ctx: click.Context, *, key_file: str | None, place: ConnectionTarget) -> None:
    """Check Python, libraries, database, zone data, keys, clock, disk, lanes and egress; nothing is changed.

    Exit status: 0 all checks passed (there may be warnings), 1 a check failed.
    """
    found = examine(place, key_file)
    worst = any(one.level == "wrong" for one in found)
    if place.as_json:
        document = {"healthy": not worst, "findings": [one._asdict() for one in found]}
        click.echo(json.dumps(document, ensure_ascii=False))
        ctx.exit(WRONG if worst else 0)
    out = console()
    width = max(len(one.what) for one in found) + 2
    for one in found:
        _print(out, one, width)
    amiss = sum(one.level == "wrong" for one in found)
    warned = sum(one.level == "warning" for one in found)
    counted = f"{amiss} wrong, {warned} to look at" if amiss or warned else "All checks passed"
    out.print(Text(counted + ".", "bold red" if amiss else "bold yellow" if warned else "bold green"))
    ctx.exit(WRONG if worst else 0)


def _print(out: object, one: Finding, width: int) -> None:
    from rich.console import Console  # noqa: PLC0415 - for its type

    assert isinstance(out, Console)  # noqa: S101 - made above
    sign, style = _SIGNS[one.level]
    lines = Text(printable(one.told)).wrap(out, max(20, out.width - width - 3), overflow="fold")
    for number, line in enumerate(lines):
        line.rstrip()
        head = Text.assemble((f"{sign} ", style), f"{one.what:<{width}}") if number == 0 else Text(" " * (width + 2))
        out.print(head + line, soft_wrap=True)
    if one.do:
        for line in Text(f"→ {printable(one.do)}", "yellow").wrap(out, max(20, out.width - width - 3), overflow="fold"):
            line.rstrip()
            out.print(Text(" " * (width + 2)) + line, soft_wrap=True)
