"""Names that several modules share: the two tables of a schedule together, and the numbers of lanes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import apsw
import msgspec

_encode = msgspec.json.Encoder().encode

# Both rows of a schedule, for reads; the names of columns are unique but for `sid`. The definition is read first, and
# a schedule whose state is lost still shows.
SCHEDULES: Final = "schedule_definitions LEFT JOIN schedule_state USING (sid)"
# The number of a lane by its bound key (`lane_key`); NULL if it has none yet.
LANE_NO: Final = "(SELECT no FROM lane_numbers WHERE name = {lane})"


def lane_numbers(db: apsw.Connection, names: Iterable[str]) -> dict[str, int]:
    """The numbers of lanes by name; one that has none yet is given the next."""
    wanted = (_encode(sorted(set(names))).decode(),)
    db.execute(
        "INSERT INTO lane_numbers (name) SELECT value FROM json_each(?) WHERE true ON CONFLICT (name) DO NOTHING",
        wanted,
    )
    sql = "SELECT n.name, n.no FROM json_each(?) b CROSS JOIN lane_numbers n ON n.name = b.value"
    return {str(row[0]): int(row[1]) for row in db.execute(sql, wanted)}
