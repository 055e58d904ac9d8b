"""The ledger in a PostgreSQL database."""

from noonbell.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
