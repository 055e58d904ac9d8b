"""A PostgreSQL server for benchmarks: from a wheel, on disk, set up as one that has to survive a power cut."""

from __future__ import annotations

from tests.store import postgres_server

# No checkpoint comes by itself within an hour: full pages are written to the log after the one that a benchmark orders.
SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "autovacuum": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
}


def start_server() -> postgres_server.PostgresServer:
    postgres_server.SETTINGS.update(SETTINGS)
    postgres_server.FILES = None  # in the usual place for temporary files, where tests would take one in memory
    return postgres_server.PostgresServer()
