"""What the tests of the actions share: schedules and starts to act on, and a Redis server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from noonbell.core.records import Definition, ScheduleColumns, Start, StoredSchedule
from tests.redis_server import RedisServer

MIDNIGHT = 1_704_067_200_000_000  # 2024-01-01 00:00 UTC


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.stop()


def stored_with(
    action: dict[str, Any], payload: Any = None, *, schedule_id: str = "abc", name: str = "morning"
) -> StoredSchedule:
    """A schedule with this action."""
    definition = msgspec.json.encode(Definition(action=action)).decode()
    written = None if payload is None else msgspec.json.encode(payload).decode()
    columns = ScheduleColumns(name, "cron", "* * * * *", "UTC", None, "skip", written, definition)
    return StoredSchedule(
        sid=7, schedule_id=schedule_id, columns=columns, enabled=True, managed_by="api", lane="post", created_at=0,
        updated_at=0, next_run_at=None, last_run_at=None, last_attempt_at=None, last_success_at=None,
        last_failure_at=None, epoch=1, cursor_at=0, anchor_at=None, backlog_left=None, backlog_until=None,
        last_run_for=None, quiet=None, ran=None, lives=[],
    )  # fmt: skip


def start_at(run_for: int = MIDNIGHT, *, kind: Any = "scheduled", attempt: int = 1) -> Start:
    return Start(7, kind, run_for, 1, attempt, "cron", 1, run_for, run_for, None)
