"""New zone data: schedules follow it from their cursor on, what moved is told, and older data undoes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from noonbell.errors import ScheduleInvalidError
from noonbell.ledger import verify_store
from noonbell.ledger.ledger_rows import stored_zone_rules
from noonbell.schedules import zone_rules
from tests.schedules.conftest import World
from tests.schedules.zone_files import TOWN, ZoneFolder, compiled, zone_folder

EAST_2, EAST_3 = "XXX-2", "YYY-3"
LEAP_AT_15 = "XXX-2YYY,M3.1.3/15,M10.5.0/3"  # on 4 March 2026 from 15:00 to 16:00, at 13:00 in UTC
CHANGED = "schedule.zone_rules_changed"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[ZoneFolder]:
    path = tmp_path / "zoneinfo"
    path.mkdir()
    with zone_folder(path) as made:
        made.put(EAST_2, "2026a")
        yield made


async def restart(world: World) -> None:
    """Another process: it has read nothing of the zone yet."""
    await world.crash()
    ZoneInfo.clear_cache()
    zone_rules._read.clear()
    await world.schedules.start()


def micros(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


async def test_a_schedule_follows_new_rules_and_tells_what_moves(world: World, folder: ZoneFolder) -> None:
    key = await world.create(spec="0 15,16 * * *", timezone=TOWN)
    await world.schedules.start()
    assert (await world.schedules.get(key)).next_run_at == datetime(2026, 3, 4, 13, tzinfo=UTC)
    await world.minutes(65)
    assert world.called == ["13:00"]
    folder.put("YYY-2:30", "2026b")
    await restart(world)
    earlier = datetime(2026, 3, 4, 13, 30, tzinfo=UTC)
    assert (await world.schedules.get(key)).next_run_at == earlier
    (told,) = await world.audits(key, CHANGED)
    assert (told["timezone"], told["before"], told["after"]) == (TOWN, "2026a", "2026b")
    assert 2 * 365 <= told["moved"] <= 2 * 367
    assert len(told["fires"]) == 10
    assert told["fires"][0] == {"before": micros(earlier + timedelta(minutes=30)), "after": micros(earlier)}
    await world.minutes(30)
    assert await world.told(key) == [("13:00", "fired"), ("13:30", "fired")]
    epochs = await world.store.history.epochs(1)
    assert [epoch.epoch for epoch in epochs] == [1, 2]
    assert epochs[1].from_at == micros(datetime(2026, 3, 4, 13, tzinfo=UTC)), "it begins at the cursor"
    assert (await verify_store(world.store)).problems == []


async def test_what_came_by_new_rules_while_nothing_was_up_is_caught_up(world: World, folder: ZoneFolder) -> None:
    key = await world.create(spec="0 15 * * *", timezone=TOWN, catch_up_policy="run_once")
    await world.schedules.start()
    await world.crash()
    await world.minutes(150)
    folder.put("ZZZ-1", "2026b")  # by the old rules 13:00 was missed, by these 14:00
    await restart(world)
    await world.minutes(1)
    assert world.called == ["14:00"]
    assert await world.told(key) == [("14:00", "fired")]


async def test_the_same_rules_in_other_bytes_are_no_change(world: World, folder: ZoneFolder) -> None:
    key = await world.create(spec="0 15 * * *", timezone=TOWN)
    await world.schedules.start()
    folder.put(EAST_2, "2026b", padding=4)
    await restart(world)
    assert (await world.schedules.get(key)).epoch == 1
    assert await world.audits(key, CHANGED) == []
    known = zone_rules.Rules.read((await stored_zone_rules(world.store))[TOWN])
    assert (known.version, known.data) == ("2026b", compiled(EAST_2, padding=4))


async def test_a_running_engine_notices_within_the_hour(world: World, folder: ZoneFolder) -> None:
    key = await world.create(spec="30 16 * * *", timezone=TOWN)
    await world.schedules.start()
    await world.minutes(5)
    folder.put(EAST_3, "2026b")
    await world.minutes(56)
    assert (await world.schedules.get(key)).next_run_at == datetime(2026, 3, 4, 13, 30, tzinfo=UTC)
    await world.minutes(30)
    assert world.called == ["13:30"]


async def test_older_zone_data_undoes_nothing(
    world: World, folder: ZoneFolder, caplog: pytest.LogCaptureFixture
) -> None:
    folder.put(EAST_3, "2026b")
    key = await world.create(spec="0 16 * * *", timezone=TOWN)
    other = await world.create(type="interval", spec="600", timezone=TOWN)
    await world.schedules.start()
    folder.put(EAST_2, "2026a")
    await restart(world)
    assert "older than what schedules were computed with" in caplog.text
    assert TOWN in caplog.text
    await world.minutes(60)
    assert {call.schedule_id for call in world.calls} == {other}, "an interval has no civil time"
    assert (await world.schedules.get(key)).epoch == 1
    folder.put(EAST_3, "2026b")
    await world.minutes(75)  # noticed within the hour; what came meanwhile was late, not missed
    assert await world.told(key) == [("13:00", "fired")]
    assert await world.audits(key, CHANGED) == []


async def test_what_has_no_civil_time_or_does_not_move_is_told_so(world: World, folder: ZoneFolder) -> None:
    interval = await world.create(type="interval", spec="600", timezone=TOWN)
    minutely = await world.create(timezone=TOWN)
    one_shot = await world.create(type="one_shot", spec="2026-03-04T20:00:00", timezone=TOWN)
    paused = await world.create(spec="0 15 * * *", timezone=TOWN, enabled=False)
    elsewhere = await world.create(spec="0 15 * * *", timezone="Asia/Tokyo")
    await world.schedules.start()
    folder.put(EAST_3, "2026b")
    await restart(world)
    assert await world.audits(interval, CHANGED) == await world.audits(elsewhere, CHANGED) == []
    assert [told["moved"] for told in await world.audits(minutely, CHANGED)] == [0]
    (told,) = await world.audits(one_shot, CHANGED)
    before, after = datetime(2026, 3, 4, 18, tzinfo=UTC), datetime(2026, 3, 4, 17, tzinfo=UTC)
    assert told["fires"] == [{"before": micros(before), "after": micros(after)}]
    stopped = await world.schedules.get(paused)
    assert (stopped.enabled, stopped.epoch, stopped.next_run_at) == (False, 2, None)


async def test_a_one_shot_whose_instant_is_over_by_the_new_rules_is_told(world: World, folder: ZoneFolder) -> None:
    key = await world.create(type="one_shot", spec="2026-03-04T14:30:00", timezone=TOWN)
    folder.put("ZZZ-4", "2026b")
    ZoneInfo.clear_cache()
    await world.schedules.start()
    gone = await world.schedules.get(key)
    assert (gone.enabled, gone.next_run_at) == (False, None)
    (told,) = await world.audits(key, CHANGED)
    assert "its instant is over" in told["reason"]
    assert (await world.schedules.update(key, spec="2026-03-04T18:00")).enabled


async def test_a_one_shot_that_has_had_its_time_by_the_old_rules_has_had_it(world: World, folder: ZoneFolder) -> None:
    key = await world.create(type="one_shot", spec="2026-03-04T14:05", timezone=TOWN)
    paused = await world.create(type="one_shot", spec="2026-03-04T14:05", timezone=TOWN, enabled=False)
    await world.schedules.start()
    await world.minutes(10)
    assert await world.told(key) == [("12:05", "fired")]
    folder.put(EAST_3, "2026b")
    await restart(world)
    assert (await world.schedules.update(key, spec="2026-03-04T18:00")).enabled
    assert not (await world.schedules.update(paused, spec="2026-03-04T18:00")).enabled


async def test_a_one_shot_that_the_new_rules_leap_over_comes_with_the_leap(world: World, folder: ZoneFolder) -> None:
    key = await world.create(type="one_shot", spec="2026-03-04T15:30", timezone=TOWN)
    paused = await world.create(type="one_shot", spec="2026-03-04T15:30", timezone=TOWN, enabled=False)
    cron = await world.create(spec="0 17 * * *", timezone=TOWN)
    await world.schedules.start()
    folder.put(LEAP_AT_15, "2026b")
    await restart(world)
    leap = datetime(2026, 3, 4, 13, tzinfo=UTC)
    assert (await world.schedules.get(key)).next_run_at == leap
    (told,) = await world.audits(key, CHANGED)
    assert told["fires"] == [{"before": micros(leap + timedelta(minutes=30)), "after": micros(leap)}]
    await world.minutes(125)
    assert await world.told(key) == [("13:00", "fired")]
    assert await world.told(paused) == []
    assert await world.told(cron) == [("14:00", "fired")]
    assert (await verify_store(world.store)).problems == []


async def test_a_one_shot_that_is_leapt_over_can_be_seen_and_changed(world: World, folder: ZoneFolder) -> None:
    spec = "2026-03-04T15:30"
    key = await world.create(type="one_shot", spec=spec, timezone=TOWN)
    folder.put(LEAP_AT_15, "2026b")
    ZoneInfo.clear_cache()
    (coming,) = await world.schedules.preview(key)
    assert coming.scheduled_for == datetime(2026, 3, 4, 13, tzinfo=UTC)
    assert not (await world.schedules.pause(key)).enabled
    assert (await world.schedules.update(key, tags=["late"])).tags == ("late",)
    for typed in ({"spec": spec}, {"timezone": TOWN}):
        with pytest.raises(ScheduleInvalidError, match="does not exist in Test/Town"):
            await world.schedules.update(key, **typed)  # type: ignore[arg-type]  # two of its fields
    assert (await world.schedules.update(key, spec="2026-03-04T16:30")).spec == "2026-03-04T16:30"
    await world.schedules.delete(key)


async def test_one_that_cannot_be_read_by_the_new_rules_is_passed_over(
    world: World, folder: ZoneFolder, caplog: pytest.LogCaptureFixture
) -> None:
    last = await world.create(type="one_shot", spec="9999-12-31T23:30", timezone=TOWN, name="the last hour")
    cron = await world.create(spec="0 15 * * *", timezone=TOWN)
    folder.put("ZZZ+3", "2026b")  # by these it lies beyond the calendar
    await restart(world)
    assert "'the last hour' cannot be read by the new rules" in caplog.text
    assert (await world.schedules.get(last)).epoch == 1
    assert (await world.schedules.get(cron)).next_run_at == datetime(2026, 3, 4, 18, tzinfo=UTC)


async def test_a_zone_that_is_gone_from_the_host_is_told(
    world: World, folder: ZoneFolder, caplog: pytest.LogCaptureFixture
) -> None:
    await world.create(spec="0 15 * * *", timezone=TOWN)
    (folder.path / TOWN).unlink()
    await world.schedules.start()
    assert f"no rules for {TOWN}" in caplog.text
