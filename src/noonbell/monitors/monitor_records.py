"""The records that `Monitors` returns: plain values with aware datetimes in UTC."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from noonbell.monitors.monitor_state import PingKind, Status


class OpenRun(msgspec.Struct, frozen=True):
    """A run of the job that has started and not ended; `run` is the name that the job gave it, or empty."""

    run: str
    since: datetime


class Monitor(msgspec.Struct, frozen=True):
    """A heartbeat monitor. The `token` gives the right to ping it, and no other.

    `due_at` is when the next ping is due, `down_at` when the monitor will be down unless one comes. `understood` is set
    in the answer to a create or update that typed another cron dialect.
    """

    monitor_id: str
    name: str
    team: str
    type: str
    spec: str
    timezone: str
    dst: str
    grace_seconds: float
    max_run_seconds: float | None
    tags: tuple[str, ...]
    status: Status
    since: datetime
    reason: str
    running: tuple[OpenRun, ...]
    due_at: datetime | None
    down_at: datetime | None
    last_ping_at: datetime | None
    last_kind: PingKind | None
    pings: int
    flips: int
    token: str
    ping_path: str
    created_at: datetime
    updated_at: datetime
    version: int
    understood: str | None = None


class MonitorPage(msgspec.Struct, frozen=True):
    """Some monitors, by id; `next_cursor` asks for what comes after, and is None at the end."""

    items: list[Monitor]
    next_cursor: str | None = None


class Ping(msgspec.Struct, frozen=True):
    """A ping as it came. `ran_for` is set where the run's start was received; `cut` says that the body was longer."""

    number: int
    at: datetime
    kind: PingKind
    exit_code: int | None
    run: str
    ran_for: timedelta | None
    body: str
    cut: bool


class FlipRecord(msgspec.Struct, frozen=True):
    """A change of the status, and how long the one before had lasted."""

    number: int
    at: datetime
    was: Status
    status: Status
    reason: str
    lasted: timedelta
