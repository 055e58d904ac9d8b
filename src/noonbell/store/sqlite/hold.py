"""Who is alive, decided by the operating system.

A scheduler's name is an exclusive lock on a small file beside the database. The system frees it when the process ends,
however it ends; so a lock that can be taken means that its last holder is dead, and one that cannot means that it
lives. The file's content tells who that is.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from pathlib import Path

from noonbell.errors import SchedulerInUseError, StoreUnavailableError


class FileHold:
    """A held lock file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def drop(self) -> None:
        """As a dying process: the lock goes, the content stays."""
        descriptor, self._descriptor = self._descriptor, None
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
    except OSError:
        held_by = os.read(descriptor, 1000).decode("utf-8", "replace") or "an unknown process"
        os.close(descriptor)
        raise SchedulerInUseError(name, held_by) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, holder.encode(), 0)
    return FileHold(descriptor)


def lock_path(database: Path, name: str) -> Path:
    """Readable where the name allows it, and never the same for two names."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:40]
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return database.with_name(f"{database.name}.{plain}-{digest}.lock")
