"""What the commands that question a ledger share: their options, and a store that is only read.

A file that is not there is not created, and one that holds something else is left alone.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click
from rich.text import Text

from noonbell.cli.complaints import Complaint
from noonbell.cli.reading import terminal
from noonbell.errors import NoonbellError, StoreError, TaskNotFoundError
from noonbell.ports import Store
from noonbell.store.opening import open_store, require_ledger

T = TypeVar("T")

db_option = click.option(
    "--db",
    "--store",
    "url",
    metavar="ADDRESS",
    envvar="NOONBELL_STORE",
    required=True,
    help="The ledger, such as sqlite:///app.db. Default: the environment's NOONBELL_STORE.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, errors included.")
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
        raise Complaint("Say --scheduler or --owner, not both", {"option": "--owner", "value": owner}, as_json=as_json)
    if scheduler is None or ":" in scheduler:
        return owner or scheduler
    return f"scheduler:{scheduler}"


def tell(text: Text) -> None:
    """Print it: wrapped at the width of a terminal, and in one line for whatever else reads it."""
    console = terminal()
    console.print(text, soft_wrap=not console.is_terminal)


def ask_ledger(url: str, ask: Callable[[Store], Awaitable[T]], *, as_json: bool, read_only: bool = True) -> T:
    """Open the ledger, ask, and close it; what goes wrong becomes a complaint."""

    async def session() -> T:
        require_ledger(url)
        store = open_store(url, read_only=read_only)
        await store.open()
        try:
            return await ask(store)
        finally:
            await store.close()

    try:
        return asyncio.run(session())
    except StoreError as error:
        # an address may hold a password
        facts = {"option": "--db", "value": re.sub(r"//[^/]*@", "//…@", url), "kind": type(error).__name__}
        raise Complaint(str(error), facts, as_json=as_json) from error
    except TaskNotFoundError as error:
        facts = {"argument": "TASK", "value": error.task_name, "known": error.details["known"]}
        raise Complaint(str(error), facts, as_json=as_json) from error
    except NoonbellError as error:
        raise Complaint(str(error), dict(error.details), ("Name one with --owner",), as_json=as_json) from error
    except OverflowError as error:
        raise Complaint(f"That time cannot be answered for: {error}", {"error": str(error)}, as_json=as_json) from error
