"""From the events of a real Scheduler to a trace that the checker reads, as a user's own test would do it."""

from datetime import UTC, datetime, timedelta

import pytest

from noonbell.declarative.scheduler import Scheduler
from noonbell.errors import NoonbellError
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock, TraceRecorder, check

START = datetime(2025, 6, 1, 12, 3, 30, tzinfo=UTC)


async def test_a_life_as_a_trace() -> None:
    clock, recorder = ManualClock(START), TraceRecorder()
    calls = 0

    async def work() -> None:
        nonlocal calls
        calls += 1
        await clock.sleep(2)
        if calls == 1:
            raise ValueError("the first one fails")

    scheduler = Scheduler(MemoryStore(), clock=clock, on_event=recorder, time_zone=UTC)
    registrations = [("work", "5,10 * * * *", work, timedelta(seconds=20))]
    recorder.expect(registrations, UTC)
    await scheduler.initialize(registrations)
    await clock.advance(timedelta(minutes=8))
    recorder.quiet(clock.now())
    await scheduler.stop()
    assert [event.kind for event in recorder.trace] == [
        *("init-start", "init-ok", "run-start", "run-failed", "run-start", "run-ok", "run-start", "run-ok"),
        *("quiet", "stop-start", "stop-end"),
    ]
    starts = [event.at - clock.now() for event in recorder.trace if event.kind == "run-start"]
    assert [second // 1_000_000 for second in starts] == [-390, -368, -90]
    assert check(recorder.trace) is None


async def test_the_recorded_trace_is_no_formality() -> None:
    """The same life, read against other registrations, breaks the theory."""
    clock, recorder = ManualClock(START), TraceRecorder()

    async def work() -> None: ...

    scheduler = Scheduler(MemoryStore(), clock=clock, on_event=recorder, time_zone=UTC)
    recorder.expect([("work", "6 * * * *", work, timedelta(0))], UTC)
    await scheduler.initialize([("work", "5 * * * *", work, timedelta(0))])
    await clock.advance(timedelta(minutes=2))
    await scheduler.stop()
    violation = check(recorder.trace)
    assert violation is not None
    assert violation.statement == "S1"


async def test_refusals_carry_their_reason() -> None:
    clock, recorder = ManualClock(START), TraceRecorder()
    store = MemoryStore()

    async def work() -> None: ...

    task = ("work", "5 * * * *", work, timedelta(0))
    scheduler = Scheduler(store, clock=clock, on_event=recorder, time_zone=UTC, on_drift="refuse")
    recorder.expect([task], UTC, refuse_drift=True)
    await scheduler.initialize([task])
    await scheduler.stop()
    for registrations, valid in (([task, task], False), ([("other", *task[1:])], True)):
        recorder.expect(registrations, UTC, valid=valid, refuse_drift=True)
        with pytest.raises(NoonbellError):
            await scheduler.initialize(registrations)
    failed = [(event.reason, event.note.partition(":")[0]) for event in recorder.trace if event.kind == "init-failed"]
    assert failed == [("other", "ScheduleDuplicateTaskError"), ("drift", "ScheduleDriftError")]
    assert check(recorder.trace) is None
