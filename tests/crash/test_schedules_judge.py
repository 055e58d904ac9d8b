"""The judge of durable schedules says nothing about a permitted story, and says what is wrong with others."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from noonbell.core.records import DeadLetter, OutboxMessage
from tests.crash.schedules_judge import MINUTE, LedgerRows, judge, judge_letters, read

NOON = 1_772_366_400_000_000
EVERY_MINUTE = "* * * * *"


def at(minutes: int) -> int:
    return NOON + minutes * MINUTE


def run(schedule: str, minutes: int) -> str:
    return f"{schedule}:scheduled:{at(minutes)}"


def line(what: str, life: int, minutes: int, **facts: Any) -> dict[str, Any]:
    return {"what": what, "life": life, "at": at(minutes), **facts}


def journal() -> list[dict[str, Any]]:
    """Two lives. The first is killed in the second run of `once-0`, after a message of `send-0` has come."""
    return [
        line("up", 1, 0),
        line("start", 1, 1, run=run("once-0", 1), attempt=1),
        line("end", 1, 1, run=run("once-0", 1), attempt=1, ok=True),
        line("received", 1, 1, run=run("send-0", 1)),
        line("edit", 1, 1, number=1, ids=["edited-0"], spec="5 * * * *", enabled=True),
        line("edited", 1, 1, number=1),
        line("start", 1, 2, run=run("once-0", 2), attempt=1),
        line("refused", 1, 2, run=run("send-0", 2)),
        line("received", 1, 2, run=run("send-0", 2)),
        line("up", 2, 20),
        line("received", 2, 20, run=run("send-0", 2)),
        line("start", 2, 20, run=run("once-0", 2), attempt=2),
        line("end", 2, 20, run=run("once-0", 2), attempt=2, ok=True),
        line("start", 2, 20, run=run("once-0", 20), attempt=1),
        line("end", 2, 20, run=run("once-0", 20), attempt=1, ok=True),
        line("start", 2, 40, run=run("skip-0", 21), attempt=1),
        line("end", 2, 40, run=run("skip-0", 21), attempt=1, ok=True),
    ]


def ledger() -> LedgerRows:
    made = LedgerRows()
    for schedule, policy, cursor in (
        ("once-0", "run_once", 20), ("send-0", "run_once", 2), ("skip-0", "skip", 21), ("edited-0", "run_once", 0),
    ):  # fmt: skip
        row = {"type": "cron", "catch_up_policy": policy, "cursor_at": at(cursor), "enabled": 1}
        made.schedules[schedule] = row
        made.epochs[schedule] = [epoch(1, 0, None, EVERY_MINUTE)]
    made.epochs["edited-0"] = [epoch(1, 0, 0, EVERY_MINUTE), epoch(2, 0, None, "5 * * * *")]
    for schedule, minute, attempts in (
        ("once-0", 1, 1), ("once-0", 2, 2), ("once-0", 20, 1), ("send-0", 1, 1), ("send-0", 2, 1), ("skip-0", 21, 1),
    ):  # fmt: skip
        made.runs[run(schedule, minute)] = {"run_for": at(minute), "outcome": "succeeded", "attempts": attempts}
    made.attempts[run("once-0", 2), 1] = "unknown"
    made.spans["once-0"] = [span(3, 19, 17, "coalesced")]
    made.spans["skip-0"] = [span(1, 20, 20, "missed")]
    made.schedules["skip-0"]["catch_up_policy"] = "skip"
    return made


def epoch(number: int, begins: int, ends: int | None, spec: str) -> dict[str, Any]:
    ends_at = None if ends is None else at(ends)
    return {"epoch": number, "from_at": at(begins), "to_at": ends_at, "spec": spec, "enabled": 1}


def span(first: int, last: int, n: int, verdict: str) -> dict[str, Any]:
    return {"from_at": at(first), "to_at": at(last), "n": n, "verdict": verdict, "reason": ""}


def test_a_permitted_story_passes() -> None:
    assert judge(read(journal()), ledger()) == []


@pytest.mark.parametrize(("fired", "said"), [(1, []), (2, ["once-0: a pruned day counts 19 of 18 occurrences"])])
def test_a_run_that_ended_after_its_day_was_pruned_is_not_counted_twice(fired: int, said: list[str]) -> None:
    kept = ledger()
    kept.spans["once-0"].clear()
    del kept.runs[run("once-0", 1)]
    day = at(0) // (1440 * MINUTE) * 1440 * MINUTE
    kept.pruned["once-0"] = [{"day": day, "first_at": at(1), "to_at": at(19), "fired": fired, "passed": 17}]
    assert judge(read(journal()), kept) == said


@pytest.mark.parametrize(
    ("attempts", "deaths", "explained"), [(10, 9, True), (10, 8, False), (9, 9, False), (11, 9, False)]
)
def test_a_dead_letter_needs_ten_attempts_and_a_reason_for_each(attempts: int, deaths: int, explained: bool) -> None:
    """The journal has one refusal of it."""
    message = OutboxMessage(1, "default", run("send-0", 2), "inbox", "{}", 0)
    wrong = list(judge_letters(read(journal()), [DeadLetter(1, message, 0, attempts, "")], deaths=deaths))
    assert (wrong == []) == explained


Spoil = Callable[[list[dict[str, Any]], LedgerRows], object]

SPOILED: dict[str, tuple[Spoil, str]] = {
    "a run is lost": (lambda _, kept: kept.runs.pop(run("once-0", 1)), "the ledger does not know it"),
    "a verdict is lost": (lambda _, kept: kept.spans["once-0"].clear(), "has no verdict"),
    "a verdict is doubled": (
        lambda _, kept: kept.spans["once-0"].append(span(20, 20, 1, "coalesced")), "has another verdict",
    ),
    "a span counts wrongly": (lambda _, kept: kept.spans["once-0"][0].update(n=16), "says 16, and there are 17"),
    "an end is lost": (lambda told, _: told.pop(2), "was cut off, but is recorded as None"),
    "an end is made up": (lambda told, _: told.__delitem__(slice(13, 15)), "the journal has []"),
    "a repeat in one life": (lambda told, _: told[11].update(life=1), "was repeated in the same life"),
    "an attempt starts twice": (lambda told, _: told.insert(2, told[1]), "started twice"),
    "a crash is not recorded": (lambda _, kept: kept.attempts.clear(), "was cut off, but is recorded as None"),
    "runs overlap": (lambda told, _: told.insert(13, told.pop(12)), "was executing"),
    "a message never comes": (lambda told, _: told.__delitem__(3), "has not arrived"),
    "messages out of order": (lambda told, _: told.insert(1, told.pop(8)), f"arrived before {run('send-0', 1)}"),
    "a message comes twice": (lambda told, _: told.insert(4, told[3]), "or twice"),
    "a message overtakes": (lambda told, _: told[7].update(run=run("send-0", 1)), "or twice"),
    "missed while up": (lambda told, _: told[9].update(at=at(5)), "though a life was up"),
    "missed though made up for": (
        lambda _, kept: kept.spans["once-0"][0].update(verdict="missed"), "one run has to be made up for",
    ),
    "an edit is lost": (lambda _, kept: kept.epochs["edited-0"].pop(), "acknowledged edit 1 is no epoch"),
    "an edit of nobody": (
        lambda _, kept: kept.epochs["edited-0"].append(epoch(3, 0, None, "6 * * * *")), "nobody asked for epoch 3",
    ),
    "a run is left over": (lambda _, kept: kept.live.append(run("once-0", 21)), "has not ended"),
    "given up too soon": (
        lambda _, kept: kept.runs[run("skip-0", 21)].update(outcome="abandoned"), "recorded as abandoned after 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILED)
def test_what_does_not_fit_is_told(name: str) -> None:
    told, kept = copy.deepcopy(journal()), ledger()
    spoil, said = SPOILED[name]
    spoil(told, kept)
    wrong = judge(read(told), kept)
    assert any(said in text for text in wrong), wrong
