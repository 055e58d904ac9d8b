"""Who is alive, decided by the operating system.

A scheduler's name is an exclusive lock on a small file beside the database. The system frees it when the process ends,
however it ends; so a lock that can be taken means that its last holder is dead, and one that cannot means that it
lives. The file's content tells who that is.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import weakref
from pathlib import Path

from noonbell.errors import SchedulerInUseError, StoreUnavailableError

logger = logging.getLogger("noonbell.store")

# A forked child shares the lock through its copy of the descriptor, and would keep a dead parent's name taken.
_held: weakref.WeakSet[FileHold] = weakref.WeakSet()


def _forget_in_child() -> None:
    for hold in list(_held):
        hold.drop()


os.register_at_fork(after_in_child=_forget_in_child)


class FileHold:
    """A held lock file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            _held.discard(self)
            try:
                os.ftruncate(descriptor, 0)
            except OSError:
                logger.warning("A lock file could not be emptied; the name is free all the same")
            finally:
                os.close(descriptor)

    def drop(self) -> None:
        """As a dying process: the lock goes, the content stays."""
        descriptor, self._descriptor = self._descriptor, None
        _held.discard(self)
        if descriptor is not None:
            os.close(descriptor)


def take(database: Path, name: str, holder: str) -> FileHold:
    """Lock the name for `holder`, or raise SchedulerInUseError."""
    path = lock_path(database, name)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreUnavailableError(f"The lock file {path} cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, holder.encode(), 0)
    except BlockingIOError:
        held_by = os.read(descriptor, 1000).decode("utf-8", "replace") or "an unknown process"
        os.close(descriptor)
        raise SchedulerInUseError(name, held_by) from None
    except OSError as error:
        os.close(descriptor)
        raise StoreUnavailableError(f"The lock file {path} cannot be used: {error.strerror}") from error
    hold = FileHold(descriptor)
    _held.add(hold)
    return hold


def lock_path(database: Path, name: str) -> Path:
    """Readable where the name allows it, and never the same for two names."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:40]
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return database.with_name(f"{database.name}.{plain}-{digest}.lock")
