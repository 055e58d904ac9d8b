"""`noonbell config show`: every setting of the service, with the source of its value."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from noonbell.cli.cli_errors import CliError
from noonbell.config import ABOUT, load, shown
from noonbell.errors import SettingsInvalidError


@click.group("config")
def command() -> None:
    """Show the settings of the service, with the source of each."""


@command.command("show")
@click.option("--config", "file", type=click.Path(path_type=Path), help="The settings' file. Default: noonbell.toml.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, errors included.")
def show(file: Path | None, *, as_json: bool) -> None:
    """Show the settings of "noonbell serve" without flags. Passwords in addresses are masked."""
    try:
        settings = load(environ=os.environ, file=file)
    except SettingsInvalidError as error:
        facts = {"field": error.field, "source": error.source, "reason": error.reason}
        raise CliError(str(error), facts, as_json=as_json) from None
    if as_json:
        values = {name: {"value": value, "source": source} for name, value, source in shown(settings)}
        click.echo(json.dumps(values, ensure_ascii=False, indent=2))
        return
    _print_table(shown(settings))


def _print_table(rows: list[tuple[str, Any, str]]) -> None:
    from rich.console import Console  # noqa: PLC0415 - only where something is drawn
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(box=None, pad_edge=False)
    for heading in ("setting", "value", "from", "what it is"):
        table.add_column(heading, overflow="fold")
    for name, value, source in rows:
        table.add_row(Text(name), Text(_text(value)), Text(source), Text(ABOUT[name], style="dim"))
    Console(soft_wrap=False).print(table)


def _text(value: object) -> str:
    if value is None or value == ():
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(value) if isinstance(value, tuple) else str(value)
