"""`unchanged_since`: changes that are made only to what was seen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noonbell.errors import ScheduleChangedError, ScheduleViewError
from noonbell.schedules import Call, Schedules
from noonbell.store.memory import MemoryStore

FIELDS: dict[str, Any] = {"type": "cron", "spec": "0 9 * * *", "action": {"kind": "callback", "name": "report"}}


@pytest.fixture(params=["memory", "sqlite"])
async def schedules(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Schedules]:
    store = MemoryStore() if request.param == "memory" else f"sqlite:///{tmp_path / 'ledger.db'}"
    async with Schedules(store) as schedules:
        yield schedules


async def test_what_is_as_it_was_seen_is_changed_once(schedules: Schedules) -> None:
    seen = await schedules.create(**FIELDS, schedule_id="one")
    view = schedules.unchanged_since(seen)
    assert (await view.update("one", name="mine")).name == "mine"
    with pytest.raises(ScheduleChangedError) as caught:
        await view.update("one", name="mine again")
    assert caught.value.schedule_id == "one"
    with pytest.raises(ScheduleChangedError):
        await view.delete("one")
    with pytest.raises(ScheduleChangedError):
        await view.pause("one")
    assert (await schedules.get("one")).name == "mine"


async def test_it_is_still_for_somebody_of_a_team(schedules: Schedules) -> None:
    seen = await schedules.create(**FIELDS, schedule_id="one", team="ours")
    view = schedules.acting("ann", "ours").unchanged_since(seen)
    await view.update("one", name="hers")
    events = (await schedules.audit(subject="one", event="schedule.updated")).items
    assert [event.actor for event in events] == ["ann"]
    with pytest.raises(ScheduleViewError):
        await view.start()


async def test_runs_are_no_change(schedules: Schedules) -> None:
    async def report(call: Call) -> None: ...

    schedules.register("report", report)
    seen = await schedules.create(**FIELDS, schedule_id="one")
    await schedules.trigger("one")
    assert (await schedules.unchanged_since(seen).update("one", name="still")).name == "still"
