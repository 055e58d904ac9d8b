"""Turns in plain dicts: what was decided about one schedule, written within the transaction of a claim or an edit."""

from __future__ import annotations

from copy import copy
from typing import Any

from msgspec.structs import replace

from noonbell.core.records import LiveRun, Start, Turn
from noonbell.store.memory import outbox
from noonbell.store.memory.stored import DURABLE
from noonbell.store.memory.tables import MemoryData, Transaction


def write_turn(tx: Transaction, data: MemoryData, turn: Turn, owner: str, now: int) -> None:
    """Write a turn; `owner` claims its starts."""
    sid = turn.sid
    tx.end_together([(data.live[sid][live.kind, live.run_for], "failed") for live in turn.preempted], now)
    for span in turn.spans:
        tx.insert(data.spans[sid], span.from_at, copy(span))
    for start in turn.starts:
        _start(tx, data, start, owner, now)
    for live in turn.queued:
        tx.insert(data.live[sid], (live.kind, live.run_for), copy(live))
    for live in turn.put_off:
        before = data.live[sid][live.kind, live.run_for]
        tx.put_live(replace(before, wake_at=live.wake_at))
    for run in turn.finished:
        tx.add_run(run)
    outbox.append(tx, data, turn.messages, now)
    started: dict[str, Any] = {}
    if turn.starts or turn.finished:
        before = data.schedules[sid]["last_run_at"]
        started = {"last_run_at": max(before or 0, now), "last_attempt_at": now}
    if turn.finished:
        started["last_success_at"] = now
    tx.update(sid, cursor_at=turn.cursor_at, next_run_at=turn.next_run_at, enabled=int(turn.enabled), **started)
    if sid in data.durable:
        tx.put(data.durable, sid, data.durable[sid] | {name: getattr(turn, name) for name in DURABLE})
    tx.add_audits(turn.audits)


def _start(tx: Transaction, data: MemoryData, start: Start, owner: str, now: int) -> None:
    before = data.live[start.sid].get((start.kind, start.run_for))
    if before is None:
        live = LiveRun(
            start.sid, start.kind, start.run_for, start.fence, owner, "running", start.attempt, wake_at=None,
            started_at=now, attempt_at=now, crashes=0, epoch=start.epoch, cause=start.cause,
        )  # fmt: skip
        tx.put_live(live)
        return
    started_at = now if before.started_at is None else before.started_at
    again = replace(before, fence=start.fence, owner=owner, attempt=start.attempt, cause=start.cause)
    tx.put_live(replace(again, state="running", wake_at=None, started_at=started_at, attempt_at=now))
