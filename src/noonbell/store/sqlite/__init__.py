"""The embedded store: one SQLite file, one writer, exact as long as the disk is local."""

from noonbell.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
