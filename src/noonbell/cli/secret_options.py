"""Reading secret values, and the options of commands that work on a database only.

Values are read from a prompt or from stdin, never from the arguments of a command, which shell histories and process
lists show.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from noonbell.actions.secrets.secret_records import DEFAULT_TEAM, LONGEST_VALUE
from noonbell.cli.cli_errors import CliError
from noonbell.cli.connection_target import actor

__all__ = ["actor", "json_option", "read_value", "store_option", "team_option"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

team_option = click.option("--team", metavar="NAME", default=DEFAULT_TEAM, show_default=True, help="The team.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, errors included.")
_MOST_READ: Final = LONGEST_VALUE + 3  # an end of line, and one byte that is too many


def store_option(function: _Function) -> _Function:
    """Add --store, for commands that do not work through a server."""
    return click.option(
        "--store",
        "--db",
        "url",
        metavar="ADDRESS",
        envvar="NOONBELL_STORE",
        required=True,
        help="The ledger, such as sqlite:///app.db. Default: the environment's NOONBELL_STORE.",
    )(function)


def read_value(prompt: str, *, as_json: bool) -> str:
    """Read a value twice from a hidden prompt, or from stdin if that is not a terminal.

    A trailing line break is removed.
    """
    if sys.stdin.isatty():
        value: str = click.prompt(prompt, hide_input=True, confirmation_prompt=True, err=True)
        return value
    data = sys.stdin.buffer.read(_MOST_READ)
    try:
        return re.sub(r"\r?\n\Z", "", data.decode())
    except UnicodeDecodeError:
        # not the codec's own error, which holds the value
        raise CliError("stdin is not text in UTF-8; nothing was stored", {}, as_json=as_json) from None
