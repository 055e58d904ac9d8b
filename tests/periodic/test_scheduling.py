"""Adding and removing tasks, the poller's life, and what is refused."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from noonbell import periodic
from noonbell.errors import (
    CronExpressionInvalidError,
    NegativeRetryDelayError,
    NoonbellError,
    RegistrationShapeError,
    ScheduleDuplicateTaskError,
    ScheduleFrequencyError,
    ScheduleInvalidNameError,
    SchedulerInUseError,
)
from noonbell.ledger import verify_store
from noonbell.ledger.ledger_rows import declared_tasks, schedule_rows
from noonbell.periodic import Capabilities
from noonbell.ports import RunFilter
from tests.patience import PATIENCE_SECONDS

from .conftest import FIVE, HOUR, MINUTE, Bench


async def test_a_task_runs_at_its_occurrences(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("sync", "0 * * * *", bench.task("sync"), FIVE)
    await bench.clock.advance(3 * HOUR)
    assert bench.times("sync") == ["10:00:00", "11:00:00", "12:00:00"]
    assert (await verify_store(bench.store)).problems == []


async def test_a_new_task_is_due_at_once_only_if_this_minute_matches(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("now", "50 * * * *", bench.task("now"), FIVE)
    await cron.schedule("just missed", "49 * * * *", bench.task("just missed"), FIVE)
    await bench.clock.advance(MINUTE)
    assert bench.calls == [("now", "09:50:30")]


async def test_a_plain_function_runs_in_a_thread(bench: Bench) -> None:
    ran = asyncio.Event()
    loop = asyncio.get_running_loop()
    cron = bench.make()
    await cron.schedule("plain", "50 * * * *", lambda: loop.call_soon_threadsafe(ran.set), FIVE)
    await asyncio.wait_for(ran.wait(), PATIENCE_SECONDS)
    await cron.close()
    assert bench.told_of("plain") == ["TaskRunStarted", "TaskRunCompleted"]


async def test_the_poller_starts_with_the_first_task_and_stops_with_the_last(bench: Bench) -> None:
    cron = bench.make()
    assert bench.told() == []
    await cron.schedule("a", "0 * * * *", bench.task("a"), FIVE)
    await cron.schedule("b", "0 * * * *", bench.task("b"), FIVE)
    assert bench.told() == ["PollingStarted"]
    assert await cron.cancel("a")
    assert bench.told() == ["PollingStarted"]
    assert await cron.cancel("b")
    assert bench.told() == ["PollingStarted", "PollingStopRequested", "PollingStopped"]
    assert "noonbell-engine" not in {task.get_name() for task in asyncio.all_tasks()}
    await cron.schedule("c", "0 * * * *", bench.task("c"), FIVE)
    assert bench.told()[3:] == ["PollingStarted"]
    await bench.clock.advance(HOUR)
    assert bench.calls == [("c", "10:00:00")]


async def test_polling_looks_no_less_often_than_asked(bench: Bench) -> None:
    cron = bench.make(poll_interval=timedelta(minutes=10))
    await cron.schedule("yearly", "0 0 1 1 *", bench.task("yearly"), FIVE)
    await bench.clock.settle()
    assert bench.clock.next_in == timedelta(minutes=10)


async def test_cancel_tells_whether_there_was_such_a_task(bench: Bench) -> None:
    cron = bench.make()
    assert await cron.cancel("a") is False
    await cron.schedule("a", "0 * * * *", bench.task("a"), FIVE)
    assert await cron.cancel("b") is False
    assert await cron.cancel("a") is True
    assert await cron.cancel("a") is False
    await bench.clock.advance(2 * HOUR)
    assert bench.calls == []


async def test_cancel_all_counts(bench: Bench) -> None:
    cron = bench.make()
    assert await cron.cancel_all() == 0
    for name in "abc":
        await cron.schedule(name, "0 * * * *", bench.task(name), FIVE)
    assert await cron.cancel_all() == 3
    assert bench.told()[-1] == "PollingStopped"
    assert await cron.get_tasks() == []
    await bench.clock.advance(2 * HOUR)
    assert bench.calls == []


async def test_a_cancelled_task_that_runs_finishes_and_does_not_run_again(bench: Bench) -> None:
    cron = bench.make()
    # long enough that the next occurrence comes due during the run
    await cron.schedule("long", "0 * * * *", bench.task("long", 2.5 * 3600), FIVE)
    await bench.clock.advance(15 * MINUTE)
    assert bench.times("long") == ["10:00:00"]
    assert await cron.cancel("long") is True
    assert await cron.get_tasks() == []
    assert "PollingStopped" not in bench.told()
    await bench.clock.advance(10 * HOUR)
    assert bench.times("long") == ["10:00:00"]
    assert bench.told() == [
        "PollingStarted", "TaskRunStarted", "TaskRunCompleted", "PollingStopRequested", "PollingStopped",
    ]  # fmt: skip
    (row,) = await schedule_rows(bench.store)
    assert row["removed_at"] is not None
    (run,) = await bench.store.history.runs(RunFilter(row["sid"], 0, 1 << 60))
    assert run.outcome == "succeeded"
    assert (await verify_store(bench.store)).problems == []


async def test_a_cancelled_task_that_fails_in_its_last_run_is_not_retried(bench: Bench) -> None:
    cron = bench.make()

    async def fail_later() -> None:
        bench.calls.append(("fails", ""))
        await bench.clock.sleep(60)
        raise ValueError("no")

    await cron.schedule("fails", "0 * * * *", fail_later, FIVE)
    await bench.clock.advance(10 * MINUTE)
    await cron.cancel("fails")
    await bench.clock.advance(5 * HOUR)
    assert len(bench.calls) == 1
    (failed,) = [event for event in bench.events if event.name == "TaskRunFailed"]
    assert "retry_at" not in failed.fields()
    (row,) = await schedule_rows(bench.store)
    assert [run.outcome for run in await bench.store.history.runs(RunFilter(row["sid"], 0, 1 << 60))] == ["failed"]
    assert await bench.store.runs.live(row["sid"]) == []
    assert (await verify_store(bench.store)).problems == []


async def test_cancelling_a_task_that_waits_for_its_retry(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("fails", "0 * * * *", bench.task("fails", ValueError("no")), FIVE)
    await bench.clock.advance(10 * MINUTE)
    assert await cron.cancel("fails")
    assert bench.told()[-1] == "PollingStopped"
    await bench.clock.advance(HOUR)
    assert bench.times("fails") == ["10:00:00"]
    assert (await verify_store(bench.store)).problems == []


async def test_a_task_may_cancel_itself_and_come_back_in_another_rhythm(bench: Bench) -> None:
    cron = bench.make()

    async def move() -> None:
        bench.calls.append(("move", f"{bench.clock.at:%H:%M}"))
        if len(bench.calls) == 1:
            assert await cron.cancel("move")
            await cron.schedule("move", "30 * * * *", move, FIVE)

    await cron.schedule("move", "0 * * * *", move, FIVE)
    await bench.clock.advance(2 * HOUR)
    assert bench.times("move") == ["10:00", "10:30", "11:30"]
    assert bench.told().count("PollingStarted") == 1
    assert "PollingStopped" not in bench.told()
    assert [task.cron for task in await cron.get_tasks()] == ["30 * * * *"]
    assert (await verify_store(bench.store)).problems == []


async def test_a_task_that_comes_back_while_it_runs_does_not_overlap(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("long", "0 * * * *", bench.task("long", 1800.0), FIVE)
    await bench.clock.advance(15 * MINUTE)
    await cron.cancel("long")
    await cron.schedule("long", "10,20 * * * *", bench.task("long"), FIVE)
    await bench.clock.advance(HOUR)
    # 10:10 and 10:20 came due during the run: one run for both, right after it
    assert bench.times("long") == ["10:00:00", "10:30:00"]
    await cron.cancel("long")
    assert bench.told()[-1] == "PollingStopped"
    assert (await verify_store(bench.store)).problems == []


async def test_a_task_that_was_cancelled_and_comes_back_later_is_new(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("a", "0 * * * *", bench.task("a"), FIVE)
    await bench.clock.advance(HOUR)
    await cron.cancel("a")
    await bench.clock.advance(3 * HOUR)
    await cron.schedule("a", "0 * * * *", bench.task("a"), FIVE)
    (task,) = await cron.get_tasks()
    assert task.last_attempt_at is None
    await bench.clock.advance(MINUTE)
    assert bench.times("a") == ["10:00:00"], "what it missed while it was cancelled is not made up for"


async def test_a_duplicate_is_logged_and_raised_and_changes_nothing(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    cron = bench.make()
    await cron.schedule("a", "0 * * * *", bench.task("a"), FIVE)
    with pytest.raises(ScheduleDuplicateTaskError, match='Task with name "a" is already scheduled'):
        await cron.schedule("a", "0 2 * * *", bench.task("other"), FIVE)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.getMessage() for record in warnings] == ["Refused: a task named 'a' is scheduled already"]
    assert warnings[0].name == "noonbell.periodic"
    assert [task.cron for task in await cron.get_tasks()] == ["0 * * * *"]


@pytest.mark.parametrize("name", ["", " ", "\t\n", None, 7, b"a"])
async def test_a_name_has_to_be_a_text(bench: Bench, name: Any) -> None:
    with pytest.raises(ScheduleInvalidNameError):
        await bench.make().schedule(name, "0 * * * *", bench.task("a"), FIVE)
    assert bench.told() == []


async def test_what_cannot_be_scheduled_is_refused_before_anything_happens(bench: Bench) -> None:
    cron = bench.make()
    callback: Any = bench.task("a")
    with pytest.raises(CronExpressionInvalidError, match="minute field"):
        await cron.schedule("a", "61 * * * *", callback, FIVE)
    with pytest.raises(NegativeRetryDelayError):
        await cron.schedule("a", "0 * * * *", callback, timedelta(seconds=-1))
    not_callable: Any = "callback"
    with pytest.raises(RegistrationShapeError):
        await cron.schedule("a", "0 * * * *", not_callable, FIVE)
    assert bench.told() == []
    assert await cron.get_tasks() == []


async def test_an_expression_denser_than_the_poll_interval_is_refused(bench: Bench) -> None:
    cron = bench.make()
    with pytest.raises(ScheduleFrequencyError, match="poll interval is 600 s"):
        await cron.schedule("a", "0,5 * * * *", bench.task("a"), FIVE)
    await cron.schedule("b", "0,10 * * * *", bench.task("b"), FIVE)
    minutely = bench.make(name="minutely", poll_interval=MINUTE)
    await minutely.schedule("a", "* * * * *", bench.task("a"), FIVE)
    await bench.clock.advance(2 * MINUTE)
    assert bench.times("a") == ["09:50:30", "09:51:00", "09:52:00"]


async def test_many_are_scheduled_together_or_not_at_all(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("b", "0 * * * *", bench.task("b"), FIVE)
    with pytest.raises(ScheduleDuplicateTaskError):
        await cron.schedule_many([("a", "0 * * * *", print, FIVE), ("b", "0 * * * *", print, FIVE)])
    assert cron.task_names == ["b"]
    await cron.schedule_many([("c", "0 * * * *", print, FIVE), ("d", "0 * * * *", print, FIVE)])
    await cron.schedule_many([])
    assert cron.task_names == ["b", "c", "d"]


async def test_concurrent_calls_come_one_after_the_other(bench: Bench) -> None:
    cron = bench.make()
    calls = [cron.schedule("same", "0 * * * *", bench.task("same"), FIVE) for _ in range(5)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes].count(ScheduleDuplicateTaskError) == 4
    assert sum(await asyncio.gather(*(cron.cancel("same") for _ in range(5)))) == 1
    assert bench.told() == ["PollingStarted", "PollingStopRequested", "PollingStopped"]


@pytest.mark.parametrize(
    ("expression", "valid"),
    [("0 * * * *", True), ("0 2 * * 0-6", True), ("", False), ("* * * *", False), ("60 * * * *", False), (None, False)],
)
def test_validate(expression: object, valid: bool) -> None:
    assert periodic.validate(expression) is valid
    assert periodic.make().validate(expression) is valid


async def test_closing_keeps_what_is_stored_and_ends_the_scheduler(bench: Bench) -> None:
    async with bench.make() as cron:
        await cron.schedule("a", "0 * * * *", bench.task("a"), FIVE)
    assert bench.told() == ["PollingStarted", "PollingStopRequested", "PollingStopped"]
    await cron.close()
    with pytest.raises(NoonbellError, match="is closed"):
        await cron.schedule("b", "0 * * * *", bench.task("b"), FIVE)
    assert await cron.cancel("a") is False
    assert await cron.get_tasks() == []
    assert [row["name"] for row in await declared_tasks(bench.store)] == ["a"]
    assert (await verify_store(bench.store)).problems == []


async def test_closing_waits_for_what_runs(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("long", "50 * * * *", bench.task("long", 600.0), FIVE)
    await bench.clock.advance(MINUTE)
    closing = [asyncio.ensure_future(cron.close()) for _ in range(3)]
    await bench.clock.settle()
    closing[0].cancel()
    await bench.clock.advance(8 * MINUTE)
    assert not closing[1].done()
    await bench.clock.advance(2 * MINUTE)
    await asyncio.gather(*closing[1:])
    assert bench.told_of("long") == ["TaskRunStarted", "TaskRunCompleted"]
    assert bench.told()[-1] == "PollingStopped"


async def test_closing_while_a_cancelled_task_still_runs_removes_it(bench: Bench) -> None:
    cron = bench.make()
    await cron.schedule("long", "50 * * * *", bench.task("long", 600.0), FIVE)
    await cron.schedule("other", "0 * * * *", bench.task("other"), FIVE)
    await bench.clock.advance(MINUTE)
    await cron.cancel("long")
    closing = asyncio.ensure_future(cron.close())
    await bench.clock.advance(12 * MINUTE)
    await closing
    assert [row["name"] for row in await declared_tasks(bench.store)] == ["other"]
    assert (await verify_store(bench.store)).problems == []


async def test_two_live_schedulers_do_not_share_a_name(bench: Bench) -> None:
    first, second = bench.make(), bench.make()
    await first.schedule("a", "0 * * * *", bench.task("a"), FIVE)
    with pytest.raises(SchedulerInUseError):
        await second.schedule("a", "0 * * * *", bench.task("a"), FIVE)
    await first.cancel_all()
    await second.schedule("a", "0 * * * *", bench.task("a"), FIVE)
    await bench.clock.advance(HOUR)
    assert bench.times("a") == ["10:00:00"]


async def test_a_store_by_address_is_opened_and_closed_with_the_tasks(tmp_path: Any) -> None:
    cron = periodic.make(Capabilities(store=f"sqlite:///{tmp_path}/own.db"))
    assert not (tmp_path / "own.db").exists()
    await cron.schedule("a", "0 0 1 1 *", print, FIVE)
    assert (tmp_path / "own.db").exists()
    assert await cron.cancel_all() == 1
    await cron.schedule("b", "0 0 1 1 *", print, FIVE)
    assert [task.name for task in await cron.get_tasks()] == ["b"]
    await cron.close()


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="poll_interval"):
        periodic.make(poll_interval=timedelta(0))
    with pytest.raises(ValueError, match="name"):
        periodic.make(name=" ")
    with pytest.raises(ValueError, match="not an IANA time zone"):
        periodic.make(time_zone="Mars/Olympus")
