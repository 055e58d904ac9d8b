"""why about durable schedules: the very words for every kind and policy, on ledgers that the real Schedules made."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from noonbell.core.instants import instant
from noonbell.ledger import Answer, verify_store, why
from tests.schedules.conftest import IN_EARNEST, World, store_maker
from tests.schedules.patience import calm_duties


@pytest.fixture(autouse=True, scope="module")
def _calm() -> Iterator[None]:
    with calm_duties():
        yield


@pytest.fixture(params=["memory", "sqlite"])
async def noon(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """An hour from 12:00:30 on: a slow run, quiet hours, a pause, a downtime, an edit; stopped at the end."""
    world = World(store_maker(request.param, tmp_path), longest_wait=IN_EARNEST)
    schedules = world.schedules
    await schedules.open()
    window = {"weekdays": list(range(7)), "from": "12:10", "to": "12:15", "timezone": "UTC"}
    calm = (await schedules.create_quiet_hours("calm", [window])).policy_id
    retry = {"attempts": 3, "delay_seconds": 20, "strategy": "fixed"}
    made: dict[str, dict[str, Any]] = {
        "sync": {"quiet_hours_policy_id": calm, "timezone": "Europe/Kyiv"},
        "tick": {"type": "interval", "spec": "50", "overlap": "skip"},
        "capped": {"catch_up_policy": "run_all_capped", "catch_up_cap": 3},
        "once": {"type": "one_shot", "spec": "2026-03-04T12:20:00Z"},
        "jittered": {"spec": "*/5 * * * *", "jitter_seconds": 100, "retry": retry},
        "bounded": {"start_at": "2026-03-04T12:30", "end_at": "2026-03-04T12:40"},
    }
    for name, fields in made.items():
        await world.create(name=name, schedule_id=f"id-{name}", **fields)
    await schedules.start()
    await world.minutes(3)
    world.duration = timedelta(seconds=130)
    await world.minutes(2)
    world.duration = timedelta(0)
    await world.minutes(7)
    await schedules.pause("id-sync")
    await world.minutes(5)
    await schedules.resume("id-sync")
    await world.minutes(5)
    await schedules.stop()
    await world.minutes(30)
    await schedules.start()
    await world.minutes(3)
    await schedules.update("id-sync", spec="1 * * * *")
    await world.minutes(4)
    await schedules.stop()
    yield world
    await world.store.close()


async def ask(world: World, task: str, at: str | None, now: str = "13:02") -> Answer:
    asked = None if at is None else datetime.fromisoformat(f"2026-03-04T{at}")
    moment = datetime.fromisoformat(f"2026-03-04T{now}").replace(tzinfo=UTC)
    answer = await why(world.store, task, asked, now=instant(moment))
    return Answer(re.sub(r"instance [^ ,.)]+", "instance I", answer.text), answer.facts)


LATER = ' Since 14:55:30 it is "1 * * * *" in Europe/Kyiv by api.'
TOLD = [
    (
        "sync",
        "14:05",
        "coalesced",
        (
            "sync did not run by itself for 2026-03-04 14:05 +02:00 (12:05 UTC): it was folded into the run "
            "for 14:06, which started at 14:06:10 on instance I, because a run was in progress (the one for "
            "14:04, from 14:04 to 14:06:10)."
        )
        + LATER,
    ),
    (
        "sync",
        "14:12",
        "skipped",
        (
            "sync did not run for 2026-03-04 14:12 +02:00 (12:12 UTC): it was skipped, with 2 more (14:10 to "
            '14:12), because it lies in the quiet hours of the policy "calm".'
        )
        + LATER,
    ),
    (
        "id-sync",
        "14:14",
        "paused",
        (
            "sync was not due at 2026-03-04 14:14 +02:00 (12:14 UTC), because it was paused: since 2026-03-04"
            " 14:12:30 +02:00 (12:12:30 UTC) by api, until 14:17:30, when it was resumed by api."
        )
        + LATER,
    ),
    (
        "sync",
        "14:30",
        "missed",
        (
            "sync did not run for 2026-03-04 14:30 +02:00 (12:30 UTC): it was missed, with 28 more (14:23 to "
            "14:51), because the scheduler was down from 14:22:30 to 14:52:30, and its catch-up policy is "
            "skip."
        )
        + LATER,
    ),
    (
        "sync",
        "13:00",
        "not there",
        (
            "sync did not run at 2026-03-04 13:00 +02:00 (11:00 UTC), because it did not exist then: it was "
            "created at 2026-03-04 14:00:30 +02:00 (12:00:30 UTC) by api."
        ),
    ),
    (
        "sync",
        "15:01",
        "not decided",
        (
            "sync has not run for 2026-03-04 15:01 +02:00 (13:01 UTC) yet: the scheduler is down since "
            "14:59:30 (instance I stopped). At the next start it will be missed, because its catch-up policy "
            "is skip."
        ),
    ),
    (
        "tick",
        "12:04",
        "skipped",
        (
            "tick did not run for 2026-03-04 12:04:40 UTC: it was skipped, with 1 more (12:04:40 to "
            "12:05:30), because a run was still executing (the one for 12:03:50, from 12:03:50 to 12:06) and "
            "its overlap policy is skip."
        ),
    ),
    (
        "tick",
        "12:06:20",
        "fired",
        ("tick ran for 2026-03-04 12:06:20 UTC: it started at 12:06:20 on instance I and succeeded at 12:06:20."),
    ),
    (
        "tick",
        "12:06:30",
        "no occurrence",
        (
            "tick was not due at 2026-03-04 12:06:30 UTC, because it comes 50 seconds after the start of its "
            "last run; the occurrence before it is 2026-03-04 12:06:20 UTC, the one after it is 2026-03-04 "
            "12:07:10 UTC."
        ),
    ),
    (
        "tick",
        "13:05",
        "due later",
        (
            "tick has 2 occurrences in the minute of 2026-03-04 13:05 UTC: 13:05, 13:05:50. The first: tick is due "
            "at 2026-03-04 13:05 UTC, in 3 min. The scheduler is down since 12:59:30 (instance I stopped); it has to "
            "be up before 13:06."
        ),
    ),
    (
        "capped",
        "12:25",
        "fired",
        (
            "capped ran for 2026-03-04 12:25 UTC: it started at 12:52:30 on instance I, 27 min 30 s after it "
            "was due, and succeeded at 12:52:30. It started late because the scheduler was down from 12:22:30"
            " to 12:52:30."
        ),
    ),
    (
        "capped",
        "12:30",
        "missed",
        (
            "capped did not run for 2026-03-04 12:30 UTC: it was missed, with 25 more (12:26 to 12:51), "
            "because the 3 oldest of all that was missed were caught up, and no more."
        ),
    ),
    (
        "once",
        None,
        "fired",
        (
            "once ran for 2026-03-04 12:20 UTC: it started at 12:20 on instance I and succeeded at 12:20. "
            "Nothing comes next: it was to run once."
        ),
    ),
    (
        "once",
        "12:21",
        "no occurrence",
        ("once was not due at 2026-03-04 12:21 UTC, because it is to run once, at 2026-03-04 12:20 UTC."),
    ),
    (
        "bounded",
        "12:20",
        "no occurrence",
        ("bounded was not due at 2026-03-04 12:20 UTC, because that is before its start, 2026-03-04 12:30 UTC."),
    ),
    (
        "bounded",
        "12:50",
        "no occurrence",
        ("bounded was not due at 2026-03-04 12:50 UTC, because that is after its end, 2026-03-04 12:40 UTC."),
    ),
]


@pytest.mark.parametrize(("task", "at", "verdict", "text"), TOLD, ids=[f"{task} {at}" for task, at, *_ in TOLD])
async def test_every_verdict_has_its_words(noon: World, task: str, at: str | None, verdict: str, text: str) -> None:
    answer = await ask(noon, task, at)
    assert (answer.facts["verdict"], answer.text) == (verdict, text)


async def test_jitter_is_no_lateness(noon: World) -> None:
    answer = await ask(noon, "jittered", "12:10")
    assert answer.facts["jitter_seconds"] > 60
    assert "It started late" not in answer.text
    assert re.search(r" Its jitter puts each start off; this one by 1 min \d+ s\.$", answer.text)


async def test_the_latest_and_the_next(noon: World) -> None:
    answer = await ask(noon, "tick", None)
    assert answer.facts["verdict"] == "not decided"
    assert answer.text.endswith("The next occurrence is 2026-03-04 13:02:30 UTC, in 30 s.")
    assert answer.facts["next"] == "2026-03-04T13:02:30+00:00"


async def test_a_deleted_schedule(noon: World) -> None:
    await noon.schedules.delete("id-capped")
    answer = await ask(noon, "capped", "13:00")
    assert answer.text == (
        "capped did not run at 2026-03-04 13:00 UTC, because it did not exist any more: it was deleted at 2026-03-04 "
        "12:59:30 UTC by api."
    )


async def test_of_a_pruned_day_only_the_counts_are_told(noon: World) -> None:
    end = instant(datetime(2026, 3, 5, tzinfo=UTC))
    assert await noon.store.prune_day(end) is not None
    answer = await ask(noon, "sync", "14:05")
    assert answer.text.startswith(
        "What became of sync at 2026-03-04 14:05 +02:00 (12:05 UTC) is pruned: only the counts of that day are kept."
    )
    assert answer.facts["verdict"] == "pruned"
    answer = await ask(noon, "tick", "12:06:20")
    assert answer.facts["verdict"] == "pruned"
    answer = await ask(noon, "once", None)
    assert answer.facts["fired"] == 1
    assert (await verify_store(noon.store)).clean
