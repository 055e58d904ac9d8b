"""The handle of a memory store: what its parts share, and how a part gets at it."""

from __future__ import annotations

from noonbell.errors import StoreUnavailableError
from noonbell.store.memory.tables import MemoryData, Transaction
from noonbell.store.snapshot import refuse_writing


class MemoryHandle:
    """The data, and whether they may be read and changed through this handle."""

    def __init__(self, data: MemoryData, *, is_open: bool = False) -> None:
        self.data = data
        self.is_open = is_open

    def tables(self) -> MemoryData:
        """Return the data; raises StoreUnavailableError if the handle is closed."""
        if not self.is_open:
            raise StoreUnavailableError("The memory store is closed; open it first (async with, or open())")
        return self.data

    def transaction(self) -> Transaction:
        """Begin to write; raises StoreUnavailableError if the handle is closed."""
        return Transaction(self.tables())


class SnapshotHandle(MemoryHandle):
    """A handle for reading only: a transaction raises StoreError."""

    def transaction(self) -> Transaction:
        refuse_writing()


class MemoryPart:
    """The base of the parts of a memory store."""

    def __init__(self, handle: MemoryHandle) -> None:
        self.data = handle.data
        self._tables = handle.tables
        self._transaction = handle.transaction
