"""The ledger in plain dicts, in parts."""

from noonbell.store.memory.store import MemoryStore
from noonbell.store.memory.tables import MemoryData

__all__ = ["MemoryData", "MemoryStore"]
