"""Whether a cluster ran what it had to: the targets' log against the plan, and the ledger against both.

`check` answers with sentences, sorted by what they are about:

- `lost`: an occurrence that is past, and neither started nor folded into a later start as its policies allow;
- `repeats`: a second start that no configured retry, no death between the start and the recorded end, and no pause
  longer than the lease explains; a second start of one attempt, or of what may start once only; another run id;
- `stale`: an end that the ledger took from a worker whose run another had taken over;
- `overlaps`: two runs of a schedule at once, not explained by such a pause;
- `other`: whatever else does not fit, `verify` included.

It computes occurrences from the specs by its own plain arithmetic (see `plan`), and shares no code with the decisions.
What explains a repeat is the evidence of the run that did it to the worker, never what the product says of itself.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from tests.crash.schedules_judge import MOST_CRASHES, LedgerRows, Row
from tests.faults.cluster.catch_up import Unpolled, caught_up
from tests.faults.cluster.plan import Plan, Wanted

# A lease is renewed three times in its life, and where that fails a little later: a pause of half of it may end it.
_LAPSED: Final = 0.5
# A claim is committed before its start is logged; a pause may come between.
_CLAIM_US: Final = 2_000_000
_PROCESS: Final = re.compile(r"-(\d+)-[0-9a-f]+$")
_NEVER: Final = 1 << 62

Line = Mapping[str, Any]


@dataclass
class Try:
    """One start in the log."""

    run: str
    schedule: str
    run_for: int
    attempt: int
    worker: int
    at: int
    ended_at: int | None = None
    ok: bool | None = None  # None: no end


@dataclass
class Journal:
    """The log, read."""

    tries: list[Try] = field(default_factory=list)
    killed: dict[int, int] = field(default_factory=dict)  # worker to when, at the earliest
    dead: dict[int, int] = field(default_factory=dict)  # the same at the latest
    pauses: dict[int | None, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    processes: dict[int, int] = field(default_factory=dict)  # pid to worker
    gone: dict[int, bool] = field(default_factory=dict)  # worker to whether it had to cut nothing off
    stalls: list[tuple[int, int, int]] = field(default_factory=list)  # worker, from, to

    def by_run(self) -> dict[str, list[Try]]:
        found: dict[str, list[Try]] = defaultdict(list)
        for one in self.tries:
            found[one.run].append(one)
        for tries in found.values():
            tries.sort(key=lambda one: (one.attempt, one.at))
        return found

    def closed_at(self, one: Try) -> int:
        """When it was over: by its end, or by the death of its worker."""
        return one.ended_at if one.ended_at is not None else self.killed.get(one.worker, _NEVER)

    def stood_still(self, worker: int, upto: int, since: int, least_us: float) -> bool:
        """Whether the worker was paused for so long by `upto`, in a pause that was not over by `since`."""
        both = (*self.pauses[worker], *self.pauses[None])
        return any(end >= since and min(end, upto) - begin >= least_us for begin, end in both)

    def worker_of(self, owner: str) -> int | None:
        found = _PROCESS.search(owner)
        return None if found is None else self.processes.get(int(found[1]))


def read(lines: Iterable[Line]) -> Journal:
    story = Journal()
    open_tries: dict[tuple[str, int, int], Try] = {}
    for line in lines:
        mark, worker, at = line["m"], line["w"], line["t"]
        if mark == "start":
            one = Try(line["r"], line["i"], line["f"], line["a"], worker, at)
            story.tries.append(one)
            open_tries[one.run, one.attempt, worker] = one
        elif mark == "end":
            ended = open_tries.pop((line["r"], line["a"], worker))
            ended.ended_at, ended.ok = at, line["ok"]
        elif mark == "up":
            story.processes[line["p"]] = worker
        elif mark == "gone":
            story.gone[worker] = line["whole"]
        elif mark == "killed":
            story.killed.setdefault(worker, line.get("t0", at))
            story.dead.setdefault(worker, at)
        elif mark == "pause":
            story.pauses[worker].append((line["t0"], at))
        elif mark == "stall":
            story.stalls.append((worker, line["t0"], at))
    # a worker that was stopped tells of that as well
    story.stalls = [stall for stall in story.stalls if not _was_meant(story, *stall)]
    for worker, begin, end in story.stalls:
        story.pauses[worker].append((begin, end))
    return story


def _was_meant(story: Journal, worker: int, begin: int, end: int) -> bool:
    return any(began <= end and begin <= ended for began, ended in story.pauses[worker])


@dataclass
class Findings:
    """What is wrong, and what happened."""

    lost: list[str] = field(default_factory=list)
    repeats: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    overlaps: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    recovery: list[float] = field(default_factory=list)  # seconds from a death or pause to the first orphan's start
    restarts: list[float] = field(default_factory=list)  # seconds from a death to the start of each run of one death
    starts: int = 0
    interrupted: int = 0
    repeated: int = 0  # with an explanation
    given_up: int = 0
    stalls: int = 0

    @property
    def wrong(self) -> list[str]:
        kinds = ("lost", "repeats", "stale", "overlaps", "other")
        return [f"{kind}: {text}" for kind in kinds for text in getattr(self, kind)]


def check(
    plan: Plan,
    story: Journal,
    ledger: LedgerRows,
    lease_seconds: float | None,
    unpolled: Sequence[Unpolled] | None = None,
) -> Findings:
    """What the log and the ledger say of the plan. Without a lease no pause explains anything.

    With `unpolled` the lane had one worker at a time, and occurrences are judged by the catch-up policies.
    """
    least_us = _NEVER if lease_seconds is None else lease_seconds * _LAPSED * 1_000_000
    found = Findings(starts=len(story.tries), stalls=len(story.stalls))
    by_run = story.by_run()
    for run, tries in by_run.items():
        _check_run(plan, story, run, tries, least_us, found)
        _check_recorded(story, run, tries, ledger, found)
    started: dict[str, set[int]] = defaultdict(set)
    for one in story.tries:
        started[one.schedule].add(one.run_for)
    for wanted in plan.wanted.values():
        if unpolled is None:
            _check_occurrences(wanted, started[wanted.schedule_id], ledger, found)
        else:
            found.lost.extend(caught_up(wanted, started[wanted.schedule_id], ledger, unpolled))
    for run, row in ledger.runs.items():
        _check_ended(plan, story, run, row, by_run.get(run, []), ledger, found)
    found.other.extend(f"{run} has not come to its end" for run in ledger.live)
    found.overlaps.extend(_overlaps(story, least_us))
    found.recovery = [*_recoveries(story, by_run)]
    found.restarts = [*_restarts(story, by_run)]
    found.interrupted = sum(one.ok is None for one in story.tries)
    found.repeated = sum(one.ok is not False for tries in by_run.values() for one in tries[:-1])
    return found


# --- runs -------------------------------------------------------------------------------------------------------------


def _check_run(plan: Plan, story: Journal, run: str, tries: list[Try], least_us: float, found: Findings) -> None:
    wanted = plan.wanted.get(tries[0].schedule)
    if wanted is None or any(run != f"{wanted.schedule_id}:scheduled:{one.run_for}" for one in tries):
        found.repeats.append(f"{run} is no run of the plan, or was given to another occurrence")
        return
    if len(tries) > 1 and wanted.at_most_once:
        found.repeats.append(f"{run} started {len(tries)} times, and may start once")
    for one, following in pairwise(tries):
        told = f"attempt {following.attempt} of {run} started in worker {following.worker}"
        if following.attempt == one.attempt:
            found.repeats.append(f"{told}, and had started in worker {one.worker}")
        elif one.ok is False:
            if one.attempt >= wanted.attempts and not _was_cut(story, tries, least_us):
                found.repeats.append(f"{told}, though attempt {one.attempt} was the last that it may have")
        elif not _explained(story, one, following, least_us):
            end = "has not ended" if one.ok is None else "ended well"
            found.repeats.append(f"{told}, though attempt {one.attempt} in worker {one.worker} {end}")
    for one in tries:
        # one that was taken for dead cuts off what it has
        cut = one.worker in story.killed or story.stood_still(one.worker, _NEVER, one.at - _CLAIM_US, least_us)
        if one.ok is None and not cut:
            found.other.append(f"attempt {one.attempt} of {run} did not end, though worker {one.worker} was not killed")


def _explained(story: Journal, one: Try, following: Try, least_us: float) -> bool:
    """By a death after the start and before the repeat, or by a pause that outlasted the lease."""
    killed_at = story.killed.get(one.worker)
    if killed_at is not None and killed_at <= following.at and one.at <= story.dead[one.worker]:
        return True
    return story.stood_still(one.worker, following.at, one.at - _CLAIM_US, least_us)


def _was_cut(story: Journal, tries: list[Try], least_us: float) -> bool:
    """Whether an attempt before the last was cut off: then it does not count among those that may fail."""
    return any(
        one.ok is not False and _explained(story, one, following, least_us) for one, following in pairwise(tries)
    )


def _check_recorded(story: Journal, run: str, tries: list[Try], ledger: LedgerRows, found: Findings) -> None:
    """What was taken over must be on record as that, whatever its old holder said later."""
    row = ledger.runs.get(run)
    if row is None:
        if run not in ledger.live:
            found.other.append(f"{run} started, and the ledger does not know it")
        return
    if tries[-1].attempt > row["attempts"]:
        told = f"{run} is recorded as {row['outcome']} at attempt {row['attempts']}"
        found.stale.append(f"{told}, and attempt {tries[-1].attempt} had been started by another")
    for one, _ in pairwise(tries):
        recorded = ledger.attempts.get((run, one.attempt))
        if one.ok is not False and recorded != "unknown":
            found.stale.append(f"attempt {one.attempt} of {run} was taken over, and is recorded as {recorded}")


def _check_ended(
    plan: Plan, story: Journal, run: str, row: Row, tries: list[Try], ledger: LedgerRows, found: Findings
) -> None:
    wanted = plan.wanted[run.rsplit(":", 2)[0]]
    outcome = row["outcome"]
    last = [one for one in tries if one.attempt == row["attempts"]]
    if outcome in ("succeeded", "failed"):
        if [one.ok for one in last] != [outcome == "succeeded"]:
            ends = [one.ok for one in last]
            found.other.append(f"{run} is recorded as {outcome} at attempt {row['attempts']}; the log has {ends}")
        elif story.worker_of(row["owner"]) not in (None, last[0].worker):
            found.stale.append(f"{run} was ended by {row['owner']}, and ran in worker {last[0].worker}")
    elif outcome == "unknown":
        if not wanted.at_most_once:
            found.lost.append(f"{run} is recorded as unknown, and has to be repeated")
        elif any(one.ok is not None and _has_lived(story, one) for one in tries):
            found.other.append(f"{run} is recorded as unknown, and its worker lived")
    else:
        found.given_up += 1
        deaths = sum(ledger.attempts.get((run, number)) == "unknown" for number in range(1, row["attempts"] + 1))
        if deaths < MOST_CRASHES:
            found.lost.append(f"{run} was given up after {deaths} deaths")


def _has_lived(story: Journal, one: Try) -> bool:
    return one.worker not in story.killed and not story.pauses[one.worker] and not story.pauses[None]


# --- occurrences ------------------------------------------------------------------------------------------------------


def _check_occurrences(wanted: Wanted, started: set[int], ledger: LedgerRows, found: Findings) -> None:
    schedule = wanted.schedule_id
    if schedule not in ledger.schedules:
        found.lost.append(f"{schedule} is not in the ledger")
        return
    if wanted.type == "interval":
        found.lost.extend(_missing_links(wanted, started, ledger))
        return
    folded = _folded(ledger.spans[schedule])
    known = set(wanted.occurrences())
    latest = max(started, default=0)
    for at in sorted(known - started):
        verdict = folded.get(at)
        recorded = ledger.runs.get(f"{schedule}:scheduled:{at}")
        if recorded is not None and wanted.at_most_once and recorded["outcome"] == "unknown":
            continue  # claimed and never begun
        if recorded is not None and recorded["outcome"] == "abandoned":
            continue  # judged with the runs
        if verdict != "coalesced" or at > latest:
            found.lost.append(f"{schedule} for {at} has not started; the ledger says {verdict or _said(recorded)}")
    found.other.extend(f"{schedule} started for {at}, which is no occurrence" for at in sorted(started - known))
    twice = started & folded.keys()
    found.other.extend(f"{schedule} for {at} started, and is {folded[at]} as well" for at in sorted(twice))


def _said(recorded: Row | None) -> str:
    return "nothing" if recorded is None else str(recorded["outcome"])


def _folded(spans: list[Row]) -> dict[int, str]:
    """Minutes that were passed over, with their verdicts."""
    minute = 60_000_000
    return {at: span["verdict"] for span in spans for at in range(span["from_at"], span["to_at"] + 1, minute)}


def _missing_links(wanted: Wanted, started: set[int], ledger: LedgerRows) -> Iterator[str]:
    """Each run comes its distance after the start of the one before, less what was folded into it."""
    schedule = wanted.schedule_id
    runs = sorted((row for run, row in ledger.runs.items() if run.rsplit(":", 2)[0] == schedule), key=_run_for)
    if not runs or (runs[0]["run_for"] != wanted.first and not ledger.spans[schedule]):
        yield f"{schedule} has not begun at {wanted.first}"
        return
    for row in runs:
        if row["run_for"] not in started and row["outcome"] != "abandoned":
            yield f"{schedule} for {row['run_for']} is recorded as {row['outcome']}, and has not started"
    for before, after in pairwise(runs):
        steps, rest = divmod(after["run_for"] - before["started_at"], wanted.every)
        passed = sum(
            span["n"] for span in ledger.spans[schedule] if before["run_for"] < span["from_at"] < after["run_for"]
        )
        if rest or steps - 1 != passed:
            yield f"{schedule}: {after['run_for']} comes {steps} steps and {rest} us after the start before it"
    if runs[-1]["started_at"] + wanted.every <= wanted.last:
        yield f"{schedule} has ended with {runs[-1]['run_for']}, before its time"


def _run_for(row: Row) -> int:
    return int(row["run_for"])


# --- runs at once, and how soon they are taken up -------------------------------------------------------------------


def _overlaps(story: Journal, least_us: float) -> Iterator[str]:
    by_schedule: dict[str, list[Try]] = defaultdict(list)
    for one in story.tries:
        by_schedule[one.schedule].append(one)
    for tries in by_schedule.values():
        executing: list[Try] = []
        for one in sorted(tries, key=lambda one: one.at):
            executing = [other for other in executing if story.closed_at(other) > one.at]
            for other in executing:
                still = (story.stood_still(who.worker, one.at, other.at - _CLAIM_US, least_us) for who in (one, other))
                if not any(still):
                    yield f"{one.run} started in worker {one.worker} while {other.run} ran in {other.worker}"
            executing.append(one)


def _recoveries(story: Journal, by_run: Mapping[str, list[Try]]) -> Iterator[float]:
    """For each death or pause that left something executing: how long until the first of it began again."""
    stopped = list(story.killed.items())
    stopped += [(worker, at) for worker, pauses in story.pauses.items() if worker is not None for at, _ in pauses]
    followed: dict[int, list[tuple[Try, Try]]] = defaultdict(list)
    for tries in by_run.values():
        for one, following in pairwise(tries):
            followed[one.worker].append((one, following))
    for worker, begin in stopped:
        again = [
            following.at - begin
            for one, following in followed[worker]
            if one.at <= begin <= following.at and story.closed_at(one) >= begin
        ]
        if again:
            yield min(again) / 1_000_000


def _restarts(story: Journal, by_run: Mapping[str, list[Try]]) -> Iterator[float]:
    """For each run whose first attempt was executing at a death: how long until it began again."""
    for tries in by_run.values():
        for one, following in pairwise(tries[:2]):
            died = story.killed.get(one.worker)
            if one.attempt == 1 and died is not None and one.at <= died <= min(following.at, story.closed_at(one)):
                yield (following.at - died) / 1_000_000


def spread(story: Journal) -> dict[int, int]:
    """How many starts each worker had."""
    return dict(Counter(one.worker for one in story.tries))
