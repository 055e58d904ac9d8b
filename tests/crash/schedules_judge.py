"""Whether a journal and a ledger of durable schedules tell the same story, and a permitted one.

The journal is what callbacks, the receiver of messages and the editor saw; the ledger is what was written. `judge`
returns what does not fit, as sentences:

1. Every start is an attempt of a run that the ledger knows; no attempt starts twice. A run that succeeded has an end
   in the journal, and its last attempt is the one that is recorded.
2. A start that was cut off, or whose end was lost, is repeated under the same run id in another life, and recorded as
   of unknown outcome. Nothing else is repeated but by a retry. At most once, and asked for by a person, mean one start.
   Within a life the runs of a schedule do not overlap, unless it allows that.
3. Every run that sends a message has arrived; first arrivals are in order; one life never brings a message twice.
4. For each cron schedule the minutes are walked: every occurrence has one verdict, and one that its policies allow.
   Nothing is missed while a life was up.
5. Every acknowledged edit is an epoch, in order; every acknowledged one-shot has one verdict; every run that a person
   asked for and got has ended.
6. Nothing is left over: no live run, no message, no dead letter.

It shares no arithmetic with the package. What was pruned is held against its counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, Final

from noonbell.actions.sender import MAX_ATTEMPTS
from noonbell.core.records import DeadLetter
from noonbell.ports import LEDGER_TABLES, Ledger
from tests.crash.schedules_declared import AT_MOST_ONCE, EDITED, is_quiet

MINUTE: Final = 60_000_000
DAY: Final = 86_400_000_000
# A life that was up for so long after an occurrence must have decided it, whatever stood in line before.
PATIENCE: Final = 10 * MINUTE
MOST_CRASHES: Final = 3

Line = Mapping[str, Any]
Row = dict[str, Any]


@dataclass
class LedgerRows:
    """The rows, by schedule or by run id."""

    schedules: dict[str, Row] = field(default_factory=dict)
    epochs: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    runs: dict[str, Row] = field(default_factory=dict)
    spans: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    attempts: dict[tuple[str, int], str] = field(default_factory=dict)
    pruned: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    live: list[str] = field(default_factory=list)
    crashes: int = 0

    def is_pruned(self, run: str) -> bool:
        """Whether its day was dropped. A manual run goes uncounted: what went with it tells the day."""
        schedule, kind, run_for = run.rsplit(":", 2)
        day = int(run_for) // DAY * DAY
        rows = self.pruned[schedule] if kind == "scheduled" else chain.from_iterable(self.pruned.values())
        return any(row["day"] == day for row in rows)


async def read_ledger(store: Ledger) -> LedgerRows:
    async def rows(table: Any) -> list[Row]:
        columns = LEDGER_TABLES[table].columns
        return [dict(zip(columns, row, strict=True)) for row in await store.read(table, None, 1_000_000)]

    ledger = LedgerRows()
    ids: dict[int, str] = {}
    for row in await rows("schedules"):
        ids[row["sid"]] = row["schedule_id"]
        ledger.schedules[row["schedule_id"]] = row

    def run_of(row: Row) -> str:
        return f"{ids[row['sid']]}:{row['kind']}:{row['run_for']}"

    for table in ("epochs", "spans", "pruned"):
        for row in await rows(table):
            getattr(ledger, table)[ids[row["sid"]]].append(row)
    ledger.runs = {run_of(row): row for row in await rows("runs")}
    ledger.attempts = {(run_of(row), row["attempt"]): row["outcome"] for row in await rows("attempts")}
    ledger.live = [run_of(row) for row in await rows("live")]
    ledger.crashes = sum(row["event"] == "crash" for row in await rows("lifecycle"))
    return ledger


@dataclass
class Try:
    """One start in the journal."""

    attempt: int
    life: int
    end: bool | None = None  # whether it ended well; None: no end


@dataclass
class Journal:
    """The journal, read."""

    tries: dict[str, list[Try]] = field(default_factory=lambda: defaultdict(list))
    arrivals: dict[str, list[tuple[str, int, bool]]] = field(default_factory=lambda: defaultdict(list))
    edits: list[Line] = field(default_factory=list)
    acknowledged: set[int] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    executing: dict[tuple[int, str], set[str]] = field(default_factory=lambda: defaultdict(set))  # by life and schedule
    up: list[tuple[int, int]] = field(default_factory=list)  # stretches in which a life is known to have been up
    wrong: list[str] = field(default_factory=list)

    @property
    def interrupted(self) -> int:
        return sum(one.end is None for tries in self.tries.values() for one in tries)

    @property
    def repeated(self) -> int:
        """Starts of runs that had been cut off, or had ended well."""
        return sum(one.end is not False for tries in self.tries.values() for one in tries[:-1])

    @property
    def brought_again(self) -> int:
        arrived = Counter(run for stream in self.arrivals.values() for run, _, ok in stream if ok)
        return sum(count - 1 for count in arrived.values())


def read(journal: Iterable[Line]) -> Journal:
    story = Journal()
    up_since: dict[int, int] = {}
    last_seen: dict[int, int] = {}
    for line in journal:
        what, life = line["what"], line["life"]
        last_seen[life] = line["at"]
        if what in ("start", "end"):
            _read_try(story, line)
        elif what in ("received", "refused"):
            schedule = line["run"].rsplit(":", 2)[0]
            story.arrivals[schedule].append((line["run"], life, what == "received"))
        elif what == "edit":
            story.edits.append(line)
        elif what == "edited":
            story.acknowledged.add(line["number"])
        elif what == "asked":
            story.asked.append(line["run"])
        elif what == "created":
            story.created.append(line["id"])
        elif what in ("up", "gap"):
            up_since[life] = line["at"]
    story.up = [(began, last_seen[life]) for life, began in up_since.items()]
    return story


def _read_try(story: Journal, line: Line) -> None:
    tries = story.tries[line["run"]]
    known = [one for one in tries if one.attempt == line["attempt"]]
    executing = story.executing[line["life"], line["run"].rsplit(":", 2)[0]]
    if line["what"] == "end":
        known[0].end = line["ok"]
        executing.discard(line["run"])
        return
    if executing and not line["run"].startswith("allow:"):
        story.wrong.append(f"{line['run']} started in life {line['life']} while {min(executing)} was executing")
    executing.add(line["run"])
    if known:
        story.wrong.append(f"attempt {line['attempt']} of {line['run']} started twice")
    tries.append(Try(line["attempt"], line["life"]))


def judge(story: Journal, ledger: LedgerRows, *, patience: int = PATIENCE) -> list[str]:
    """What is wrong; `patience` is how long after an occurrence a life may be up and not have decided it."""
    wrong = list(story.wrong)
    for run, tries in story.tries.items():
        wrong.extend(_check_run(run, tries, ledger))
    wrong.extend(_check_ended(story, ledger))
    for schedule, stream in story.arrivals.items():
        wrong.extend(_check_stream(schedule, stream, ledger))
    for schedule, row in ledger.schedules.items():
        if row["type"] == "cron":
            wrong.extend(_check_minutes(schedule, ledger))
        wrong.extend(_check_verdicts(schedule, ledger, story, patience))
    wrong.extend(_check_edits(story, ledger))
    wrong.extend(f"{run} has not ended" for run in ledger.live)
    return wrong


# --- runs -------------------------------------------------------------------------------------------------------------


def _check_run(run: str, tries: list[Try], ledger: LedgerRows) -> Iterator[str]:
    schedule, kind, _ = run.rsplit(":", 2)
    if len(tries) > 1 and (kind == "manual" or schedule == AT_MOST_ONCE):
        yield f"{run} started {len(tries)} times, and may start once"
    # One that was taken for dead may begin an attempt of its own after the next one has: they are told in their order.
    tries = sorted(tries, key=lambda one: one.attempt)
    for one, following in pairwise(tries):
        if one.end is not False and following.life == one.life:
            ended = "ended well" if one.end else "did not end"
            yield f"attempt {one.attempt} of {run} {ended}, and was repeated in the same life"
    row = ledger.runs.get(run)
    if row is None:
        if run not in ledger.live and not ledger.is_pruned(run):
            yield f"{run} started, but the ledger does not know it"
        return
    for one in tries:
        recorded = ledger.attempts.get((run, one.attempt))
        lost = one.end is None or (one.end and one is not tries[-1])
        if lost and recorded != "unknown":
            yield f"attempt {one.attempt} of {run} was cut off, but is recorded as {recorded}"


def _check_ended(story: Journal, ledger: LedgerRows) -> Iterator[str]:
    for run, row in ledger.runs.items():
        schedule, kind, _ = run.rsplit(":", 2)
        outcome, tries = row["outcome"], story.tries.get(run, [])
        if schedule.startswith("send-"):
            if outcome != "succeeded":
                yield f"{run} is recorded as {outcome}: a message that was written has succeeded"
            if not any(arrived == run and ok for arrived, _, ok in story.arrivals[schedule]):
                yield f"{run} is recorded as sent, and has not arrived"
        elif outcome in ("succeeded", "failed"):
            ends = [one.end for one in tries if one.attempt == row["attempts"]]
            if ends != [outcome == "succeeded"]:
                yield f"{run} is recorded as {outcome} at attempt {row['attempts']}; the journal has {ends}"
        elif outcome == "unknown":
            if kind != "manual" and schedule != AT_MOST_ONCE:
                yield f"{run} is recorded as unknown, and ought to have been repeated"
        elif row["attempts"] < MOST_CRASHES:
            yield f"{run} is recorded as {outcome} after {row['attempts']} attempts"
        latest = max((one.attempt for one in tries), default=0)
        if latest > row["attempts"]:
            yield f"{run} is recorded with {row['attempts']} attempts, but attempt {latest} started"


def _check_stream(schedule: str, stream: list[tuple[str, int, bool]], ledger: LedgerRows) -> Iterator[str]:
    furthest = 0
    reached: dict[int, int] = {}  # how far each life has come
    refused: dict[int, str] = {}  # what each life has to bring next
    for run, life, ok in stream:
        place = int(run.rpartition(":")[2])
        if run not in ledger.runs and not ledger.is_pruned(run):
            yield f"{run} arrived, but the ledger does not know it"
        if place <= reached.get(life, 0):
            yield f"{run} arrived in life {life} after a later one, or twice"
        if refused.pop(life, run) != run:
            yield f"{run} came before one that had been refused and has to come again"
        if not ok:
            refused[life] = run
            continue
        reached[life] = place
        if place > furthest:
            between = [other for other in ledger.runs if other.rsplit(":", 2)[0] == schedule]
            skipped = [other for other in between if furthest < int(other.rpartition(":")[2]) < place]
            if skipped:
                yield f"{run} arrived before {skipped[0]}"
            furthest = place


def judge_letters(story: Journal, letters: Iterable[DeadLetter], *, deaths: int) -> Iterator[str]:
    """A message is given up after ten tries: each was refused, or ended with the process."""
    for letter in letters:
        run = letter.message.message_id
        arrivals = story.arrivals[run.rsplit(":", 2)[0]]
        refused = sum(arrived == run and not ok for arrived, _, ok in arrivals)
        if not MAX_ATTEMPTS <= letter.attempts <= refused + deaths:
            told = f"{refused} refusals and {deaths} deaths"
            yield f"{run} is a dead letter after {letter.attempts} attempts, and there were {told}"


# --- verdicts ---------------------------------------------------------------------------------------------------------


def _check_minutes(schedule: str, ledger: LedgerRows) -> Iterator[str]:
    """Walk the minutes of each epoch and cross off what has a verdict."""
    cursor = ledger.schedules[schedule]["cursor_at"]
    left: set[int] = set()
    for epoch in ledger.epochs[schedule]:
        if epoch["enabled"] and epoch["spec"].endswith(" * * * *"):
            upto = min(cursor, cursor if epoch["to_at"] is None else epoch["to_at"])
            left.update(_minutes(epoch["spec"], epoch["from_at"], upto))
    # a run that ends after its day has gone stays until the day is pruned again
    stayed = {row["run_for"] for run, row in ledger.runs.items() if run.startswith(f"{schedule}:scheduled:")}
    for row in ledger.pruned[schedule]:
        counted = {minute for minute in left - stayed if row["first_at"] <= minute <= row["to_at"]}
        if len(counted) != row["fired"] + row["passed"]:
            yield f"{schedule}: a pruned day counts {row['fired'] + row['passed']} of {len(counted)} occurrences"
        left -= counted
    for span in ledger.spans[schedule]:
        covered = {minute for minute in left if span["from_at"] <= minute <= span["to_at"]}
        if len(covered) != span["n"]:
            yield f"{schedule}: the span from {span['from_at']} says {span['n']}, and there are {len(covered)} left"
        left -= covered
    for run_for in sorted(stayed - left):
        yield f"{schedule}:scheduled:{run_for} is no occurrence, or has another verdict"
    left -= stayed
    yield from (f"{schedule}: {minute} has no verdict" for minute in sorted(left)[:3])


def _minutes(spec: str, after: int, upto: int) -> Iterator[int]:
    field_text = spec.split(" ", 1)[0]
    wanted = set(range(60)) if field_text == "*" else {int(part) for part in field_text.split(",")}
    for minute in range(after // MINUTE + 1, upto // MINUTE + 1):
        if minute % 60 in wanted:
            yield minute * MINUTE


def _check_verdicts(schedule: str, ledger: LedgerRows, story: Journal, patience: int) -> Iterator[str]:
    """Whether its policies allow what became of its occurrences."""
    row = ledger.schedules[schedule]
    for span in ledger.spans[schedule]:
        told = f"{schedule}: {span['n']} from {span['from_at']} to {span['to_at']} are {span['verdict']}"
        if span["verdict"] == "missed":
            if row["catch_up_policy"] == "run_once":
                yield f"{told}, but one run has to be made up for"
            for began, seen in story.up:
                if began < span["to_at"] and max(began, span["from_at"]) + patience <= seen:
                    yield f"{told}, though a life was up from {began} to {seen}"
        elif span["verdict"] == "skipped" and not _may_be_skipped(schedule, span):
            yield f"{told} ({span['reason']}), which its policies do not say"
    fired = [run for run in ledger.runs if run.startswith(f"{schedule}:scheduled:")]
    if schedule == "quiet":
        loud = (run for run in fired if is_quiet(ledger.runs[run]["run_for"] // MINUTE))
        yield from (f"{run} was fired in quiet hours" for run in loud)
    if schedule.startswith("shot-") and not ledger.pruned[schedule]:
        verdicts = len(fired) + sum(span["n"] for span in ledger.spans[schedule])
        if verdicts > 1 or (verdicts == 0 and row["enabled"]):
            yield f"{schedule} has {verdicts} verdicts"


def _may_be_skipped(schedule: str, span: Row) -> bool:
    if schedule == "quiet":
        return is_quiet(span["from_at"] // MINUTE) and is_quiet(span["to_at"] // MINUTE)
    return schedule == "overlap-skip" and bool(span["reason"] == "overlap")


def _check_edits(story: Journal, ledger: LedgerRows) -> Iterator[str]:
    for schedule in EDITED:
        asked = [edit for edit in story.edits if schedule in edit["ids"]]
        epochs = ledger.epochs[schedule]
        at = 0
        for before, epoch in pairwise(epochs):
            while at < len(asked) and not _is_that(asked[at], before, epoch):
                if asked[at]["number"] in story.acknowledged:
                    yield f"{schedule}: the acknowledged edit {asked[at]['number']} is no epoch"
                at += 1
            if at == len(asked):
                yield f"{schedule}: nobody asked for epoch {epoch['epoch']} ({epoch['spec']})"
                break
            at += 1
        for edit in asked[at:]:
            if edit["number"] in story.acknowledged:
                yield f"{schedule}: the acknowledged edit {edit['number']} is no epoch"
    for run in story.asked:
        if run not in ledger.runs and not ledger.is_pruned(run):
            yield f"{run} was asked for and acknowledged, and the ledger does not know it"
    for schedule in story.created:
        if schedule not in ledger.schedules:
            yield f"{schedule} was acknowledged, and is not there"


def _is_that(edit: Line, before: Row, epoch: Row) -> bool:
    return (bool(epoch["enabled"]), epoch["spec"]) == (edit["enabled"], edit.get("spec", before["spec"]))
