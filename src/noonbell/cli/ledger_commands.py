"""The shared part of the commands that query a ledger: the options for the owner, and printing a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from rich.text import Text

from noonbell.cli.cli_errors import CliError
from noonbell.cli.spec_input import terminal

_Function = TypeVar("_Function", bound=Callable[..., Any])


def owner_options(function: _Function) -> _Function:
    """Add --scheduler and --owner, which select the owner of tasks and schedules."""
    for decorate in (
        click.option("--owner", metavar="OWNER", help="Only what belongs to it: api, file:NAME, scheduler:NAME, ..."),
        click.option("--scheduler", metavar="NAME", help="Only the tasks of the Scheduler of this name."),
    ):
        function = decorate(function)
    return function


def owner_named(scheduler: str | None, owner: str | None, *, as_json: bool) -> str | None:
    """Return the selected owner. --scheduler also takes a full owner such as periodic:nightly."""
    if scheduler is not None and owner is not None:
        message = "--scheduler and --owner exclude each other; pass one of them"
        raise CliError(message, {"option": "--owner", "value": owner}, as_json=as_json)
    if scheduler is None or ":" in scheduler:
        return owner or scheduler
    return f"scheduler:{scheduler}"


def print_text(text: Text) -> None:
    """Print a text: wrapped at the width of a terminal, and in one line elsewhere."""
    console = terminal()
    console.print(text, soft_wrap=not console.is_terminal)
