"""The trace checker: each statement of the theory holds in good traces and is named in bad ones."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from noonbell.testing import DeclaredTask, TraceEvent, check
from noonbell.testing.trace import STATEMENTS, EventKind

NOON = int(datetime(2025, 6, 1, 12, 0, tzinfo=UTC).timestamp()) * 1_000_000
EVERY_FIVE = {"a": DeclaredTask("0,5,10,15,20,25,30,35,40,45,50,55 * * * *", 60_000_000)}


def at(minutes: float) -> int:
    return NOON + round(minutes * 60_000_000)


def ev(kind: EventKind, minutes: float, task: str = "", **more: Any) -> TraceEvent:
    return TraceEvent(kind, at(minutes), task, **more)


def begin(minutes: float, declared: dict[str, DeclaredTask] | None = None, **more: Any) -> list[TraceEvent]:
    tasks = EVERY_FIVE if declared is None else declared
    return [ev("init-start", minutes, declared=tasks, **more), ev("init-ok", minutes)]


def end(minutes: float) -> list[TraceEvent]:
    return [ev("stop-start", minutes), ev("stop-end", minutes)]


def run(minutes: float, lasts: float = 0.1, task: str = "a", outcome: EventKind = "run-ok") -> list[TraceEvent]:
    return [ev("run-start", minutes, task), ev(outcome, minutes + lasts, task)]


def failed(minutes: float) -> list[TraceEvent]:
    return run(minutes, outcome="run-failed")


GOOD: dict[str, list[TraceEvent]] = {
    "due moments": [*begin(1), *run(5), *run(10), ev("quiet", 11), *end(12)],
    "the current minute at the first start": [*begin(0.5), *run(0.5), ev("quiet", 1)],
    "no run where it does not match": [*begin(1), ev("quiet", 4)],
    "many missed are one": [*begin(1), *end(2), *begin(28), *run(28), ev("quiet", 29)],
    "a retry": [*begin(1), *failed(5), *run(6.1), ev("quiet", 7)],
    "a new occurrence before the retry": [
        *begin(1, {"a": DeclaredTask(EVERY_FIVE["a"].cron, 600_000_000)}), *failed(5), *run(10), ev("quiet", 14),
    ],
    "a long run and its follow-up": [*begin(1), *run(5, 7), *run(12), ev("quiet", 13)],
    "an orphan": [*begin(1), ev("run-start", 5, "a"), ev("crash", 6), *begin(7), *run(7), ev("quiet", 8)],
    "an interrupted initialisation": [ev("init-start", 1, declared=EVERY_FIVE), ev("crash", 1), *begin(2), *run(5)],
    "left out and back again": [*begin(1), *failed(5), *end(5.2), *begin(6, {}), *end(7), *begin(8), ev("quiet", 9)],
    "back again within its minute": [*begin(0), *run(0), *end(0.2), *begin(0.3, {}), *end(0.4), *begin(0.5), *run(0.5)],
    "a changed expression, owed once": [
        *begin(1), *run(5), *end(6), *begin(9, {"a": DeclaredTask("7 * * * *", 0)}), *run(9), ev("quiet", 10),
    ],
    "a changed expression, not owed": [
        *begin(1), *run(5), *end(6), *begin(11, {"a": DeclaredTask("55 * * * *", 0)}), ev("quiet", 12),
    ],
    "the retry time is that of the failure": [
        *begin(1), *failed(5), *end(5.2), *begin(5.3, {"a": DeclaredTask(EVERY_FIVE["a"].cron, 0)}), *run(6.1),
    ],
    "manual runs": [
        *begin(1), ev("run-start", 2, "a", manual=True), ev("run-failed", 6, "a", manual=True), *run(6), ev("quiet", 7),
    ],
    "a clock that was set back": [*begin(1), *run(10), ev("clock-set", 10.5), ev("quiet", 3), ev("quiet", 9), *run(15)],
    "refused as invalid": [ev("init-start", 1, valid=False, declared={}), ev("init-failed", 1, reason="other")],
    "refused for drift": [ev("init-start", 1, declared={}, refuse_drift=True), ev("init-failed", 1, reason="drift")],
    "refused by the store": [
        ev("init-start", 1, declared=EVERY_FIVE), ev("store-fault", 1), ev("init-failed", 1, reason="store"), *begin(2),
    ],
    "a claim that a crash cut off": [
        *begin(1), ev("crash", 5), *begin(6, {"a": DeclaredTask("59 * * * *", 0)}), *run(6),
    ],
    "an end that the store did not take": [
        *begin(1), ev("run-start", 5, "a"), ev("store-fault", 6), ev("stop-start", 7), ev("run-lost", 7, "a"),
        ev("stop-end", 7), *begin(8), *run(8), ev("quiet", 9),
    ],
    "a repeated hour": [
        *begin(0, {"a": DeclaredTask("30 2 * * *", 0)}, zone=ZoneInfo("Europe/Berlin")), *end(1),
        TraceEvent("init-start", at(0), declared={"a": DeclaredTask("30 2 * * *", 0)}, zone=ZoneInfo("Europe/Berlin")),
        ev("init-ok", 0), *(run((datetime(2025, 10, 26, 0, 30, tzinfo=UTC).timestamp() * 1e6 - NOON) / 6e7)),
        *(run((datetime(2025, 10, 26, 1, 30, tzinfo=UTC).timestamp() * 1e6 - NOON) / 6e7)),
    ],
}  # fmt: skip

BAD: dict[str, tuple[str, list[TraceEvent]]] = {
    "nothing is due": ("S1", [*begin(1), *run(4)]),
    "a retry too early": ("S1", [*begin(1), *failed(5), *run(6)]),
    "not registered": ("S1", [*begin(1), *run(5, task="b")]),
    "twice for one due moment": ("S1", [*begin(1), *run(5), *run(6)]),
    "made-up runs": ("S1", [*begin(1), *end(2), *begin(28), *run(28), *run(28.2)]),
    "after a stop was asked for": ("S1", [*begin(1), ev("stop-start", 5), *run(5)]),
    "a boot run in a minute that does not match": ("S1", [*begin(1.5), *run(1.5)]),
    "an old retry of a task that came back": (
        "S1", [*begin(1), *failed(5), *end(5.2), *begin(5.3, {}), *end(5.4), *begin(6), *run(6.5)],
    ),
    "an orphan that runs twice": (
        "S1", [*begin(1), ev("run-start", 5, "a"), ev("crash", 6), *begin(7), *run(7), *run(8)],
    ),
    "running at the end of a stop": ("S3", [*begin(1), ev("run-start", 5, "a"), *end(6)]),
    "a manual run at the end of a stop": ("S3", [*begin(1), ev("run-start", 2, "a", manual=True), *end(6)]),
    "an end that was given up for no reason": (
        "S3", [*begin(1), ev("run-start", 5, "a"), ev("stop-start", 7), ev("run-lost", 7, "a")],
    ),
    "an end that was lost without a start": ("F3", [*begin(1), ev("run-lost", 7, "a")]),
    "invalid and accepted": ("S4", begin(1, {}, valid=False)),
    "valid and refused": ("S5", [ev("init-start", 1, declared={}), ev("init-failed", 1, reason="other")]),
    "refused for a sound store": ("S5", [ev("init-start", 1, declared={}), ev("init-failed", 1, reason="store")]),
    "refused for welcome drift": ("S5", [ev("init-start", 1, declared={}), ev("init-failed", 1, reason="drift")]),
    "two init-ok": ("S6", [*begin(1), *begin(2)]),
    "an init-ok before the stop ended": ("S6", [*begin(1), ev("stop-start", 2), *begin(3)]),
    "a due moment without a run": ("L1", [*begin(1), ev("quiet", 5)]),
    "a dropped retry": ("L1", [*begin(1), *failed(5), ev("quiet", 6.2)]),
    "a lost orphan": ("L1", [*begin(1), ev("run-start", 5, "a"), ev("crash", 6), *begin(7), ev("quiet", 7)]),
    "a lost follow-up": ("L1", [*begin(1), *run(5, 7), ev("quiet", 13)]),
    "a boot run that is missing": ("L1", [*begin(0.5), ev("quiet", 0.6)]),
    "an initialisation without end": ("L2", [ev("init-start", 1, declared={}), ev("quiet", 2)]),
    "a stop without end": ("L3", [*begin(1), ev("stop-start", 2), ev("quiet", 3)]),
    "a run before the first init": ("F1", run(5)),
    "a run after a crash": ("F1", [*begin(1), ev("crash", 2), *run(5)]),
    "a run after a stop": ("F1", [*begin(1), *end(2), *run(5)]),
    "an overlap": ("F2", [*begin(1), ev("run-start", 5, "a"), ev("run-start", 10, "a")]),
    "an overlap with a manual run": ("F2", [*begin(1), ev("run-start", 4, "a", manual=True), ev("run-start", 5, "a")]),
    "a manual overlap": ("F2", [*begin(1), ev("run-start", 5, "a"), ev("run-start", 6, "a", manual=True)]),
    "an end without a start": ("F3", [*begin(1), ev("run-ok", 5, "a")]),
    "an end after the crash": ("F3", [*begin(1), ev("run-start", 5, "a"), ev("crash", 6), ev("run-ok", 7, "a")]),
    "a stop-end without a stop-start": ("F3", [*begin(1), ev("stop-end", 5)]),
    "an init-ok without an init-start": ("F3", [ev("init-ok", 5)]),
    "an init-failed without an init-start": ("F3", [ev("init-failed", 5, reason="store")]),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_good_traces_pass(name: str) -> None:
    assert check(GOOD[name]) is None


@pytest.mark.parametrize("name", BAD)
def test_bad_traces_name_the_statement(name: str) -> None:
    statement, trace = BAD[name]
    violation = check(trace)
    assert violation is not None
    assert violation.statement == statement
    assert check(trace[: violation.index]) is None


def test_every_statement_is_broken_by_some_trace() -> None:
    assert {statement for statement, _ in BAD.values()} | {"S2"} == STATEMENTS.keys()


def test_two_good_ends_between_two_due_moments() -> None:
    """S2 follows from S1, so it is seen only where S1 is not asked for."""
    twice = [*begin(1), *run(5), *run(6)]
    violation = check(twice, statements={"S2"})
    assert violation is not None
    assert (violation.statement, violation.index) == ("S2", 5)
    assert check([*begin(1), *run(5), *failed(6), *failed(7)], statements={"S2"}) is None
    assert check([*begin(1), *run(5), *failed(6), *run(10)], statements={"S2"}) is None


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_asked_for_is_not_told(name: str) -> None:
    statement, trace = BAD[name]
    others = STATEMENTS.keys() - {statement, "S2"}
    violation = check(trace, statements=others)
    assert violation is None or violation.statement in others


def test_only_the_first_violation_is_told_and_it_says_where() -> None:
    violation = check([*begin(1), *run(4), ev("stop-end", 5)])
    assert violation is not None
    assert (violation.index, violation.at, violation.task) == (2, at(4), "a")
    assert str(violation).startswith("S1 (a run starts only when the scheduler was obliged to start it) is broken at")
    assert "2025-06-01T12:04:00+00:00" in str(violation)


def test_patience_is_for_retries_that_are_a_little_late() -> None:
    trace = [*begin(1), *failed(5), ev("quiet", 6.2)]
    assert check(trace, patience=timedelta(seconds=10)) is None
    assert check(trace, patience=timedelta(seconds=1)) is not None
