"""Numbers of lanes on PostgreSQL.

`schedule_state` names the lane of a schedule by its number, so that one index of integers serves all claims. A durable
schedule is on the lane `lane:<lane>`; declared tasks are on a lane of their own, which has the name of their owner.
Numbers are given under the lock that numbers schedules, never changed and never used again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from noonbell.core.presence import lane_name
from noonbell.store.postgres.connection import Connection

# The number of the lane whose key (`lane_key`) is the second parameter; NULL, and so no rows, where no schedule was
# ever on it. The planner takes it for a constant: the index of wake-ups gives the order.
OF_LANE: Final = "(SELECT n.no FROM lane_numbers n WHERE n.name = $2::text)"
# The lane of the live run `l`. A look by key for each run that is asked about: a join may be planned through all
# schedules there are.
OF_LIVE: Final = "(SELECT t.lane_no FROM schedule_state t WHERE t.sid = l.sid)"

_NUMBER: Final = """
    INSERT INTO lane_numbers (no, name)
    SELECT (SELECT coalesce(max(no), 0) FROM lane_numbers) + row_number() OVER (), b.name
    FROM unnest($1::text[]) AS b (name) WHERE NOT EXISTS (SELECT 1 FROM lane_numbers n WHERE n.name = b.name)
"""


def name_of(lane: str | None, managed_by: str) -> str:
    """Return the name of the lane that a schedule is on."""
    return managed_by if lane is None else lane_name(lane)


async def number(db: Connection, names: Iterable[str]) -> None:
    """Give numbers to those of these lanes that have none; the caller holds the lock of NUMBERING."""
    await db.execute(_NUMBER, sorted(set(names)))
