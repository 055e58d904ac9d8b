"""Rows of schedules in plain dicts, as the verbs return them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noonbell.core.records import ScheduleColumns, StoredSchedule
from noonbell.store.memory.tables import MemoryData, Row, in_order

WRITTEN: Final = tuple(name for name in ScheduleColumns.__struct_fields__ if name != "definition")
DURABLE: Final = ("anchor_at", "backlog_left", "backlog_until", "last_run_for")
_KEPT: Final = ("created_at", "updated_at", "next_run_at", "last_run_at", "last_attempt_at", "last_success_at",
                "last_failure_at", "epoch", "cursor_at")  # fmt: skip
# What a declared task has in the place of these.
_DECLARED: Final[Row] = {"definition": None, **dict.fromkeys(DURABLE)}


def stored(data: MemoryData, sid: int) -> StoredSchedule:
    """Return a schedule, declared or durable, with its live runs and its quiet hours."""
    row = data.schedules[sid]
    durable = data.durable.get(sid) or _DECLARED | {"lane": row["managed_by"]}
    policy = data.quiet_hours.get(row["quiet_hours_policy_id"])
    run = None
    if '"overlap":"skip"' in (durable["definition"] or ""):  # only these need it
        run = data.runs.get(sid, {}).get((durable["last_run_for"], "scheduled"))
    return StoredSchedule(
        sid=sid,
        schedule_id=row["schedule_id"],
        columns=ScheduleColumns(**{name: row[name] for name in WRITTEN}, definition=durable["definition"]),
        enabled=bool(row["enabled"]),
        managed_by=row["managed_by"],
        lane=durable["lane"],
        **{name: row[name] for name in _KEPT},
        **{name: durable[name] for name in DURABLE},
        quiet=None if policy is None else policy.document,
        ran=None if run is None else (run.started_at, run.ended_at),
        lives=in_order(data.live.get(sid)),
        team=row["team"],
    )


def raw_rows(data: MemoryData, managed_by: str | None, *, removed: bool) -> list[Mapping[str, Any]]:
    """Return rows of the schedules table, of one owner or of all, with or without removed ones."""
    return [
        row | data.beside(row["sid"])
        for row in in_order(data.schedules)
        if managed_by in {None, row["managed_by"]} and (removed or row["removed_at"] is None)
    ]
