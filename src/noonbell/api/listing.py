"""A page of schedules, durable and declared, in the order of their creation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from noonbell.api.models.base import PageOf
from noonbell.api.models.schedules import ScheduleResponse
from noonbell.api.schedule_presenter import schedule_response
from noonbell.ports import Ledger, ScheduleFilter
from noonbell.schedules.declared_tasks import page_with_declared


async def schedule_page(
    store: Ledger,
    declared: Sequence[Mapping[str, Any]],
    wanted: ScheduleFilter,
    after: int,
    limit: int,
    *,
    now: int,
) -> PageOf[ScheduleResponse]:
    """Return up to `limit` schedules after the number `after`; `declared` are all declared ones, by number."""
    found = await page_with_declared(store, declared, wanted, after, limit, now=now)
    return PageOf(items=[schedule_response(one) for one in found.items], next_cursor=found.next_cursor)
