"""`why`: why a task or schedule did, or did not, run at a time.

The ledger is asked in this order, and the first that applies is the answer: was it there then; was it paused, or out
of its bounds; did its spec match that moment; is there a run for it, ended or alive; is there a span that holds it; was
its day pruned; has it been decided at all. The answer is one paragraph, with the facts beside it for programs. Nothing
is decided anew: what the ledger does not say is not said.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final

from noonbell.core.records import DECLARED_OWNERS
from noonbell.errors import NoonbellError, TaskNotFoundError
from noonbell.ledger.case import Answer, Case, zone_of_task
from noonbell.ledger.durable_case import DurableCase
from noonbell.ledger.reading import instant, rows
from noonbell.ports import LEDGER_TABLES, Store

__all__ = ["Answer", "explain", "find_task", "why", "why_schedule", "zone_of_task"]

_MOST_NAMES: Final = 200_000


async def why(
    store: Store, task: str, at: datetime | None = None, *, managed_by: str | None = None, now: int
) -> Answer:
    """Why the task or schedule did or did not run at `at`; without it, the latest occurrence and what comes next.

    A datetime without a zone is a civil time in the zone of the schedule.
    """
    return await explain(store, await find_task(store, task, managed_by), at, now=now)


async def why_schedule(store: Store, sid: int, at: datetime | None = None, *, now: int) -> Answer:
    """As `why`, of the schedule with this number: one look-up, however many there are."""
    found = await store.read_ledger("schedules", (sid - 1,), 1, upto_sid=sid)
    row = dict(zip(LEDGER_TABLES["schedules"].columns, found[0], strict=True))
    return await explain(store, [row], at, now=now)


async def explain(store: Store, lives: list[Mapping[str, Any]], at: datetime | None, *, now: int) -> Answer:
    """The answer about a task whose rows are known."""
    declared = str(lives[-1]["managed_by"]).startswith(DECLARED_OWNERS)
    case = await (Case if declared else DurableCase).build(store, lives, now)
    if at is None:
        return await case.latest()
    if at.tzinfo is not None:
        return await case.at(instant(at))
    return await case.civil(at)


async def find_task(store: Store, task: str, managed_by: str | None = None) -> list[Mapping[str, Any]]:
    """The rows of a task or schedule, by its name or id, oldest first: one for each time that it was created anew."""
    columns = LEDGER_TABLES["schedules"].columns
    name_at, owner_at, id_at = columns.index("name"), columns.index("managed_by"), columns.index("schedule_id")
    found: list[Mapping[str, Any]] = []
    names: set[str] = set()
    durable = False  # whether there are others than declared tasks
    async for page in rows(store, "schedules"):
        for row in page:
            if managed_by not in (None, row[owner_at]):
                continue
            durable = durable or not str(row[owner_at]).startswith(DECLARED_OWNERS)
            if task in (row[name_at], row[id_at]):
                found.append(dict(zip(columns, row, strict=True)))
            elif not found and isinstance(row[name_at], str) and len(names) < _MOST_NAMES:
                names.add(row[name_at])
    if not found:
        near = get_close_matches(task, names, n=5, cutoff=0.6)
        raise TaskNotFoundError(task, near or sorted(names)[:10], "task or schedule" if durable else "task")
    owners = list(dict.fromkeys(row["managed_by"] for row in found))
    if len(owners) > 1:
        listed = " and ".join(map(str, owners))
        what = "Tasks" if all(str(owner).startswith(DECLARED_OWNERS) for owner in owners) else "Tasks or schedules"
        raise NoonbellError(f'{what} named "{task}" belong to {listed}; say which one is meant', owners=owners)
    return found
