"""The target of a command: a database that it opens, or a server that it calls.

`@with_backend` adds the options `--store`, `--server` and `--json` to a command, and passes it a `ConnectionTarget`.
Options override environment variables (NOONBELL_STORE, NOONBELL_URL), and these override `noonbell.toml` and the
database `noonbell.db` of a service that was started in this directory. A key is never an argument of a command, because
shell histories and process lists show arguments: it is read from NOONBELL_API_KEY.
"""

from __future__ import annotations

import asyncio
import functools
import getpass
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

import click

from noonbell.cli.cli_errors import INTERRUPTED, CliError
from noonbell.errors import CommandsOffError, NoonbellError, TaskNotFoundError

if TYPE_CHECKING:
    from noonbell.cli.backend.backend_protocol import Backend

T = TypeVar("T")
_Function = TypeVar("_Function", bound=Callable[..., Any])

STORE_VARIABLE: Final = "NOONBELL_STORE"
SERVER_VARIABLE: Final = "NOONBELL_URL"
KEY_VARIABLE: Final = "NOONBELL_API_KEY"
KEYS_FILE_VARIABLE: Final = "NOONBELL_MASTER_KEYS_FILE"
KEYS_VARIABLE: Final = "NOONBELL_MASTER_KEYS"
_CREATE: Final = "noonbell apply FILE --create creates a ledger there, if the address is right; so does serve"


@dataclass(frozen=True, slots=True)
class ConnectionTarget:
    """One of `store` and `server`, and the format of the output."""

    store: str | None
    server: str | None
    as_json: bool
    now: datetime

    @property
    def shown(self) -> str:
        """The address, without a password."""
        return shown_address(self.server or self.store or "")

    def cli_error(
        self, message: str, facts: dict[str, Any] | None = None, hints: tuple[str, ...] = (), **more: Any
    ) -> CliError:
        return CliError(message, facts or {}, hints, as_json=self.as_json, **more)

    def found(self) -> ConnectionTarget:
        """Return this target if it has a store or a server, else that of the settings; raise `CliError` without one."""
        return find_place(self.store, self.server, self.now, as_json=self.as_json)

    def require_store(self, command: str) -> str:
        """Return the address of the database, for a command that does not work through a server."""
        if self.store is None:
            message = f"{command} does not work through a server; run it on the machine of the database, with --store"
            raise self.cli_error(message, {"option": "--server", "value": self.shown})
        return self.store

    def ask(self, work: Callable[[Backend], Awaitable[T]], *, within: float | None = None, **how: Any) -> T:
        """Connect to the target, call `work` with its backend, and disconnect; errors become a `CliError`.

        After `within` seconds it raises TimeoutError. `how` is for the local backend: see `local.opened`.
        """

        async def session() -> T:
            async with asyncio.timeout(within), self._reached(**how) as backend:
                return await work(backend)

        try:
            return asyncio.run(session())
        except NoonbellError as error:
            raise self._about(error) from error
        except OverflowError as error:
            raise self.cli_error(f"The time is out of range: {error}", {"error": str(error)}) from error
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None

    def _reached(self, **how: Any) -> Any:
        if self.server is not None:
            from noonbell.cli.backend.remote import connected  # noqa: PLC0415 - only where a server is asked

            return connected(self, os.environ.get(KEY_VARIABLE))
        from noonbell.cli.backend.local import opened  # noqa: PLC0415 - only where a store is opened

        return opened(self, **how)

    def _about(self, error: NoonbellError) -> CliError:
        where = {"server" if self.server is not None else "store": self.shown}
        facts: dict[str, Any] = {**where, "kind": type(error).__name__}
        for name in ("field", "value", "reason", "owners", "known"):
            if name in error.details and isinstance(error.details[name], str | int | list | tuple):
                facts[name] = error.details[name]
        hints: tuple[str, ...] = tuple(getattr(error, "__notes__", ()))
        if isinstance(error, TaskNotFoundError) and "known" in error.details:
            facts = {**where, "argument": "TASK", "value": error.task_name, "known": error.details["known"]}
        elif "owners" in error.details:
            hints += ("Name one with --owner",)
        elif error.details.get("missing"):
            hints += (_CREATE,)
        elif isinstance(error, CommandsOffError):
            hints += ("A service allows programs by its setting commands, or serve --command PROGRAM",)
        return self.cli_error(str(error), facts, hints)


@overload
def with_backend(function: _Function) -> _Function: ...


@overload
def with_backend(*, needed: bool) -> Callable[[_Function], _Function]: ...


def with_backend(function: Callable[..., Any] | None = None, *, needed: bool = True) -> Any:
    """Give a command `--store`, `--server` and `--json`, and pass it a `place`.

    If none is needed, the place may have neither a store nor a server.
    """
    if function is None:
        return functools.partial(with_backend, needed=needed)

    @functools.wraps(function)
    def wrapper(*args: Any, given_store: str | None, given_server: str | None, as_json: bool, **kwargs: Any) -> Any:
        now: datetime = click.get_current_context().obj
        place = find_place(given_store, given_server, now, as_json=as_json, needed=needed)
        return function(*args, place=place, **kwargs)

    decorated: Any = wrapper
    for decorate in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON, errors included."),
        click.option(
            "--server",
            "given_server",
            metavar="URL",
            help=f"Connect to this service, with the key in {KEY_VARIABLE}. Default: {SERVER_VARIABLE}.",
        ),
        click.option(
            "--store",
            "--db",
            "given_store",
            metavar="ADDRESS",
            help=f"The database, such as sqlite:///app.db. Default: {STORE_VARIABLE}, then noonbell.toml.",
        ),
    ):
        decorated = decorate(decorated)
    return decorated


def team_option(function: _Function) -> _Function:
    return click.option(
        "--team", metavar="NAME", help='The team. Default: "default"; with --server, the team of the key.'
    )(function)


def key_file_option(function: _Function) -> _Function:
    return click.option(
        "--key-file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help=f"The master keys, for --store. Default: {KEYS_FILE_VARIABLE} or {KEYS_VARIABLE}.",
    )(function)


def actor() -> str:
    """Return the actor for the audit."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a user without a name
        return f"cli:{os.getuid()}"


def shown_address(url: str) -> str:
    """Return the address without its password."""
    return re.sub(r"//[^/]*@", "//…@", url)


# --- finding it -------------------------------------------------------------------------------------------------------


def find_place(
    store: str | None, server: str | None, now: datetime, *, as_json: bool, needed: bool = True
) -> ConnectionTarget:
    """Return the target that the options, the environment or the settings name."""
    if store is not None and server is not None:
        message = "--store and --server exclude each other; pass one of them"
        raise CliError(message, {"option": "--server", "value": server}, as_json=as_json)
    if store is None and server is None:
        store, server = os.environ.get(STORE_VARIABLE) or None, os.environ.get(SERVER_VARIABLE) or None
        if store is not None and server is not None:
            message = f"Both {STORE_VARIABLE} and {SERVER_VARIABLE} are set; pass --store or --server"
            raise CliError(message, {"variables": [STORE_VARIABLE, SERVER_VARIABLE]}, as_json=as_json)
    if store is None and server is None and needed:
        store = _of_settings(as_json=as_json)
    if store is None and server is None and needed:
        message = "Missing option '--db', '--store' or '--server': where are the schedules?"
        hints = (
            f"--store sqlite:///app.db, or {STORE_VARIABLE}: a database",
            f"--server https://bell.example.org, or {SERVER_VARIABLE}: a service; its key is read from {KEY_VARIABLE}",
        )
        raise CliError(message, {"options": ["--store", "--server"]}, hints, as_json=as_json)
    return ConnectionTarget(store, server, as_json, now)


def _of_settings(*, as_json: bool) -> str | None:
    """Return the database of a service that is configured in this directory."""
    from noonbell.config import load  # noqa: PLC0415 - only where nothing else was said

    try:
        settings = load(environ=os.environ)
    except NoonbellError as error:
        raise CliError(str(error), {"kind": type(error).__name__}, as_json=as_json) from None
    named = settings.sources.get("store", "default") != "default"
    return settings.store if named or Path(settings.store.removeprefix("sqlite:///")).is_file() else None
