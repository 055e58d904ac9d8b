"""Reads of a whole store for pages: the newest audit events, and a sample of schedules."""

from __future__ import annotations

from datetime import timedelta

from noonbell.ports import AuditFilter
from noonbell.store.sampling import BLOCK, _starts
from tests.schedules.conftest import ACTION, World


async def test_the_newest_events_come_first_and_go_on_where_a_page_ended(world: World) -> None:
    ids = [await world.create(name=f"s{number}") for number in range(5)]
    found = await world.store.audit.page(AuditFilter(event="schedule.created"), None, 3, newest_first=True)
    assert [event.subject for _, event in found] == ids[:1:-1]
    rest = await world.store.audit.page(AuditFilter(event="schedule.created"), found[-1][0], 10, newest_first=True)
    assert [event.subject for _, event in rest] == ids[1::-1]
    # the same rows as the audit that goes forward
    forward = await world.store.audit.page(AuditFilter(), 0, 100)
    assert await world.store.audit.page(AuditFilter(), None, 100, newest_first=True) == forward[::-1]


async def test_every_filter_of_the_audit_counts(world: World) -> None:
    first = await world.create(name="first", team="blue")
    await world.minutes(1)
    await world.schedules.acting("ann", "default").create(
        name="second", type="cron", spec="* * * * *", action=ACTION, schedule_id="second"
    )
    now = world.clock.now()

    async def subjects(wanted: AuditFilter) -> list[str]:
        return [event.subject for _, event in await world.store.audit.page(wanted, None, 10, newest_first=True)]

    assert await subjects(AuditFilter(subject=first)) == [first]
    assert await subjects(AuditFilter(actor="ann")) == ["second"]
    assert await subjects(AuditFilter(team="blue")) == [first]
    assert await subjects(AuditFilter(team="default", event="schedule.created")) == ["second"]
    assert await subjects(AuditFilter(from_at=now)) == ["second"]
    assert await subjects(AuditFilter(to_at=now - timedelta(seconds=30) // timedelta(microseconds=1))) == [first]


async def test_few_schedules_are_taken_whole(world: World) -> None:
    assert await world.store.schedules.sample(10) == ([], 0)
    ids = [await world.create(name=f"s{number}") for number in range(4)]
    await world.schedules.pause(ids[1])
    await world.schedules.delete(ids[2])
    sample = await world.store.schedules.sample(10)
    assert [one.schedule_id for one in sample.schedules] == [ids[0], ids[3]]
    assert sample.total == 2
    assert sample.whole


async def test_of_many_about_as_many_are_taken_as_were_asked_for(world: World) -> None:
    fields = {"type": "cron", "spec": "* * * * *", "action": ACTION}
    await world.schedules.create_many([{"name": f"s{number}", **fields} for number in range(400)])  # type: ignore[typeddict-item]  # checked there
    sample = await world.store.schedules.sample(100)
    assert sample.total == 400
    assert not sample.whole
    assert 60 <= len(sample.schedules) <= 100
    assert len({one.sid for one in sample.schedules}) == len(sample.schedules)
    assert await world.store.schedules.sample(100) == sample  # the same for the same store


def test_a_sample_reaches_over_all_of_the_store() -> None:
    starts = _starts(2_000, 1, 1_000_000)
    assert len(starts) == 2_000 // BLOCK
    assert starts == sorted(starts)
    assert starts[0] < 10_000
    assert starts[-1] > 990_000
    assert len({start % 60 for start in starts}) > 30  # no rhythm in the order of creation is taken for the whole
