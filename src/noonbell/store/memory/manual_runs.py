"""Runs that a person asks for, in plain dicts: queued here, started by an engine of the lane."""

from __future__ import annotations

import msgspec

from noonbell.core.records import AT_ONCE, MOST_ASKED, AuditEvent, Cause, LiveRun
from noonbell.core.turns import definition_of
from noonbell.errors import ScheduleNotFoundError
from noonbell.store.memory.tables import MemoryData, Transaction

_encode = msgspec.json.Encoder().encode


def ask(
    data: MemoryData, tx: Transaction, schedule_id: str, *, at: int, actor: str, cause: Cause, queue: bool
) -> int | None:
    """Queue a run that a person asks for: `ask` of the runs."""
    sid = _sid_of(data, schedule_id)
    lives, ended = data.live[sid], data.runs[sid]
    if queue:
        busy = sum(live.kind == "manual" for live in lives.values()) >= MOST_ASKED
    else:
        busy = any(live.kind == "manual" or live.state != "waiting" for live in lives.values())
    if busy and definition_of(data.durable[sid]["definition"]).overlap != "allow":
        return None
    run_for = at
    while ("manual", run_for) in lives or (run_for, "manual") in ended:
        run_for += 1  # asked for twice in one instant, or a clock that went back: the runs are kept apart
    asked = LiveRun(
        sid, "manual", run_for, fence=1, owner=None, state="queued", attempt=0, wake_at=AT_ONCE, started_at=None,
        attempt_at=None, crashes=0, epoch=data.schedules[sid]["epoch"], cause=cause,
    )  # fmt: skip
    tx.put_live(asked)
    detail = _encode({"run_for": run_for}).decode()
    tx.add_audits([AuditEvent(at, "schedule.triggered", schedule_id, actor, detail, data.schedules[sid]["team"])])
    return run_for


def _sid_of(data: MemoryData, schedule_id: str) -> int:
    for sid, row in data.schedules.items():
        if row["schedule_id"] == schedule_id and row["removed_at"] is None and sid in data.durable:
            return sid
    raise ScheduleNotFoundError("schedule", schedule_id)
