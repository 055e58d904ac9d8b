"""Opening the store that an address names.

    sqlite:///app.db           a file, relative to the working directory
    sqlite:////var/lib/app.db  a file by its full path
    postgresql://host/name     a database; user, password and options as in every PostgreSQL address
    memory://                  nothing is kept beyond this process
    a store                    is taken as it is

`open_store` builds the store; it is the caller who opens and closes it. `require_ledger` is for those who only read: it
refuses what is not there or holds something else, so that a slip of the pen neither creates nor changes one.

An address of PostgreSQL may hold a password: no error that is raised here repeats it.
"""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

from noonbell.errors import StoreCorruptError, StoreError, StoreUnavailableError, StoreUrlError
from noonbell.ports import Ledger

if TYPE_CHECKING:
    from noonbell.store.postgres import PostgresStore

_SQLITE: Final = "sqlite:///"
_POSTGRES: Final = ("postgresql://", "postgres://")
_RIGHT: Final = (
    "right are sqlite:///app.db (relative), sqlite:////var/lib/app.db (absolute), postgresql://host/name, memory://, "
    "or a store"
)
_TABLES: Final = frozenset({"runs", "spans", "epochs", "lifecycle"})


def open_store(url: str | Ledger, *, read_only: bool = False) -> Ledger:
    """The store at an address, not opened yet; StoreUrlError where the address makes no sense."""
    if not isinstance(url, str):
        if not isinstance(url, Ledger):
            raise StoreUrlError(f"{url!r} is neither a store nor the address of one; {_RIGHT}", value=url)
        return url
    if url == "memory://":
        from noonbell.store.memory import MemoryStore  # noqa: PLC0415 - only where it is asked for

        return MemoryStore()
    if _is_postgres(url):
        return _postgres_store(url, read_only=read_only)
    from noonbell.store.sqlite import SqliteStore  # noqa: PLC0415 - as above

    return SqliteStore(sqlite_path(url), read_only=read_only)


def _is_postgres(url: str) -> bool:
    """Return whether the address means PostgreSQL, spelt correctly or not: such an address is never shown whole."""
    return re.match(r"\s*postgres[a-z0-9+]*:", url, re.IGNORECASE) is not None


def _postgres_store(url: str, *, read_only: bool = False) -> PostgresStore:
    if not url.startswith(_POSTGRES):
        scheme = url.strip().partition(":")[0]
        raise StoreUrlError(f'An address of PostgreSQL begins with postgresql://, not with "{scheme}"', value=scheme)
    try:
        from noonbell.store.postgres import PostgresStore  # noqa: PLC0415 - its driver comes with an extra
    except ModuleNotFoundError as error:
        raise StoreError('PostgreSQL needs a driver: install "noonbell[postgres]"') from error
    return PostgresStore(url, read_only=read_only)


def sqlite_path(url: str) -> Path:
    """The file that an sqlite address names."""
    if _is_postgres(url):
        raise StoreUrlError(f"An address of PostgreSQL names no file; {_RIGHT}", value="postgresql://…")
    name = url.removeprefix(_SQLITE)
    if not url.startswith(_SQLITE):
        if "://" not in url and url.strip() and not url.startswith("sqlite:"):
            raise StoreUrlError(f'"{url}" is a path, not an address; did you mean {_SQLITE}{url}?', value=url)
        raise StoreUrlError(f'"{url}" is not the address of a store; {_RIGHT}', value=url)
    if name.strip("/ ") == "" or name == ":memory:":
        raise StoreUrlError(f'"{url}" names no file; {_RIGHT}', value=url)
    if "?" in name or "\0" in name:
        raise StoreUrlError(
            f'"{url}" has something after the file name; options are not part of the address', value=url
        )
    return Path(name)


def require_ledger(url: str) -> Path | None:
    """Make sure that a ledger is at the address, and return its file if it is one; nothing is created or changed.

    The errors say by `missing` where there is a place for a ledger, and none yet.
    """
    if url == "memory://":
        raise StoreUrlError("memory:// is a store inside one process; another process cannot open it", value=url)
    if _is_postgres(url):
        _require_tables(_postgres_store(url))
        return None
    path = sqlite_path(url)
    if not path.exists():
        raise StoreUnavailableError(f"File not found: {path}; nothing was created", path=str(path), missing=True)
    if not path.is_file():
        raise StoreUnavailableError(f"{path} is not a file", path=str(path))
    try:
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            db.set_busy_timeout(5000)
            tables = {row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        finally:
            db.close()
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise StoreCorruptError(f"{path} is damaged or not an SQLite file: {error}", path=str(path)) from error
    except apsw.Error as error:
        raise StoreUnavailableError(f"{path} cannot be read now: {error}", path=str(path)) from error
    if not tables >= _TABLES:
        message = f"{path} is an SQLite file, but holds no Noonbell ledger"
        raise StoreCorruptError(message, path=str(path), missing=True)
    return path


def _require_tables(store: PostgresStore) -> None:
    """Check the tables in a thread, because the caller may wait for the answer on an event loop of its own."""
    found: set[str] = set()
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            found.update(asyncio.run(store.tables()))
        except BaseException as error:  # noqa: BLE001 - it is raised again where it belongs
            failed.append(error)

    thread = threading.Thread(target=ask, name="noonbell-ask")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    if not found >= _TABLES:
        message = f"{store!r} can be reached, but holds no Noonbell ledger; nothing was created"
        raise StoreCorruptError(message, missing=True)
