"""Leases on SQLite: the operating system decides which holders are alive.

A scheduler's name is an exclusive lock on a small file beside the database. The system frees it when the process ends,
however it ends; so a lock that can be taken means that its last holder is dead, and one that cannot means that it
lives. The file's content names the holder.

The name of an engine is never used again, so its file goes with it: releasing the name removes the file, and so
does an engine that finds the holder dead (`forget`). Other names are taken again and again, and their files stay: a
process that has opened a file and not locked it yet must not find that it is another's by now.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import time
import weakref
from pathlib import Path
from typing import Final

from noonbell.core.presence import ENGINE
from noonbell.errors import SchedulerInUseError, StoreUnavailableError

logger = logging.getLogger("noonbell.store")

_UNKNOWN: Final = "an unknown process"
_LOOKS: Final = 5
_LOOK_SECONDS: Final = 0.002

# A forked child shares the lock through its copy of the descriptor, and would keep a dead parent's name taken.
_held: weakref.WeakSet[FileHold] = weakref.WeakSet()


def _forget_in_child() -> None:
    for hold in list(_held):
        hold.drop()


os.register_at_fork(after_in_child=_forget_in_child)


class FileHold:
    """A held lock file."""

    def __init__(self, descriptor: int, fleeting: Path | None = None) -> None:
        self._descriptor: int | None = descriptor
        self._fleeting = fleeting  # the file itself, where it goes with the name

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            _held.discard(self)
            try:
                if self._fleeting is not None:
                    self._fleeting.unlink(missing_ok=True)
                else:
                    os.ftruncate(descriptor, 0)
            except OSError:
                logger.warning("A lock file could not be emptied; the name is free all the same")
            finally:
                os.close(descriptor)

    def drop(self) -> None:
        """Act as a dying process: the lock goes, the content stays."""
        descriptor, self._descriptor = self._descriptor, None
        _held.discard(self)
        if descriptor is not None:
            os.close(descriptor)


def holder_of(database: Path, name: str) -> str | None:
    """Return the holder that has locked the name; None if it is free.

    The question is a shared lock, which is given back at once; `take` knows that one may be in its way for a moment.
    """
    try:
        descriptor = os.open(lock_path(database, name), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        return _UNKNOWN  # unknown, so it counts as held
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return os.read(descriptor, 1000).decode("utf-8", "replace") or _UNKNOWN
    else:
        return None
    finally:
        os.close(descriptor)


def take(database: Path, name: str, holder: str) -> FileHold:
    """Lock the name for `holder`, or raise SchedulerInUseError."""
    path = lock_path(database, name)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnavailableError(f"The lock file {path} cannot be opened: {error.strerror}") from error
    try:
        _lock(descriptor)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, holder.encode(), 0)
    except BlockingIOError:
        held_by = os.read(descriptor, 1000).decode("utf-8", "replace") or _UNKNOWN
        os.close(descriptor)
        raise SchedulerInUseError(name, held_by) from None
    except OSError as error:
        os.close(descriptor)
        raise StoreUnavailableError(f"The lock file {path} cannot be used: {error.strerror}") from error
    hold = FileHold(descriptor, path if name.startswith(ENGINE) else None)
    _held.add(hold)
    return hold


def forget(database: Path, name: str) -> None:
    """Remove the file of an engine that is dead: it will never be locked again."""
    try:
        lock_path(database, name).unlink(missing_ok=True)
    except OSError as error:
        logger.warning("The lock file of a dead engine could not be removed: %s", error.strerror)


def _lock(descriptor: int) -> None:
    """Lock it, in a few tries: a process that only asks who holds a name shares the lock for some microseconds."""
    for _ in range(_LOOKS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOOK_SECONDS)
        else:
            return
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock_path(database: Path, name: str) -> Path:
    """Readable where the name allows it, and never the same for two names."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:40]
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return database.with_name(f"{database.name}.{plain}-{digest}.lock")
