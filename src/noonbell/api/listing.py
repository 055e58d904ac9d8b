"""A page of schedules, durable and declared, in the order of their creation.

Both sorts share one table and its numbers (`sid`), so the cursor of a page is the last number on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from noonbell.api.models.base import PageOf
from noonbell.api.models.schedules import ScheduleTold
from noonbell.api.written import declared_told, schedule_told
from noonbell.ports import ScheduleFilter, ScheduleStore
from noonbell.schedules.records import schedule_record


async def schedule_page(
    store: ScheduleStore,
    declared: Sequence[Mapping[str, Any]],
    wanted: ScheduleFilter,
    after: int,
    limit: int,
    *,
    now: int,
) -> PageOf[ScheduleTold]:
    """Up to `limit` schedules past the number `after`; `declared` are all of that sort, by their numbers."""
    durable = await store.list_schedules(wanted, after, limit + 1)
    found: list[tuple[int, Any]] = [(stored.sid, stored) for stored in durable]
    found += [(row["sid"], row) for row in declared if row["sid"] > after and _fits(row, wanted)]
    found.sort(key=lambda one: one[0])
    shown = found[:limit]
    items = [
        declared_told(one) if isinstance(one, Mapping) else schedule_told(schedule_record(one, now=now))
        for _, one in shown
    ]
    return PageOf(items=items, next_cursor=str(shown[-1][0]) if len(found) > limit else None)


def _fits(row: Mapping[str, Any], wanted: ScheduleFilter) -> bool:
    if wanted.tag is not None or wanted.lane is not None or wanted.quiet_hours_policy_id is not None:
        return False  # it has none of these
    return (
        wanted.enabled in (None, bool(row["enabled"]))
        and wanted.type in (None, row["type"])
        and wanted.managed_by in (None, row["managed_by"])
        and (wanted.name_contains is None or wanted.name_contains.lower() in str(row["name"]).lower())
    )
