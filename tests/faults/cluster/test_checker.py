"""The checker says nothing about a permitted story, and finds what is planted in others."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.schedules_judge import LedgerRows
from tests.faults.cluster.checker import check, read
from tests.faults.cluster.clock import MINUTE, SECOND
from tests.faults.cluster.plan import Plan

NOON = 1_772_366_400 * SECOND
LEASE = 2.0

Lines = list[dict[str, Any]]


def at(minutes: int) -> int:
    return NOON + minutes * MINUTE


def run(schedule: str, minutes: int) -> str:
    return f"{schedule}:scheduled:{at(minutes)}"


def start(worker: int, seconds: float, schedule: str, minutes: int, attempt: int = 1) -> dict[str, Any]:
    facts = {"r": run(schedule, minutes), "i": schedule, "f": at(minutes), "a": attempt}
    return {"m": "start", "w": worker, "t": round(seconds * SECOND), **facts}


def end(
    worker: int, seconds: float, schedule: str, minutes: int, attempt: int = 1, *, ok: bool = True
) -> dict[str, Any]:
    facts = {"r": run(schedule, minutes), "a": attempt, "ok": ok}
    return {"m": "end", "w": worker, "t": round(seconds * SECOND), **facts}


def plan() -> Plan:
    made = Plan()
    made.one_shot("killed", at(1))
    made.one_shot("paused", at(1))
    made.one_shot("flaky", at(1), retry={"attempts": 2})
    made.one_shot("single", at(1), at_most_once=True)
    made.cron("minutely", at(1), at(4))
    made.interval("rhythm", at(1), at(3), 60)
    return made


def log() -> Lines:
    """Three workers. 1 dies while `killed` runs; 2 stands still for six seconds while `paused` runs, and goes on."""
    return [
        *({"m": "up", "w": worker, "t": 0, "p": 100 + worker} for worker in (1, 2, 3)),
        start(1, 1, "killed", 1),
        start(2, 1, "paused", 1),
        start(3, 1, "flaky", 1),
        end(3, 1.1, "flaky", 1, ok=False),
        start(3, 1.2, "single", 1),
        end(3, 1.3, "single", 1),
        {"m": "killed", "w": 1, "t": 2 * SECOND},
        start(3, 3, "flaky", 1, 2),
        end(3, 3.1, "flaky", 1, 2),
        start(3, 4.5, "killed", 1, 2),
        end(3, 4.6, "killed", 1, 2),
        start(3, 5, "paused", 1, 2),
        end(3, 5.1, "paused", 1, 2),
        {"m": "pause", "w": 2, "t0": 2 * SECOND, "t": 8 * SECOND},
        end(2, 8.1, "paused", 1),
        *(mark(3, 10 * minute, "minutely", minute) for minute in (1, 2, 4) for mark in (start, end)),
        *(mark(2, 10 * minute + 1, "rhythm", minute) for minute in (1, 2, 3) for mark in (start, end)),
        *({"m": "gone", "w": worker, "t": 90 * SECOND, "whole": True} for worker in (2, 3)),
    ]  # fmt: skip


def ledger() -> LedgerRows:
    made = LedgerRows()
    made.schedules = {schedule: {} for schedule in plan().wanted}
    for schedule, minute, attempts, worker in (
        ("killed", 1, 2, 3), ("paused", 1, 2, 3), ("flaky", 1, 2, 3), ("single", 1, 1, 3), ("minutely", 1, 1, 3),
        ("minutely", 2, 1, 3), ("minutely", 4, 1, 3), ("rhythm", 1, 1, 2), ("rhythm", 2, 1, 2), ("rhythm", 3, 1, 2),
    ):  # fmt: skip
        made.runs[run(schedule, minute)] = {
            "run_for": at(minute), "started_at": at(minute), "outcome": "succeeded", "attempts": attempts,
            "owner": f"here-{100 + worker}-abcdef01",
        }  # fmt: skip
    made.attempts = {(run("killed", 1), 1): "unknown", (run("paused", 1), 1): "unknown"}
    made.attempts[run("flaky", 1), 1] = "failed"
    made.spans["minutely"] = [{"from_at": at(3), "to_at": at(3), "n": 1, "verdict": "coalesced"}]
    return made


@pytest.mark.parametrize(("started", "explained"), [(1.98, True), (2.02, True), (2.06, False)])
def test_a_worker_may_begin_something_while_it_is_being_killed(started: float, explained: bool) -> None:
    lines = log()
    lines[place(lines, "start", "killed", 1)].update(t=round(started * SECOND))
    next(line for line in lines if line["m"] == "killed").update(t0=2 * SECOND, t=round(2.05 * SECOND))
    found = check(plan(), read(sorted(lines, key=lambda line: line["t"])), ledger(), LEASE)
    assert (found.repeats == []) == explained


def test_a_permitted_story_passes() -> None:
    found = check(plan(), read(log()), ledger(), LEASE)
    assert found.wrong == []
    assert found.recovery == [2.5, 3.0]
    assert found.restarts == [2.5]
    assert (found.interrupted, found.repeated, found.starts) == (1, 2, 13)


def test_without_a_lease_no_pause_explains_a_repeat() -> None:
    found = check(plan(), read(log()), ledger(), None)
    assert len(found.repeats) == 1
    assert "attempt 2 of paused" in found.repeats[0]


def place(lines: Lines, mark: str, schedule: str, attempt: int = 1) -> int:
    return next(
        number
        for number, line in enumerate(lines)
        if line["m"] == mark and line.get("r", "").startswith(f"{schedule}:") and line["a"] == attempt
    )


def without(lines: Lines, *schedules: str) -> None:
    lines[:] = [line for line in lines if not line.get("r", "").startswith(tuple(f"{name}:" for name in schedules))]


def loses_all(lines: Lines, kept: LedgerRows) -> None:
    without(lines, "killed")
    kept.runs.pop(run("killed", 1))


def runs_twice(lines: Lines, kept: LedgerRows) -> None:
    lines.extend([start(2, 40, "killed", 1, 3), end(2, 40.1, "killed", 1, 3)])
    kept.runs[run("killed", 1)]["attempts"] = 3
    kept.attempts[run("killed", 1), 2] = "unknown"


def ends_late(lines: Lines, kept: LedgerRows) -> None:
    """The end of the worker that stood still is taken, though another had the run by then."""
    kept.runs[run("paused", 1)].update(attempts=1, owner="here-102-abcdef01")
    kept.attempts.pop((run("paused", 1), 1))


def fails_again(lines: Lines, kept: LedgerRows) -> None:
    lines[place(lines, "end", "flaky", 2)]["ok"] = False
    lines.extend([start(3, 50, "flaky", 1, 3), end(3, 50.1, "flaky", 1, 3)])


def runs_of_one_schedule_meet(lines: Lines, kept: LedgerRows) -> None:
    first = place(lines, "end", "minutely")
    lines[first]["t"] = 25 * SECOND


Spoil = Callable[[Lines, LedgerRows], object]

SPOILED: dict[str, tuple[Spoil, str, str]] = {
    "a one-shot is lost": (loses_all,
        "lost", "killed for"),
    "a recorded run never started": (lambda told, _: without(told, "killed"), "lost", "the ledger says succeeded"),
    "a minute is lost": (lambda _, kept: kept.spans["minutely"].clear(), "lost", f"minutely for {at(3)}"),
    "a minute is missed": (lambda _, kept: kept.spans["minutely"][0].update(verdict="missed"),
        "lost", "the ledger says missed"),
    "an interval ends early": (lambda _, kept: kept.runs.pop(run("rhythm", 3)), "lost", "before its time"),
    "an interval skips": (lambda _, kept: kept.runs.pop(run("rhythm", 2)), "lost", "comes 2 steps"),
    "given up too soon": (lambda _, kept: kept.runs[run("flaky", 1)].update(outcome="abandoned"),
        "lost", "given up after 0 deaths"),
    "repeated after a good end": (runs_twice, "repeats", "ended well"),
    "repeated with nobody dead": (lambda told, _: told.remove({"m": "killed", "w": 1, "t": 2 * SECOND}),
        "repeats", "attempt 2 of killed"),
    "repeated before the death": (lambda told, _: told[place(told, "start", "killed", 2)].update(t=round(1.5 * SECOND)),
        "repeats", "attempt 2 of killed"),
    "a pause too short": (lambda told, _: [line.update(t=2_500_000) for line in told if line["m"] == "pause"],
        "repeats", "attempt 2 of paused"),
    "one retry too many": (fails_again, "repeats", "the last that it may have"),
    "an attempt starts twice": (lambda told, _: told.append(start(2, 60, "minutely", 1)), "repeats", "had started in"),
    "at most once, twice": (lambda told, _: told.append(start(2, 60, "single", 1, 2)), "repeats", "may start once"),
    "another run id": (lambda told, _: told[place(told, "start", "killed", 2)].update(f=at(2)),
        "repeats", "is no run of the plan"),
    "a stale end is taken": (ends_late, "stale", "attempt 2 had been started by another"),
    "a stale attempt is taken": (lambda _, kept: kept.attempts.update({(run("paused", 1), 1): "succeeded"}),
        "stale", "was taken over, and is recorded as succeeded"),
    "ended by another": (lambda _, kept: kept.runs[run("killed", 1)].update(owner="here-102-abcdef01"),
        "stale", "and ran in worker 3"),
    "runs overlap": (runs_of_one_schedule_meet, "overlaps", "while minutely"),
    "an end is made up": (lambda told, _: told.pop(place(told, "end", "killed", 2)), "other", "the log has [None]"),
    "a live run is left": (lambda _, kept: kept.live.append(run("minutely", 4)), "other", "has not come to its end"),
    "started and folded": (lambda _, kept: kept.spans["minutely"][0].update(to_at=at(4)), "other", "coalesced as well"),
    "no occurrence": (lambda told, _: told.append(start(3, 70, "minutely", 9)), "other", "which is no occurrence"),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILED)
def test_what_is_planted_is_found(name: str) -> None:
    lines, kept = copy.deepcopy(log()), ledger()
    spoil, kind, said = SPOILED[name]
    spoil(lines, kept)
    found = check(plan(), read(lines), kept, LEASE)
    assert any(said in text for text in getattr(found, kind)), found.wrong
