"""What the commands that question a ledger share: whose tasks are meant, and how a sentence is printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from rich.text import Text

from noonbell.cli.cli_errors import CliError
from noonbell.cli.spec_input import terminal

_Function = TypeVar("_Function", bound=Callable[..., Any])


def owner_options(function: _Function) -> _Function:
    """--scheduler and --owner: whose tasks and schedules are meant."""
    for decorate in (
        click.option("--owner", metavar="OWNER", help="Only what belongs to it: api, file:NAME, scheduler:NAME, ..."),
        click.option("--scheduler", metavar="NAME", help="Only the tasks of the Scheduler of this name."),
    ):
        function = decorate(function)
    return function


def owner_named(scheduler: str | None, owner: str | None, *, as_json: bool) -> str | None:
    """The owner that is meant. --scheduler takes a full owner such as periodic:nightly, too."""
    if scheduler is not None and owner is not None:
        raise CliError("Say --scheduler or --owner, not both", {"option": "--owner", "value": owner}, as_json=as_json)
    if scheduler is None or ":" in scheduler:
        return owner or scheduler
    return f"scheduler:{scheduler}"


def print_text(text: Text) -> None:
    """Print it: wrapped at the width of a terminal, and in one line for whatever else reads it."""
    console = terminal()
    console.print(text, soft_wrap=not console.is_terminal)
