"""The tables of the ledger, as `Ledger.read` returns them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from noonbell.core.records import Attempt, Epoch, LifecycleEvent, LiveRun, PrunedDay, Run, Span

LedgerTable = Literal[
    "schedules", "epochs", "live", "runs", "spans", "attempts", "pruned", "lifecycle", "zone_rules"
]  # fmt: skip


class TableShape(NamedTuple):
    """The columns of a table in their order, and the key that its rows are ordered by."""

    columns: tuple[str, ...]
    key: tuple[str, ...]


class RowBounds(NamedTuple):
    """The bounds of a table's rows: above_sid < sid <= upto_sid, and an owner."""

    above_sid: int | None = None
    upto_sid: int | None = None
    managed_by: str | None = None


ALL_ROWS: Final = RowBounds()

LEDGER_TABLES: Mapping[LedgerTable, TableShape] = {
    "schedules": TableShape(
        (
            "sid", "schedule_id", "name", "enabled", "type", "spec", "next_run_at", "last_run_at", "timezone",
            "quiet_hours_policy_id", "catch_up_policy", "payload", "created_at", "updated_at", "managed_by", "team",
            "epoch", "cursor_at", "retry_delay_us", "last_attempt_at", "last_success_at", "last_failure_at",
            "removed_at", "last_ended_for", "last_ended_manual", "ended_runs", "succeeded_runs", "anchor_at",
            "backlog_left",
        ),
        ("sid",),
    ),
    "epochs": TableShape(Epoch.__struct_fields__, ("sid", "epoch")),
    "live": TableShape(LiveRun.__struct_fields__, ("sid", "kind", "run_for")),
    "runs": TableShape(Run.__struct_fields__, ("run_for", "sid", "kind")),
    "spans": TableShape(Span.__struct_fields__, ("sid", "from_at")),
    "attempts": TableShape(Attempt.__struct_fields__, ("sid", "run_for", "kind", "attempt")),
    "pruned": TableShape(PrunedDay.__struct_fields__, ("sid", "epoch", "day")),
    "lifecycle": TableShape(("id", *LifecycleEvent.__struct_fields__), ("id",)),
    # for each zone of durable schedules and quiet hours the rules that they were computed with, hash first
    "zone_rules": TableShape(("timezone", "zone_hash"), ("timezone",)),
}  # fmt: skip
