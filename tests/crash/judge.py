"""Whether a journal and a ledger tell the same story, and a permitted one.

The journal is what the actions saw; the ledger is what the scheduler wrote. `judge` takes both and returns what does
not fit, as sentences:

1. Every start is an attempt of a run that the ledger knows, and no attempt starts twice.
2. A run that the ledger calls succeeded has an end in the journal, and its last attempt is the one that is recorded.
3. An action that was interrupted by a death starts again, under the same run, before anything else of its task.
4. A run starts again after it ended well only if a death came between, in the life of that end.
5. At a named point: what it says about each attempt in the middle of it (see `_check_death`).
6. An attempt that was interrupted is recorded as of unknown outcome. Of a run with many attempts, the first five and
   the last twenty stay on record.

That the ledger accounts for every occurrence is for `verify_store`; for the tasks of every minute it is counted here a
second time, by division.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MINUTE = 60_000_000
_FIRST_KEPT, _LAST_KEPT = 5, 20
Line = Mapping[str, Any]


@dataclass
class LedgerRows:
    """The rows, as far as they are needed; runs are (schedule id, run_for)."""

    ids: dict[int, tuple[str, str]] = field(default_factory=dict)  # sid -> schedule id, name
    ended: dict[str, tuple[str, int]] = field(default_factory=dict)  # run id -> outcome, attempts
    live: dict[str, tuple[str, int]] = field(default_factory=dict)  # run id -> state, attempts
    attempts: dict[tuple[str, int], str] = field(default_factory=dict)  # run id, attempt -> outcome
    minutes: dict[str, tuple[int, int]] = field(default_factory=dict)  # name -> minutes that passed, that are accounted


@dataclass
class Try:
    """One start in the journal."""

    task: str
    run: str
    attempt: int
    life: int
    end: bool | None = None  # whether it ended well; None: no end


@dataclass
class Journal:
    """The journal, read."""

    tries: dict[tuple[str, int], Try] = field(default_factory=dict)
    by_task: dict[str, list[Try]] = field(default_factory=dict)
    deaths: list[tuple[int, Line]] = field(default_factory=list)
    lives: int = 0
    wrong: list[str] = field(default_factory=list)


def read(journal: Iterable[Line]) -> Journal:
    story = Journal()
    for line in journal:
        what = line["what"]
        if what == "life":
            story.lives += 1
        elif what == "death":
            story.deaths.append((story.lives, line))
        elif what == "start":
            key = (line["run"], line["attempt"])
            if key in story.tries:
                story.wrong.append(f"{line['task']}: attempt {key[1]} of run {key[0]} started twice")
                continue
            story.tries[key] = one = Try(line["task"], *key, story.lives)
            story.by_task.setdefault(one.task, []).append(one)
        elif what == "end":
            story.tries[line["run"], line["attempt"]].end = line["ok"]
    return story


def judge(journal: Iterable[Line], ledger: LedgerRows) -> list[str]:
    story = read(journal)
    wrong = list(story.wrong)
    for tries in story.by_task.values():
        wrong.extend(_check_task(tries, ledger))
    wrong.extend(_check_ended(story, ledger))
    for life, death in story.deaths:
        wrong.extend(_check_death(story, ledger, life, death))
    for name, (passed, accounted) in ledger.minutes.items():
        if passed != accounted:
            wrong.append(f"{name}: {passed} minutes passed, {accounted} are accounted for")
    return wrong


def _check_task(tries: list[Try], ledger: LedgerRows) -> Iterable[str]:
    for one, following in zip(tries, [*tries[1:], None], strict=True):
        told = f"{one.task}: run {one.run}, attempt {one.attempt}"
        if one.run not in ledger.ended and one.run not in ledger.live:
            yield f"{told} started, but the ledger does not know the run"
        repeated = following is not None and following.run == one.run
        if one.end is None:
            if not repeated:
                yield f"{told} was interrupted and not started again before the next run"
            elif following is not None and following.life == one.life:
                yield f"{told} did not end, and started again in the same life"
            if _is_kept(ledger, one) and ledger.attempts.get((one.run, one.attempt)) != "unknown":
                yield f"{told} was interrupted, but is recorded as {ledger.attempts.get((one.run, one.attempt))}"
        elif one.end and repeated and following is not None:
            if following.life == one.life:
                yield f"{told} ended well, and started again with no death between"
            if _is_kept(ledger, one) and ledger.attempts.get((one.run, one.attempt)) != "unknown":
                yield f"{told} was repeated after its end, though its end is recorded"
    seen: dict[str, int] = {}
    for at, one in enumerate(tries):
        if one.run in seen and seen[one.run] != at - 1:
            yield f"{one.task}: run {one.run} started again after another run of its task"
        seen[one.run] = at


def _is_kept(ledger: LedgerRows, one: Try) -> bool:
    """Return whether an attempt has to be on record."""
    _, attempts = ledger.ended.get(one.run) or ledger.live.get(one.run) or ("", 0)
    return one.attempt <= _FIRST_KEPT or one.attempt > attempts - _LAST_KEPT


def _check_ended(story: Journal, ledger: LedgerRows) -> Iterable[str]:
    for run, (outcome, attempts) in ledger.ended.items():
        last = story.tries.get((run, attempts))
        if outcome == "succeeded" and (last is None or not last.end):
            yield f"run {run} is recorded as succeeded at attempt {attempts}, but the journal has no such end"
        if (run, attempts + 1) in story.tries:
            yield f"run {run} is recorded with {attempts} attempts, but attempt {attempts + 1} started"
        if outcome not in ("succeeded", "failed"):
            yield f"run {run} is recorded as {outcome}, which no task here can come to"


def _check_death(story: Journal, ledger: LedgerRows, life: int, death: Line) -> Iterable[str]:
    point = death["point"]
    if point == "in-callback":
        return  # an interrupted action: the rule for those holds it
    for sid, run_for, attempt in death["attempts"]:
        schedule, name = ledger.ids[sid]
        run = f"{schedule}:scheduled:{run_for}"
        one = story.tries.get((run, attempt))
        here = one is not None and one.life == life
        # not always the next attempt: that one may have been claimed by a life that died as well
        again = any(other.run == run and other.attempt > attempt for other in story.by_task.get(name, []))
        told = f"{name}: run {run}, attempt {attempt}, in the middle of {point}"
        # for each point: what would be wrong, and how that is said
        findings = {
            "before-claim-commit": [(here, "it had started before its claim was committed")],
            "after-claim-commit": [
                (one is not None, "this attempt never began, and yet it started"),
                (not again, "it was not started again"),
            ],
            "before-settle-commit": [
                (not here or one is None or one.end is None, "it was settled, but has not ended"),
                (not again, "its end was lost, and it was not started again"),
            ],
            "after-settle-commit": [
                (
                    death["ended"] and (run not in ledger.ended or again),
                    "its end was recorded, and yet it was started again",
                )
            ],
        }
        for is_wrong, how in findings[point]:
            if is_wrong:
                yield f"{told}: {how}"
