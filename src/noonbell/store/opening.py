"""From an address to a store.

    sqlite:///app.db           a file, relative to the working directory
    sqlite:////var/lib/app.db  a file by its full path
    memory://                  nothing is kept beyond this process
    a Store                    is taken as it is

`open_store` builds the store; it is the caller who opens and closes it. `require_ledger` is for those who only read: it
refuses a file that is not there or holds something else, so that a slip of the pen neither creates nor changes one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import apsw

from noonbell.errors import StoreCorruptError, StoreUnavailableError, StoreUrlError
from noonbell.ports import Store

_SQLITE: Final = "sqlite:///"
_RIGHT: Final = "right are sqlite:///app.db (relative), sqlite:////var/lib/app.db (absolute), memory://, or a Store"


def open_store(url: str | Store) -> Store:
    """The store at an address, not opened yet; StoreUrlError where the address makes no sense."""
    if not isinstance(url, str):
        if not hasattr(url, "claim_due"):
            raise StoreUrlError(f"{url!r} is neither a store nor the address of one; {_RIGHT}", value=url)
        return url
    if url == "memory://":
        from noonbell.store.memory import MemoryStore  # noqa: PLC0415 - only where it is asked for

        return MemoryStore()
    from noonbell.store.sqlite import SqliteStore  # noqa: PLC0415 - as above

    return SqliteStore(sqlite_path(url))


def sqlite_path(url: str) -> Path:
    """The file that an sqlite address names."""
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


def require_ledger(url: str) -> Path:
    """The file at the address, made sure that a ledger is in it; nothing is created or changed."""
    if url == "memory://":
        raise StoreUrlError("memory:// lives inside one process and cannot be looked at from here", value=url)
    path = sqlite_path(url)
    if not path.exists():
        raise StoreUnavailableError(f"There is no file {path}; nothing was created", path=str(path))
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
        raise StoreCorruptError(f"{path} is damaged or is no SQLite file: {error}", path=str(path)) from error
    except apsw.Error as error:
        raise StoreUnavailableError(f"{path} cannot be read now: {error}", path=str(path)) from error
    if not {"schedules", "runs", "spans", "epochs", "lifecycle"} <= tables:
        raise StoreCorruptError(f"{path} is an SQLite file, but holds no Noonbell ledger", path=str(path))
    return path
