"""`verify_store`: proof that a ledger is complete and consistent, or the list of what is wrong with it.

Steps:

1. The lifecycle of each owner is read: starts, stops and crashes have to follow each other sensibly.
2. Occurrences that are recorded as missed because no poll came in time have to lie in a recorded gap between polls.
3. Schedules are taken in groups. Of each group the epochs, live runs, spans and the keys of attempts are read, then the
   runs are read once, in the order of time, and each schedule's audit takes its own (see `schedule_audit`).
4. Rows that belong to no schedule are reported.

Tables are read in short pages and not in one snapshot, so a ledger can be verified while it is being written to. What
looks wrong is therefore read a second time, and only what is still wrong then is reported.

Memory: a group of schedules, two whole numbers for each of their spans, one for each run with recorded attempts; of
runs no more than a page. No occurrence is enumerated.

What it does not do: it does not say whether an action did its work, nor whether a clock was right.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Container, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from noonbell.core.ids import KINDS
from noonbell.ledger.ledger_rows import is_instant, iso, rows
from noonbell.ledger.lifecycle import LifecycleCheck
from noonbell.ledger.links import pruned_part
from noonbell.ledger.policies import StoredQuietHours, stored_quiet_hours
from noonbell.ledger.row_checks import PollCheck, check_live, check_wake_up
from noonbell.ledger.schedule_audit import CLOCK_SKEW, ScheduleAudit
from noonbell.ports import LEDGER_TABLES, Ledger, LedgerTable

MOST_PROBLEMS: Final = 1_000
_GROUP: Final = 50_000
_NEAR: Final = 20
_OUTCOMES: Final = ("succeeded", "failed", "abandoned", "unknown")


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong. `text` is a sentence that names the schedule and the occurrence."""

    kind: str
    text: str
    schedule: str | None
    sid: int | None
    managed_by: str | None
    at: int | None


class Report(msgspec.Struct):
    """The number of rows that were checked, and what is wrong.

    Remarks are not problems: they name a clock that was set, or zone rules that changed. Beyond MOST_PROBLEMS only
    the number is kept, in `more`.
    """

    problems: list[Problem]
    remarks: list[str]
    more: int = 0
    schedules: int = 0
    occurrences: int = 0
    runs: int = 0
    spans: int = 0
    pruned: int = 0

    @property
    def clean(self) -> bool:
        """True if nothing is wrong."""
        return not self.problems

    def keep_common(self, again: Report) -> None:
        """Keep the problems that a second pass has found as well."""
        still = {problem.text for problem in again.problems}
        self.problems = [problem for problem in self.problems if problem.text in still]
        self.more = min(self.more, again.more)


async def verify_store(
    store: Ledger,
    *,
    managed_by: str | None = None,
    from_at: int | None = None,
    to_at: int | None = None,
    clock_skew: int = CLOCK_SKEW,
) -> Report:
    """Verify an open store: all of it, or one owner's schedules, or the occurrences from `from_at` to `to_at`.

    Runs that overlap by no more than `clock_skew` microseconds are taken for the clocks of two engines that differ.
    """
    report = await _Pass(store, managed_by, from_at, to_at, clock_skew=clock_skew).run()
    if report.problems:
        troubled = {problem.sid for problem in report.problems}
        report.keep_common(await _Pass(store, managed_by, from_at, to_at, troubled, clock_skew=clock_skew).run())
    return report


async def verify_schedules(
    store: Ledger, sids: Sequence[int], *, from_at: int | None = None, to_at: int | None = None
) -> Report:
    """Verify some schedules and nothing else: no lifecycles, no rows without a schedule.

    It reads their rows, and passes over the runs of others in the same time: bound it by `from_at` where others run
    often.
    """
    report = await _Pass(store, None, from_at, to_at, frozenset(sids)).run_some(sids)
    if report.problems:
        report.keep_common(await _Pass(store, None, from_at, to_at, frozenset(sids)).run_some(sids))
    return report


class _Everything(set[int]):
    """All sids: where only some schedules are verified, no row is a stray."""

    def __contains__(self, sid: object) -> bool:
        return True


class _Pass:
    """One pass over the ledger; with `only`, over the schedules of these sids and rows without a schedule."""

    def __init__(
        self,
        store: Ledger,
        managed_by: str | None,
        from_at: int | None,
        to_at: int | None,
        only: Container[int | None] | None = None,
        *,
        clock_skew: int = CLOCK_SKEW,
    ) -> None:
        self._store = store
        self._managed_by = managed_by
        self._from_at = from_at
        self._to_at = to_at
        self._only = only
        self._clock_skew = clock_skew
        self._some = False  # whether the rows of others are passed over
        self._report = Report([], [])
        self._audits: dict[int, ScheduleAudit] = {}
        self._known: set[int] = set()
        self._quiet: dict[str, StoredQuietHours] = {}
        self._bounds: tuple[int | None, int | None] = (None, None)
        self._lifecycles = LifecycleCheck(self._found_about_owner)
        self._polls = PollCheck(store)

    async def run(self) -> Report:
        async for page in rows(self._store, "lifecycle"):
            for row in page:
                if self._managed_by in (None, row[1]):
                    self._lifecycles.take(row)
        self._quiet = await stored_quiet_hours(self._store)
        above: int | None = None
        while True:
            page = await self._store.read("schedules", None if above is None else (above,), _GROUP)
            last = page[-1][0] if len(page) == _GROUP else None
            self._bounds = (above, last)
            await self._group(page)
            if last is None:
                return self._report
            above = last

    async def run_some(self, sids: Sequence[int]) -> Report:
        self._some = True
        async for page in rows(self._store, "lifecycle"):
            for row in page:
                self._lifecycles.take(row)
        self._report = Report([], [])  # findings about lifecycles are not about these schedules
        self._quiet = await stored_quiet_hours(self._store)
        for first, last in _ranges(sids):
            self._bounds = (first - 1, last)
            page = await self._store.read("schedules", (first - 1,), last - first + 1, upto_sid=last)
            await self._group(page)
        return self._report

    async def _group(self, page: list[tuple[Any, ...]]) -> None:
        self._audits.clear()
        self._known = _Everything() if self._some else {row[0] for row in page}
        columns = LEDGER_TABLES["schedules"].columns
        for values in page:
            row = dict(zip(columns, values, strict=True))
            mine = self._managed_by in (None, row["managed_by"])
            if mine and (self._only is None or row["sid"] in self._only):
                audit = self._audits[row["sid"]] = ScheduleAudit(
                    row, self._found, self._from_at, self._to_at, self._clock_skew
                )
                quiet = self._quiet.get(row["quiet_hours_policy_id"])
                if quiet is not None:
                    audit.quiet, audit.quiet_since = quiet.hours, quiet.updated_at
        self._report.schedules += len(self._audits)
        last_epochs = await self._take_epochs()
        live = await self._take_live()
        await self._take_pruned()
        await self._take_spans()
        await self._polls.finish()
        await self._take_attempts(live)
        await self._take_runs(live)
        for sid, audit in self._audits.items():
            audit.close()
            if sid in last_epochs:
                check_wake_up(audit, last_epochs[sid], live.get(sid, []))
            self._report.occurrences += audit.accounted

    # --- tables -------------------------------------------------------------------------------------------------------

    async def _take_epochs(self) -> dict[int, Mapping[str, Any]]:
        """Give each audit its epochs; returns the last epoch of each."""
        last: dict[int, Mapping[str, Any]] = {}
        gathered: list[Mapping[str, Any]] = []
        async for page in self._pages("epochs"):
            for audit, row in self._owned(page, "epochs"):
                if type(row["epoch"]) is not int:
                    audit.report("damaged", f"it has an epoch numbered {row['epoch']!r}")
                    continue
                if gathered and gathered[-1]["sid"] != row["sid"]:
                    self._audits[gathered[-1]["sid"]].open_epochs(gathered)
                    gathered = []
                gathered.append(row)
                last[row["sid"]] = row
        if gathered:
            self._audits[gathered[-1]["sid"]].open_epochs(gathered)
        for sid, audit in self._audits.items():
            if sid not in last:
                audit.open_epochs([])
        return last

    async def _take_live(self) -> dict[int, list[Mapping[str, Any]]]:
        found: dict[int, list[Mapping[str, Any]]] = {}
        async for page in self._pages("live"):
            for audit, row in self._owned(page, "live"):
                check_live(audit, row, self._lifecycles.last(audit.managed_by))
                found.setdefault(audit.sid, []).append(row)
                run_for = row["run_for"]
                if row["kind"] == "scheduled" and is_instant(run_for) and self._in_window(run_for, run_for):
                    audit.add_live(row["run_for"], str(row["state"]), row["epoch"], row["started_at"])
        return found

    async def _take_pruned(self) -> None:
        async for page in self._pages("pruned"):
            for audit, row in self._owned(page, "pruned"):
                part = pruned_part(row)
                if part is None:
                    audit.report("damaged", f"what is kept of a pruned day cannot be: {dict(row)}")
                elif self._in_window(part.first_at, part.to_at):
                    self._report.pruned += 1
                    audit.add_pruned(part)

    async def _take_spans(self) -> None:
        async for page in self._pages("spans"):
            for audit, row in self._owned(page, "spans"):
                from_at, to_at = row["from_at"], row["to_at"]
                if not is_instant(from_at) or not is_instant(to_at):
                    audit.report("damaged", f"it has a span from {from_at!r} to {to_at!r}, which are not instants")
                elif self._in_window(from_at, to_at):
                    self._report.spans += 1
                    audit.add_span(from_at, to_at, row["n"], row["epoch"], row["reason"])
                    self._polls.take(audit, row)

    async def _take_attempts(self, live: Mapping[int, list[Mapping[str, Any]]]) -> None:
        async for page in self._pages("attempts"):
            for audit, row in self._owned(page, "attempts"):
                run_for, kind = row["run_for"], row["kind"]
                if not is_instant(run_for) or kind not in KINDS:
                    audit.report("damaged", f"it has an attempt of a {kind!r} run for {run_for!r}, which cannot be")
                elif self._in_window(run_for, run_for) and not _has(live.get(audit.sid, []), run_for, kind):
                    audit.add_attempt(run_for, kind)

    async def _take_runs(self, live: Mapping[int, list[Mapping[str, Any]]]) -> None:
        audits, known = self._audits, self._known
        above, upto = self._bounds
        start = None if self._from_at is None else (self._from_at, -1, "")
        async for page in rows(self._store, "runs", after=start, above_sid=above, upto_sid=upto):
            for sid, run_for, kind, outcome, attempts, started, ended, owner, epoch, prev_for, prev_manual, _ in page:
                if self._to_at is not None and type(run_for) is int and run_for > self._to_at:
                    return
                audit = audits.get(sid)
                if audit is None:
                    if sid not in known:
                        self._found_stray("runs", sid, run_for)
                    continue
                self._report.runs += 1
                if not is_instant(run_for) or kind not in KINDS:
                    audit.report("damaged", f"it has a {kind!r} run for {run_for!r}, which cannot be", at=run_for)
                    continue
                audit.chain.add(run_for, kind, prev_for, prev_manual)
                audit.meet_attempts(run_for, kind)
                if kind == "scheduled":
                    # one that started after the cursor was read belongs to the second pass
                    if audit.cursor_at is not None and run_for <= audit.cursor_at:
                        audit.run(run_for, epoch, started, ended, None if prev_manual else prev_for)
                    else:
                        audit.report("stray", f"a run for {iso(run_for)} lies after its cursor", at=run_for)
                elif _has(live.get(sid, []), run_for, kind):
                    audit.report("double", f"the manual run of {iso(run_for)} has ended and is also live", at=run_for)
                sane = type(started) is int and type(ended) is int and run_for <= started <= ended
                if not sane or outcome not in _OUTCOMES or type(attempts) is not int or type(owner) is not str:
                    _check_run(audit, kind, (run_for, started, ended), outcome)
                    if type(attempts) is not int or type(owner) is not str:
                        audit.report(
                            "damaged", f"the run for {iso(run_for)} records {attempts!r} attempts by {owner!r}"
                        )

    # --- rows and findings --------------------------------------------------------------------------------------------

    def _pages(self, table: LedgerTable) -> AsyncIterator[list[tuple[Any, ...]]]:
        above, upto = self._bounds
        return rows(self._store, table, above_sid=above, upto_sid=upto)

    def _owned(
        self, page: list[tuple[Any, ...]], table: LedgerTable
    ) -> Iterator[tuple[ScheduleAudit, Mapping[str, Any]]]:
        """The rows of a page that belong to an audit; those without a schedule are reported."""
        columns = LEDGER_TABLES[table].columns
        at = columns.index("sid")
        for values in page:
            audit = self._audits.get(values[at])
            if audit is not None:
                yield audit, dict(zip(columns, values, strict=True))
            elif values[at] not in self._known:
                self._found_stray(table, values[at], values[1])

    def _in_window(self, first: int, last: int) -> bool:
        return (self._to_at is None or first <= self._to_at) and (self._from_at is None or last >= self._from_at)

    def _found_stray(self, table: str, sid: object, at: object) -> None:
        if self._managed_by is not None:
            return  # its owner is not known
        shown = iso(at) if is_instant(at) and table != "epochs" else repr(at)
        text = f"A row of {table} ({shown}) belongs to schedule {sid!r}, which does not exist."
        self._keep(Problem("stray", text, None, sid if type(sid) is int else None, None, None))

    def _found_about_owner(self, managed_by: object, text: str, at: object, *, remark: bool) -> None:
        if remark:
            self._remark(f"{managed_by}: {text}.")
            return
        owner = managed_by if isinstance(managed_by, str) else None
        self._keep(Problem("lifecycle", f"{managed_by}: {text}.", None, None, owner, at if is_instant(at) else None))

    def _found(self, kind: str, text: str, *, audit: ScheduleAudit, at: object, remark: bool) -> None:
        sentence = f"{audit.name} ({audit.managed_by}): {text}."
        if remark:
            self._remark(sentence)
            return
        instant = at if is_instant(at) else None
        owner = audit.managed_by if isinstance(audit.managed_by, str) else None
        self._keep(Problem(kind, sentence, audit.name, audit.sid, owner, instant))

    def _remark(self, sentence: str) -> None:
        if len(self._report.remarks) < MOST_PROBLEMS:
            self._report.remarks.append(sentence)

    def _keep(self, problem: Problem) -> None:
        if len(self._report.problems) < MOST_PROBLEMS:
            self._report.problems.append(problem)
        else:
            self._report.more += 1


def _ranges(sids: Sequence[int]) -> list[tuple[int, int]]:
    """Return ranges of neighbouring sids: one read for each, which passes over few others."""
    found: list[tuple[int, int]] = []
    for sid in sorted(sids):
        if found and sid - found[-1][1] <= _NEAR:
            found[-1] = (found[-1][0], sid)
        else:
            found.append((sid, sid))
    return found


def _has(live: list[Mapping[str, Any]], run_for: int, kind: str) -> bool:
    return any(run["run_for"] == run_for and run["kind"] == kind for run in live)


def _check_run(audit: ScheduleAudit, kind: str, times: tuple[int, object, object], outcome: object) -> None:
    run_for, started, ended = times
    what = f"the {kind} run for {iso(run_for)}"
    if outcome not in _OUTCOMES:
        audit.report("damaged", f"{what} ended as {outcome!r}, which is not an outcome", at=run_for)
    if not is_instant(started) or not is_instant(ended):
        audit.report("damaged", f"{what} lasted from {started!r} to {ended!r}, which are not instants", at=run_for)
    elif started < run_for and kind == "scheduled":  # a manual run is due when it is asked for
        audit.report("times", f"{what} started at {iso(started)}, before it was due", at=run_for)
    elif ended < started:
        text = f"{what} ended at {iso(ended)}, before it started at {iso(started)}: the clock was set back"
        audit.report("times", text, at=run_for, remark=True)
