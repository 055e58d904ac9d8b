"""What the commands about secrets share: their options, and a store with its secrets.

Values come from a prompt or from stdin, never from the arguments of a command: those stand in the history of the shell
and in the list of processes.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click

from noonbell.actions.secrets.keys import FILE_VARIABLE, VARIABLE, find_keys
from noonbell.actions.secrets.records import DEFAULT_TEAM, LONGEST_VALUE
from noonbell.actions.secrets.secrets import Secrets
from noonbell.cli.complaints import Complaint
from noonbell.engine import SystemClock
from noonbell.errors import NoonbellError, ScheduleNotFoundError
from noonbell.ports import DocumentStore, ScheduleStore
from noonbell.store.opening import open_store, require_ledger

T = TypeVar("T")
_Function = TypeVar("_Function", bound=Callable[..., Any])

team_option = click.option("--team", metavar="NAME", default=DEFAULT_TEAM, show_default=True, help="Whose it is.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, errors included.")
_MOST_READ: Final = LONGEST_VALUE + 3  # an end of line, and one byte that is too many


def store_option(function: _Function) -> _Function:
    return click.option(
        "--store",
        "--db",
        "url",
        metavar="ADDRESS",
        envvar="NOONBELL_STORE",
        required=True,
        help="The ledger, such as sqlite:///app.db. Default: the environment's NOONBELL_STORE.",
    )(function)


def key_option(function: _Function) -> _Function:
    return click.option(
        "--key-file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help=f"The master keys. Default: what the environment's {FILE_VARIABLE} or {VARIABLE} says.",
    )(function)


def with_secrets(
    url: str,
    key_file: Path | None,
    ask: Callable[[Secrets], Awaitable[T]],
    *,
    as_json: bool,
    read_only: bool = False,
    needs_keys: bool = True,
    of_schedule: str | None = None,
) -> T:
    """Open the store, ask its secrets, and close it; what goes wrong becomes a complaint."""

    async def session() -> T:
        keys = find_keys(key_file, os.environ) if needs_keys else None
        require_ledger(url)
        store = open_store(url, read_only=read_only)
        await store.open()
        try:
            if of_schedule is not None and not await cast("ScheduleStore", store).find_schedules([of_schedule]):
                raise ScheduleNotFoundError("schedule", of_schedule)
            return await ask(Secrets(cast("DocumentStore", store), keys, SystemClock(), actor()))
        finally:
            await store.close()

    try:
        return asyncio.run(session())
    except NoonbellError as error:
        facts = {"store": re.sub(r"//[^/]*@", "//…@", url), "kind": type(error).__name__}
        raise Complaint(str(error), facts, as_json=as_json) from None


def actor() -> str:
    """Who does it, for the audit."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a user without a name
        return f"cli:{os.getuid()}"


def read_value(prompt: str, *, as_json: bool) -> str:
    """A value from a prompt that does not show it, asked twice; where stdin is no terminal, what it holds.

    The end of its last line does not belong to it.
    """
    if sys.stdin.isatty():
        value: str = click.prompt(prompt, hide_input=True, confirmation_prompt=True, err=True)
        return value
    data = sys.stdin.buffer.read(_MOST_READ)
    try:
        return re.sub(r"\r?\n\Z", "", data.decode())
    except UnicodeDecodeError:
        # not the codec's own error, which holds the value
        raise Complaint("stdin is not text in UTF-8; nothing was stored", {}, as_json=as_json) from None
