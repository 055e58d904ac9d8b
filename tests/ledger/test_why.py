"""why: the very words of each answer, on ledgers that the store's own verbs have made."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from noonbell.errors import NoonbellError, TaskNotFoundError
from noonbell.ledger import Answer, verify_store, why
from noonbell.ports import Ledger
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from tests.ledger.answers import DST, NIGHT, PLAIN, Question
from tests.ledger.history import History, eventful, us

TASKS = {"sync": "* * * * *", "hourly": "0,30 * * * *", "gone": "0 * * * *"}


async def ask(store: Ledger, task: str, at: str | None, now: str) -> Answer:
    return await why(store, task, None if at is None else datetime.fromisoformat(at), now=us(now))


async def check(store: Ledger, stage: str, questions: list[Question]) -> None:
    """Every question of a stage, with its answer."""
    asked = [question for question in questions if question.stage == stage]
    assert asked
    for question in asked:
        answer = await ask(store, question.task, question.at, question.now)
        assert (answer.facts["verdict"], answer.text) == (question.verdict, question.text)


async def test_a_night_with_everything_in_it(store: Ledger) -> None:
    history = await eventful(store, holds=True)
    await check(store, "up", NIGHT)
    await history.stop("2026-11-15T01:40:00")
    await check(store, "stopped", NIGHT)
    await history.start("2026-11-15T02:00:10", TASKS, instance="four")
    await check(store, "back", NIGHT)
    starts = await history.claim("2026-11-15T02:00:11")
    await check(store, "claimed", NIGHT)
    await history.start("2026-11-15T02:10:10", TASKS, instance="five", crashed=True)
    await check(store, "restarted", NIGHT)
    assert len(starts) == 3
    assert (await verify_store(store)).clean


async def test_clock_changes(store: Ledger) -> None:
    history = History(store, "America/New_York")
    await history.start("2026-03-07T12:00:00", {"night": "30 1,2 * * *"})
    await history.run_each("2026-03-07T12:00:00", "2026-03-08T12:00:00", timedelta(minutes=10))
    await history.run_each("2026-10-31T12:00:00", "2026-11-01T12:00:00", timedelta(minutes=10))
    await check(store, "after", DST)


async def test_crashes_sleep_and_people(store: Ledger) -> None:
    tasks = {"half": "0,30 * * * *", "minutely": "* * * * *"}
    history = History(store, holds=True)
    await history.start("2026-11-15T00:00:30", tasks)
    await check(store, "new", PLAIN)
    await history.run("2026-11-15T00:00:31")
    start = await store.runs.trigger(1, "one", us("2026-11-15T00:10:10"))
    assert start is not None
    await history.settle([start], "2026-11-15T00:10:20")
    await history.start("2026-11-15T00:45:00", tasks, instance="two", crashed=True)
    await history.run("2026-11-15T00:45:01")
    await history.run("2026-11-15T03:00:00")
    await check(store, "later", PLAIN)
    await history.start(
        "2026-11-15T03:10:00", {"half": "15 * * * *", "minutely": "* * * * *"}, instance="three", crashed=True
    )
    await check(store, "edited", PLAIN)
    claimed = await history.claim("2026-11-15T03:11:00")
    await store.runs.hand_back(claimed, "three", us("2026-11-15T03:11:01"))
    await check(store, "handed back", PLAIN)


async def test_a_task_that_was_never_due() -> None:
    store = MemoryStore()
    await store.open()
    history = History(store)
    await history.start("2026-11-15T00:00:30", {"yearly": "0 0 1 1 *"})
    answer = await ask(store, "yearly", None, "2026-11-15T00:01:00")
    assert answer.text == (
        "yearly has not been due since it was registered at 2026-11-15 00:00:30 UTC. The next occurrence is 2027-01-01 "
        "00:00 UTC, in 46 d 23 h."
    )
    assert answer.facts["verdict"] == "not due yet"
    assert answer.facts["next"] == "2027-01-01T00:00:00+00:00"


async def test_a_removed_task_abandons_its_run(store: Ledger) -> None:
    history = History(store)
    await history.start("2026-11-15T00:00:00", {"slow": "0 * * * *"})
    await history.claim("2026-11-15T00:00:00")
    await history.start("2026-11-15T00:30:00", {}, instance="two", crashed=True)
    answer = await ask(store, "slow", "2026-11-15T00:00", "2026-11-15T00:31:00")
    assert answer.text == (
        "slow ran for 2026-11-15 00:00 UTC: it started at 00:00 on instance one and was abandoned at 00:30. It was "
        "given up because the task was removed."
    )
    assert answer.facts["outcome"] == "abandoned"


async def test_many_attempts_are_told_by_the_last_of_them(store: Ledger) -> None:
    history = History(store)
    await history.start("2026-11-15T00:00:00", {"flaky": "0 0 * * *"})
    for minute in range(8):
        starts = await history.claim(f"2026-11-15T00:{minute:02}:00")
        await history.settle(starts, f"2026-11-15T00:{minute:02}:01", f"E{minute}", f"2026-11-15T00:{minute + 1:02}:00")
    await history.settle(await history.claim("2026-11-15T00:08:00"), "2026-11-15T00:08:01")
    answer = await ask(store, "flaky", "2026-11-15T00:00", "2026-11-15T00:31:00")
    assert answer.text == (
        "flaky ran for 2026-11-15 00:00 UTC: it started at 00:00 and succeeded at 00:08:01, after 9 attempts. The last "
        "5: 5 (00:04, instance one) failed with E4; 6 (00:05, instance one) failed with E5; 7 (00:06, instance one) "
        "failed with E6; 8 (00:07, instance one) failed with E7; 9 (00:08, instance one) as a retry succeeded."
    )
    assert answer.facts["errors"] == [f"E{minute}" for minute in range(8)]


async def test_a_lost_verdict_is_admitted(night: SqliteStore) -> None:
    import apsw

    db = apsw.Connection(str(night.path))
    db.execute("DELETE FROM runs WHERE sid = 1 AND run_for = ?", (us("2026-11-15T00:10:00"),))
    db.close()
    answer = await ask(night, "sync", "2026-11-15T02:10", "2026-11-15T01:22:30")
    assert answer.text == (
        "The ledger has no verdict on sync at 2026-11-15 02:10 +02:00 (00:10 UTC), though it should; run noonbell "
        "verify for details."
    )
    assert answer.facts["verdict"] == "lost"


async def test_the_facts_are_there_for_programs(night: SqliteStore) -> None:
    answer = await ask(night, "sync", "2026-11-15T03:12", "2026-11-15T01:22:30")
    assert answer.facts == {
        "task": "sync",
        "schedule_id": "scheduler:default-sync-1794700830000000",
        "name": "sync",
        "type": "cron",
        "managed_by": "scheduler:default",
        "time_zone": "Europe/Kyiv",
        "asked": "2026-11-15T01:12:00+00:00",
        "spec": "* * * * *",
        "epoch": 1,
        "verdict": "coalesced",
        "reason": "one run for all that was due",
        "span": {"from": "2026-11-15T01:11:00+00:00", "to": "2026-11-15T01:12:00+00:00", "n": 2},
        "into": "2026-11-15T01:13:00+00:00",
        "because": "a run was in progress (the one for 03:10, from 03:10:21 to 03:13:11)",
    }


async def test_an_unknown_task_is_answered_with_near_names(night: SqliteStore) -> None:
    with pytest.raises(TaskNotFoundError, match='No task named "hourli"; known: hourly') as caught:
        await ask(night, "hourli", None, "2026-11-15T01:22:30")
    assert caught.value.details["known"] == ["hourly"]
    with pytest.raises(TaskNotFoundError, match="known: gone, hourly, sync"):
        await ask(night, "something else", None, "2026-11-15T01:22:30")


async def test_a_name_that_two_schedulers_have_wants_a_scheduler(night: SqliteStore) -> None:
    other = History(night, owner="scheduler:other")
    await other.start("2026-11-15T00:00:00", {"sync": "0 * * * *"})
    with pytest.raises(NoonbellError, match="belong to scheduler:default and scheduler:other"):
        await ask(night, "sync", None, "2026-11-15T01:22:30")
    answer = await why(night, "sync", managed_by="scheduler:other", now=us("2026-11-15T00:00:10"))
    assert answer.facts["managed_by"] == "scheduler:other"


async def test_a_zone_that_is_utc_by_another_name_is_said_once(store: Ledger) -> None:
    history = History(store, "Etc/UTC")
    await history.start("2026-11-15T00:00:00", {"sync": "* * * * *"})
    await history.run("2026-11-15T00:00:00")
    answer = await ask(store, "sync", "2026-11-15T00:00", "2026-11-15T00:00:10")
    assert (
        answer.text
        == "sync ran for 2026-11-15 00:00 UTC: it started at 00:00 on instance one and succeeded at 00:00:02."
    )


async def test_a_dormant_task_says_so(store: Ledger) -> None:
    history = History(store, holds=True)
    await history.start("2026-11-15T00:00:00", {"sync": "0 * * * *"})
    await history.run("2026-11-15T00:00:00")
    await history.park("2026-11-15T00:30:00", "sync")
    answer = await ask(store, "sync", None, "2026-11-15T02:00:10")
    assert answer.text == (
        "sync ran for 2026-11-15 00:00 UTC: it started at 00:00 on instance one and succeeded at 00:00:02. Nothing "
        "comes next: it has not been scheduled again."
    )
    answer = await ask(store, "sync", "2026-11-15T01:00", "2026-11-15T02:00:10")
    assert answer.text == (
        "sync has not run for 2026-11-15 01:00 UTC yet: the task has not been scheduled again since the last start."
    )
    assert answer.facts["verdict"] == "not decided"


async def test_what_is_due_behind_a_run_that_starts_again_is_part_of_it(store: Ledger) -> None:
    history = History(store, holds=True)
    await history.start("2026-11-15T00:00:00", {"sync": "0 * * * *"})
    await history.claim("2026-11-15T00:00:00")
    await history.start("2026-11-15T01:00:10", {"sync": "0 * * * *"}, instance="two", crashed=True)
    answer = await ask(store, "sync", "2026-11-15T01:00", "2026-11-15T01:00:20")
    assert answer.text == (
        "sync has not run for 2026-11-15 01:00 UTC yet: the run for 00:00 is about to start. When it starts, it "
        "answers for all that is due by then."
    )
