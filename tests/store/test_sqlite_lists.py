"""Pages of schedules on SQLite: none of them sorts or walks through a whole table where an index can tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

from noonbell import Schedules
from noonbell.ports import ScheduleFilter
from noonbell.schedules import Fields
from noonbell.store.sqlite import SqliteStore, declaring, stored

BY_TEAM = "SEARCH d USING INDEX idx_schedules_team (team=? AND rowid>?)"
BY_TYPE = "SEARCH d USING INDEX idx_schedules_type (team=? AND type=? AND rowid>?)"
BY_TAG = "SEARCH t USING PRIMARY KEY (tag=? AND team=? AND sid>?); SEARCH d USING INTEGER PRIMARY KEY (rowid=?)"
DISABLED = "SEARCH s USING COVERING INDEX idx_schedules_disabled (sid>?); SEARCH d USING INTEGER PRIMARY KEY (rowid=?)"
OF_OTHER_TEAM = f"{BY_TEAM}; SEARCH s USING COVERING INDEX idx_schedules_disabled (sid=? AND rowid=?)"
ACTION = {"kind": "http", "url": "https://example.org/"}


class Planning:
    """A connection that keeps the plan of what it is asked to list."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self.plans: list[str] = []

    def execute(self, sql: str, bindings: tuple[Any, ...] = ()) -> Any:
        if sql.startswith("SELECT d.sid"):
            told = self._db.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)
            self.plans.append("; ".join(str(row[3]) for row in told))
        return self._db.execute(sql, bindings)


@pytest.mark.parametrize(
    ("wanted", "plan"),
    [
        ({"team": "default"}, BY_TEAM),
        ({"team": "default", "enabled": False}, DISABLED),
        ({"enabled": False}, DISABLED),
        ({"team": "other", "enabled": False}, OF_OTHER_TEAM),
        ({"team": "default", "type": "cron"}, BY_TEAM),
        ({"team": "default", "type": "interval"}, BY_TYPE),
        ({"team": "default", "tag": "x"}, BY_TAG),
        ({"team": "default", "tag": "x", "type": "interval"}, BY_TAG),
        ({}, "SEARCH d USING INTEGER PRIMARY KEY (rowid>?)"),
    ],
)
async def test_a_page_goes_along_an_index(tmp_path: Path, wanted: dict[str, Any], plan: str) -> None:
    store = SqliteStore(tmp_path / "lists.db", threaded=False)
    async with Schedules(store) as schedules:
        await schedules.create(name="one", type="cron", spec="0 9 * * *", action=ACTION, tags=["x"])
        found = await store._connection.run(lambda db: _planned(db, ScheduleFilter(**wanted)))
    assert found == [plan]


def _planned(db: apsw.Connection, wanted: ScheduleFilter) -> list[str]:
    planning: Any = Planning(db)
    stored.page(planning, wanted, 0, 50)
    plans: list[str] = planning.plans
    return plans


async def test_what_is_far_away_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_NEAR", 3)
    async with Schedules(f"sqlite:///{tmp_path / 'lists.db'}") as schedules:
        fields: list[Fields] = [
            {"name": f"n{number}", "type": "cron", "spec": "0 9 * * *", "action": ACTION} for number in range(20)
        ]
        await schedules.create_many(fields)
        await schedules.update((await schedules.list(name_contains="n18")).items[0].schedule_id, enabled=False)
        found: list[str] = []
        cursor = None
        while True:
            page = await schedules.list(name_contains="n1", cursor=cursor, limit=2)
            found += [one.name for one in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == ["n1", *(f"n{number}" for number in range(10, 20))]
        far = await schedules.list(name_contains="n1", enabled=True, limit=50)
        assert [one.name for one in far.items] == [name for name in found if name != "n18"]
        assert (await schedules.list(managed_by="file:x")).items == []


async def test_declared_tasks_are_found_by_their_owners(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "lists.db", threaded=False)
    await store.open()

    def planned(db: apsw.Connection) -> list[str]:
        return [str(row[3]) for row in db.execute(f"EXPLAIN QUERY PLAN {declaring.OF_ALL_OWNERS}")]

    found = await store._connection.run(planned)
    await store.close()
    assert "SEARCH schedule_definitions USING INDEX idx_schedules_name (managed_by=?)" in found
    assert not [step for step in found if step.startswith("SCAN")]
