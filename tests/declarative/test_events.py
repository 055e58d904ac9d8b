"""Events: their facts, their log lines, and a sink that no listener can disturb."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from noonbell.declarative import events
from noonbell.declarative.events import (
    EventSink,
    PollingStarted,
    SchedulerEvent,
    SchedulerInitializationFailed,
    SchedulerInitializationStarted,
    TaskEvent,
    TaskRetryPreempted,
    TaskRetryStarted,
    TaskRunCompleted,
    TaskRunFailed,
    TaskRunStarted,
)
from noonbell.errors import describe_error

AT = datetime(2026, 11, 1, 1, 30, 0, 250_000, tzinfo=ZoneInfo("America/New_York"))
BASE: dict[str, Any] = {"at": AT, "instance": "host-1", "scheduler": "default"}
TASK: dict[str, Any] = BASE | {
    "task": "sync-logs", "run_id": "a1:scheduled:17", "scheduled_for": AT.replace(microsecond=0), "attempt": 2,
    "cause": "cron",
}  # fmt: skip
STARTED = TaskRunStarted(**TASK)
FAILED = TaskRunFailed(**TASK, error="OSError: no route", retry_at=AT.replace(minute=35))
LIFECYCLE = [
    "SchedulerInitializationStarted", "SchedulerInitializationCompleted", "PollingStarted", "PollingStopRequested",
    "PollingStopped", "SchedulerStopRequested", "SchedulerStopped",
]  # fmt: skip


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[logging.Logger]:
    with caplog.at_level(logging.INFO, "noonbell.test-events"):
        yield logging.getLogger("noonbell.test-events")


def silent(level: int) -> logging.Logger:
    logger = logging.Logger("silent")  # noqa: LOG001 - one of its own, so that its level disturbs nobody
    logger.setLevel(level)
    return logger


# --- the events -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LIFECYCLE)
def test_lifecycle_events_are_told_by_name(name: str) -> None:
    event = getattr(events, name)(**BASE)
    assert isinstance(event, SchedulerEvent)
    assert event.name == name
    assert event.level == logging.INFO
    assert event.fields() == {"at": "2026-11-01T01:30:00.250000-04:00", "instance": "host-1", "scheduler": "default"}


def test_task_events_carry_their_run() -> None:
    assert STARTED.fields() == {
        "task": "sync-logs", "run_id": "a1:scheduled:17", "scheduled_for": "2026-11-01T01:30:00-04:00", "attempt": 2,
        "cause": "cron", "at": "2026-11-01T01:30:00.250000-04:00", "instance": "host-1", "scheduler": "default",
    }  # fmt: skip


def test_what_a_kind_adds_is_among_its_fields() -> None:
    completed = TaskRunCompleted(**TASK, duration=timedelta(milliseconds=1500))
    assert completed.fields()["duration_seconds"] == 1.5
    assert FAILED.fields()["error"] == "OSError: no route"
    assert FAILED.fields()["retry_at"] == "2026-11-01T01:35:00.250000-04:00"
    assert "retry_at" not in TaskRunFailed(**TASK, error="x", retry_at=None).fields()
    assert SchedulerInitializationFailed(**BASE, error="x").fields()["error"] == "x"


def test_failures_are_warnings_and_the_rest_is_not() -> None:
    assert {kind.__name__ for kind in kinds(SchedulerEvent) if kind.level != logging.INFO} == {
        "SchedulerInitializationFailed",
        "TaskRunFailed",
    }
    assert TaskRunFailed.level == SchedulerInitializationFailed.level == logging.WARNING


def kinds(base: type[SchedulerEvent]) -> set[type[SchedulerEvent]]:
    return {base}.union(*(kinds(kind) for kind in base.__subclasses__()))


def test_these_are_all_the_events() -> None:
    assert {kind.__name__ for kind in kinds(SchedulerEvent) - {SchedulerEvent, TaskEvent}} == {
        *LIFECYCLE,
        "SchedulerInitializationFailed",
        "TaskRunStarted",
        "TaskRunCompleted",
        "TaskRunFailed",
        "TaskRetryStarted",
        "TaskRetryPreempted",
        "TaskRetryCleared",
    }


def test_events_cannot_be_changed_and_compare_by_what_they_say() -> None:
    with pytest.raises(AttributeError):
        STARTED.task = "other"  # type: ignore[misc]  # the point of the case
    assert TaskRunStarted(**TASK) == STARTED
    assert len({STARTED, TaskRunStarted(**TASK), TaskRetryPreempted(**TASK), TaskRetryStarted(**TASK)}) == 3


# --- the log ----------------------------------------------------------------------------------------------------------


def test_an_event_is_one_line_with_its_facts_as_data(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    EventSink(None, log).emit(STARTED)
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage() == (
        "TaskRunStarted task=sync-logs run_id=a1:scheduled:17 scheduled_for=2026-11-01T01:30:00-04:00 attempt=2 "
        "cause=cron at=2026-11-01T01:30:00.250000-04:00 instance=host-1 scheduler=default"
    )
    assert vars(record)["noonbell"] == {"event": "TaskRunStarted", **STARTED.fields()}
    assert json.loads(json.dumps(vars(record)["noonbell"])) == vars(record)["noonbell"]


def test_a_failure_is_a_warning(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    EventSink(None, log).emit(FAILED)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert ' error="OSError: no route" retry_at=' in caplog.records[0].getMessage()


@pytest.mark.parametrize(
    ("task", "shown"),
    [
        ("задача", "задача"),
        ("a b", '"a b"'),
        ("", '""'),
        ("a=b", '"a=b"'),
        ('say "hi"', r'"say \"hi\""'),
        ("two\nlines attempt=9", r'"two\nlines attempt=9"'),
        ("sep\u2028arator\x85", r'"sep\u2028arator\u0085"'),
        ("\x1b[31mred", r'"\u001b[31mred"'),
        ("lone\ud800", r'"lone\ud800"'),
    ],
)
def test_no_value_can_pass_for_another_or_for_a_line(
    log: logging.Logger, caplog: pytest.LogCaptureFixture, task: str, shown: str
) -> None:
    EventSink(None, log).emit(TaskRunStarted(**TASK | {"task": task}))
    message = caplog.records[0].getMessage()
    assert message.startswith(f"TaskRunStarted task={shown} run_id=a1:scheduled:17 ")
    assert len(message.splitlines()) == 1


# --- the listener -----------------------------------------------------------------------------------------------------


def test_the_listener_gets_the_event_itself_in_order(log: logging.Logger) -> None:
    seen: list[SchedulerEvent] = []
    sink = EventSink(seen.append, log)
    told = [SchedulerInitializationStarted(**BASE), STARTED, FAILED]
    for event in told:
        sink.emit(event)
    assert seen == told
    assert all(one is other for one, other in zip(seen, told, strict=True))


@pytest.mark.parametrize("error", [ValueError("broken listener"), asyncio.CancelledError(), SystemExit(1)], ids=repr)
def test_a_listener_that_raises_is_logged_and_harms_nothing(
    log: logging.Logger, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    seen: list[SchedulerEvent] = []

    def listener(event: SchedulerEvent) -> None:
        seen.append(event)
        if len(seen) == 1:
            raise error

    sink = EventSink(listener, log)
    sink.emit(STARTED)
    sink.emit(FAILED)
    assert seen == [STARTED, FAILED]
    (complaint,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert complaint.getMessage() == "on_event raised at TaskRunStarted; the scheduler goes on"
    assert complaint.exc_info is not None
    assert complaint.exc_info[1] is error
    assert caplog.records[0].getMessage().startswith("TaskRunStarted ")


def test_an_interrupt_from_the_keyboard_is_not_swallowed(log: logging.Logger) -> None:
    def listener(_: SchedulerEvent) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        EventSink(listener, log).emit(STARTED)


async def listen(_: SchedulerEvent) -> None: ...


class Listener:
    async def __call__(self, event: SchedulerEvent) -> None: ...


@pytest.mark.parametrize("on_event", [listen, partial(listen), Listener(), Listener().__call__])
def test_an_async_listener_is_refused_with_what_would_be_right(on_event: Any) -> None:
    with pytest.raises(
        TypeError, match=r"on_event is an async function.*pass a plain function, e\.g\. queue\.put_nowait"
    ):
        EventSink(on_event, silent(logging.INFO))


@pytest.mark.parametrize("on_event", ["print", 5, []])
def test_what_cannot_be_called_is_refused(on_event: Any) -> None:
    with pytest.raises(TypeError, match="on_event must be a function that takes an event, not"):
        EventSink(on_event, silent(logging.INFO))


def test_a_coroutine_that_a_plain_function_returns_is_told(
    log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    # Warnings are errors here: one that nobody closed would fail the test run.
    def listener(event: SchedulerEvent) -> object:
        return listen(event)

    EventSink(listener, log).emit(STARTED)
    assert "on_event returned a coroutine at TaskRunStarted" in caplog.records[-1].getMessage()


# --- events that nobody would see -------------------------------------------------------------------------------------


def test_who_wants_what() -> None:
    def wants(on_event: Any, level: int) -> tuple[bool, bool, bool]:
        sink = EventSink(on_event, silent(level))
        return sink.wants_task_events, sink.wants(TaskRunStarted), sink.wants(TaskRunFailed)

    assert wants(None, logging.INFO) == (True, True, True)
    assert wants(None, logging.WARNING) == (False, False, True)
    assert wants(None, logging.ERROR) == (False, False, False)
    assert wants(print, logging.CRITICAL) == (True, True, True)


def test_a_level_that_changes_later_is_followed() -> None:
    logger = logging.getLogger("noonbell.test-events.changing")
    logger.setLevel(logging.WARNING)
    sink = EventSink(None, logger)
    assert not sink.wants_task_events
    logger.setLevel(logging.INFO)
    assert sink.wants_task_events


@pytest.mark.parametrize(
    ("level", "listens", "made"), [(logging.WARNING, False, 1), (logging.ERROR, False, 0), (logging.ERROR, True, 1)]
)
def test_an_event_given_as_a_function_is_made_only_if_anybody_could_see_it(
    level: int, listens: bool, made: int
) -> None:
    calls: list[SchedulerEvent] = []
    seen: list[SchedulerEvent] = []

    def make() -> SchedulerEvent:
        calls.append(FAILED)
        return FAILED

    EventSink(seen.append if listens else None, silent(level)).emit(make)
    assert len(calls) == made
    assert seen == ([FAILED] if listens else [])


def test_a_quiet_log_gets_no_line(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("noonbell.test-events.quiet")
    with caplog.at_level(logging.WARNING, logger.name):
        sink = EventSink(None, logger)
        sink.emit(PollingStarted(**BASE))
        sink.emit(FAILED)
    assert [record.getMessage().split()[0] for record in caplog.records] == ["TaskRunFailed"]


# --- errors -----------------------------------------------------------------------------------------------------------


class Unspeakable(Exception):  # noqa: N818 - named for what it does
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Confidential(Exception):  # noqa: N818 - named for what it holds
    def __init__(self) -> None:
        super().__init__("login refused")
        self.password = "hunter2"  # noqa: S105 - the secret that must not be shown


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("bad input"), "ValueError: bad input"),
        (KeyError("k"), "KeyError: 'k'"),
        (RuntimeError(), "RuntimeError"),
        (Confidential(), "Confidential: login refused"),
        (Unspeakable(), "Unspeakable: (its message could not be made: RuntimeError)"),
        (ValueError("x" * 5000), "ValueError: " + "x" * 2000 + "…"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_is_shown_by_type_and_message(error: BaseException, shown: str) -> None:
    assert describe_error(error) == shown


def test_instants_keep_the_zone_they_came_in() -> None:
    event = PollingStarted(at=datetime(2026, 1, 1, tzinfo=UTC), instance="i", scheduler="s")
    assert event.fields()["at"] == "2026-01-01T00:00:00+00:00"
