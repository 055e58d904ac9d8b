"""Tasks that programs have declared (`Scheduler`, `periodic`), shown as schedules among the durable ones.

Both sorts share one table and its numbers (`sid`), so a page holds both in the order of their creation, and its cursor
is the last number on it. Declared tasks can be read here and not changed: the program that declares them does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from noonbell.core.instants import moment
from noonbell.core.records import DEFAULT_TEAM
from noonbell.ports import Ledger, ScheduleFilter
from noonbell.schedules.schedule_records import Page, Retry, Schedule, schedule_record


async def page_with_declared(
    store: Ledger,
    declared: Iterable[Mapping[str, Any]],
    wanted: ScheduleFilter,
    after: int,
    limit: int,
    *,
    now: int | None = None,
) -> Page[Schedule]:
    """Return up to `limit` schedules past the number `after`; `declared` are the rows of all declared tasks."""
    durable = await store.schedules.find(wanted, after, limit + 1)
    found = [(stored.sid, schedule_record(stored, now=now)) for stored in durable]
    found += [
        (int(row["sid"]), declared_record(row)) for row in declared if row["sid"] > after and _matches(row, wanted)
    ]
    found.sort(key=lambda one: one[0])
    last = str(found[limit - 1][0]) if len(found) > limit else None
    return Page([schedule for _, schedule in found[:limit]], last)


def _matches(row: Mapping[str, Any], wanted: ScheduleFilter) -> bool:
    if wanted.tag is not None or wanted.lane is not None or wanted.quiet_hours_policy_id is not None:
        return False  # it has none of these
    return (
        wanted.enabled in (None, bool(row["enabled"]))
        and wanted.type in (None, row["type"])
        and wanted.timezone in (None, row["timezone"])
        and wanted.managed_by in (None, row["managed_by"])
        and wanted.team in (None, row["team"] or DEFAULT_TEAM)
        and (wanted.name_contains is None or wanted.name_contains.lower() in str(row["name"]).lower())
    )


def declared_record(row: Mapping[str, Any]) -> Schedule:
    """Return a declared task as a schedule, with the policies that all of them have."""
    return Schedule(
        schedule_id=row["schedule_id"], name=str(row["name"]), enabled=bool(row["enabled"]), type=row["type"],
        spec=str(row["spec"]), next_run_at=_moment(row["next_run_at"]), last_run_at=_moment(row["last_run_at"]),
        timezone=str(row["timezone"]), quiet_hours_policy_id=None, catch_up_policy=row["catch_up_policy"], payload=None,
        created_at=moment(row["created_at"]), updated_at=moment(row["updated_at"]), catch_up_cap=1, overlap="coalesce",
        retry=Retry(None, (row["retry_delay_us"] or 0) / 1_000_000, "fixed", None, 0.0), retry_vs_new="preempt",
        dst="literal", start_at=None, end_at=None, jitter_seconds=0.0, at_most_once=False, tags=(),
        action={"kind": "callback", "name": str(row["name"])}, managed_by=row["managed_by"], lane="",
        epoch=row["epoch"], running=int(row.get("running", 0)), last_success_at=_moment(row["last_success_at"]),
        last_failure_at=_moment(row["last_failure_at"]), team=row["team"] or DEFAULT_TEAM,
    )  # fmt: skip


def _moment(at: object) -> datetime | None:
    return moment(at) if type(at) is int else None
