"""Quiet hours that are changed only as they were seen: the store compares in the transaction of the change."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from noonbell.errors import ScheduleChangedError
from tests.schedules.conftest import World

WINDOW: dict[str, Any] = {"weekdays": [1, 2], "from": "22:00", "to": "06:00", "timezone": "UTC"}


@pytest.mark.parametrize("change", ["update", "delete"])
async def test_whoever_is_quicker_is_not_written_over(
    world: World, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    schedules, store = world.schedules, world.store
    seen = await schedules.create_quiet_hours("calm", [WINDOW], policy_id="calm")
    await world.clock.advance(timedelta(seconds=1))
    look = store.schedules.quiet_hours

    async def overtaken(policy_id: str | None = None) -> Any:
        found = await look(policy_id)
        monkeypatch.setattr(store.schedules, "quiet_hours", look)  # the first look alone is overtaken
        await schedules.update_quiet_hours("calm", name="quicker")
        return found

    async def slower() -> None:
        if change == "update":
            await schedules.update_quiet_hours("calm", name="slower", seen=seen)
        else:
            await schedules.delete_quiet_hours("calm", seen=seen)

    monkeypatch.setattr(store.schedules, "quiet_hours", overtaken)
    with pytest.raises(ScheduleChangedError, match='"calm" was changed in the meantime'):
        await slower()
    with pytest.raises(ScheduleChangedError):
        await slower()
    found = await schedules.get_quiet_hours("calm")
    assert found.name == "quicker"
    await schedules.delete_quiet_hours("calm", seen=found)
    assert await schedules.list_quiet_hours() == []
