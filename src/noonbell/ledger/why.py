"""`why`: why a task or schedule did, or did not, run at a time.

The first of these that applies is the answer: it did not exist then; it was paused, or out of its bounds; its spec did
not match that moment; a run of that moment has ended or is live; a span holds it; its day was pruned; it has no verdict
yet. The answer is one paragraph, with the facts beside it for programs. Nothing is decided again: an answer holds what
the ledger records, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final

from noonbell.core.instants import instant
from noonbell.errors import NoonbellError, TaskNotFoundError
from noonbell.ledger.explanation import Explanation
from noonbell.ledger.explanation_text import Answer, Times
from noonbell.ledger.ledger_rows import rows
from noonbell.ledger.policies import is_declared
from noonbell.ledger.subject import times_of
from noonbell.ports import LEDGER_TABLES, Ledger

__all__ = ["Answer", "explain", "find_task", "why", "why_schedule", "zone_of_task"]

_MOST_NAMES: Final = 200_000


async def why(
    store: Ledger, task: str, at: datetime | None = None, *, managed_by: str | None = None, now: int
) -> Answer:
    """Explain why the task or schedule did or did not run at `at`; without it, the latest occurrence and the next.

    A datetime without a zone is a civil time in the zone of the schedule.
    """
    return await explain(store, await find_task(store, task, managed_by), at, now=now)


async def why_schedule(store: Ledger, sid: int, at: datetime | None = None, *, now: int) -> Answer:
    """Explain as `why` does, by the number of the schedule: one look-up, however many there are."""
    found = await store.read("schedules", (sid - 1,), 1, upto_sid=sid)
    row = dict(zip(LEDGER_TABLES["schedules"].columns, found[0], strict=True))
    return await explain(store, [row], at, now=now)


async def explain(store: Ledger, found: list[Mapping[str, Any]], at: datetime | None, *, now: int) -> Answer:
    """Explain a schedule whose rows are known."""
    explanation = await Explanation.build(store, found, now)
    if at is None:
        return await explanation.latest()
    if at.tzinfo is not None:
        return await explanation.at(instant(at))
    return await explanation.civil(at)


def zone_of_task(found: list[Mapping[str, Any]]) -> Times:
    """Return how the times of a task are written: in the zone of its latest row."""
    return times_of(found[-1])


async def find_task(store: Ledger, task: str, managed_by: str | None = None) -> list[Mapping[str, Any]]:
    """Return the rows of a task or schedule, by its name or id, oldest first: one for each time it was created."""
    columns = LEDGER_TABLES["schedules"].columns
    name_at, owner_at, id_at = columns.index("name"), columns.index("managed_by"), columns.index("schedule_id")
    found: list[Mapping[str, Any]] = []
    names: set[str] = set()
    created = False  # there are others than declared tasks
    async for page in rows(store, "schedules"):
        for row in page:
            if managed_by not in (None, row[owner_at]):
                continue
            created = created or not is_declared(row[owner_at])
            if task in (row[name_at], row[id_at]):
                found.append(dict(zip(columns, row, strict=True)))
            elif not found and isinstance(row[name_at], str) and len(names) < _MOST_NAMES:
                names.add(row[name_at])
    if not found:
        near = get_close_matches(task, names, n=5, cutoff=0.6)
        raise TaskNotFoundError(task, near or sorted(names)[:10], "task or schedule" if created else "task")
    owners = list(dict.fromkeys(row["managed_by"] for row in found))
    if len(owners) > 1:
        listed = " and ".join(map(str, owners))
        what = "Tasks" if all(map(is_declared, owners)) else "Tasks or schedules"
        raise NoonbellError(f'{what} named "{task}" belong to {listed}; choose one of these owners', owners=owners)
    return found
