"""`verify_store`: proof that a ledger is whole, or the list of what is wrong with it.

How it goes:

1. The lifecycle of each owner is read: starts, stops and crashes have to follow each other sensibly.
2. Occurrences that are recorded as missed because no poll came in time have to lie in a recorded gap between polls.
3. Schedules are taken in groups. Of each group the epochs, live runs, spans and the keys of attempts are read, then the
   runs stream by once, in the order of time, and each schedule's account takes what belongs to it (see `account`).
4. Rows that belong to no schedule are told.

Tables are read in short pages and not in one snapshot, so a ledger can be verified while it is being written to. What
looks wrong is therefore looked at a second time, and only what is still wrong then is told.

Memory: a group of schedules, two whole numbers for each of their spans, one for each run with recorded attempts; of
runs no more than a page. No occurrence is enumerated.

What it does not do: it does not say whether an action did its work, nor whether a clock was right.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Container, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from noonbell.ledger.account import CLOCK_SKEW, Account
from noonbell.ledger.lifecycles import Lifecycles
from noonbell.ledger.live_rows import KINDS, check_live, check_wake_up
from noonbell.ledger.polls import PollCheck
from noonbell.ledger.pruned import pruned_part
from noonbell.ledger.quiet import quiet_hours
from noonbell.ledger.reading import is_instant, iso, rows
from noonbell.ports import LEDGER_TABLES, LedgerTable, Store
from noonbell.timing import QuietHours

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
    """What was looked at and what is wrong.

    Remarks are no problems: they tell of a clock that was set, or of zone rules that changed. Beyond MOST_PROBLEMS only
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
        """Whether nothing is wrong."""
        return not self.problems


async def verify_store(
    store: Store,
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
        again = await _Pass(store, managed_by, from_at, to_at, troubled, clock_skew=clock_skew).run()
        still = {problem.text for problem in again.problems}
        report.problems = [problem for problem in report.problems if problem.text in still]
        report.more = min(report.more, again.more)
    return report


async def verify_schedules(
    store: Store, sids: Sequence[int], *, from_at: int | None = None, to_at: int | None = None
) -> Report:
    """Verify some schedules and nothing else: no lifecycles, no rows that belong to nobody.

    It costs what they have, and a look past the runs of others in the same time: bound it by `from_at` where others
    run a great deal.
    """
    report = await _Pass(store, None, from_at, to_at, frozenset(sids)).run_some(sids)
    if report.problems:
        again = await _Pass(store, None, from_at, to_at, frozenset(sids)).run_some(sids)
        still = {problem.text for problem in again.problems}
        report.problems = [problem for problem in report.problems if problem.text in still]
        report.more = min(report.more, again.more)
    return report


class _Everything(set[int]):
    """All sids: where only some schedules are looked at, no row is a stray."""

    def __contains__(self, sid: object) -> bool:
        return True


class _Pass:
    """One look at the whole ledger; with `only`, at the schedules of these sids and at rows of none."""

    def __init__(
        self,
        store: Store,
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
        self._accounts: dict[int, Account] = {}
        self._known: set[int] = set()
        self._quiet: dict[str | None, tuple[QuietHours | None, int]] = {}
        self._bounds: tuple[int | None, int | None] = (None, None)
        self._lifecycles = Lifecycles(self._tell_owner)
        self._polls = PollCheck(store)

    async def run(self) -> Report:
        async for page in rows(self._store, "lifecycle"):
            for row in page:
                if self._managed_by in (None, row[1]):
                    self._lifecycles.take(row)
        self._quiet = await quiet_hours(self._store)
        above: int | None = None
        while True:
            page = await self._store.read_ledger("schedules", None if above is None else (above,), _GROUP)
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
        self._report = Report([], [])  # what lifecycles have to tell is not about these schedules
        self._quiet = await quiet_hours(self._store)
        for first, last in _stretches(sids):
            self._bounds = (first - 1, last)
            page = await self._store.read_ledger("schedules", (first - 1,), last - first + 1, upto_sid=last)
            await self._group(page)
        return self._report

    async def _group(self, page: list[tuple[Any, ...]]) -> None:
        self._accounts.clear()
        self._known = _Everything() if self._some else {row[0] for row in page}
        columns = LEDGER_TABLES["schedules"].columns
        for values in page:
            row = dict(zip(columns, values, strict=True))
            mine = self._managed_by in (None, row["managed_by"])
            if mine and (self._only is None or row["sid"] in self._only):
                account = self._accounts[row["sid"]] = Account(
                    row, self._tell, self._from_at, self._to_at, self._clock_skew
                )
                account.quiet, account.quiet_since = self._quiet.get(row["quiet_hours_policy_id"], (None, 0))
        self._report.schedules += len(self._accounts)
        last_epochs = await self._take_epochs()
        live = await self._take_live()
        await self._take_pruned()
        await self._take_spans()
        await self._polls.report()
        await self._take_attempts(live)
        await self._take_runs(live)
        for sid, account in self._accounts.items():
            account.close()
            if sid in last_epochs:
                check_wake_up(account, last_epochs[sid], live.get(sid, []))
            self._report.occurrences += account.accounted

    # --- tables -------------------------------------------------------------------------------------------------------

    async def _take_epochs(self) -> dict[int, Mapping[str, Any]]:
        """Give each account its epochs; returns the last epoch of each."""
        last: dict[int, Mapping[str, Any]] = {}
        gathered: list[Mapping[str, Any]] = []
        async for page in self._pages("epochs"):
            for account, row in self._owned(page, "epochs"):
                if type(row["epoch"]) is not int:
                    account.tell("damaged", f"it has an epoch numbered {row['epoch']!r}")
                    continue
                if gathered and gathered[-1]["sid"] != row["sid"]:
                    self._accounts[gathered[-1]["sid"]].open_epochs(gathered)
                    gathered = []
                gathered.append(row)
                last[row["sid"]] = row
        if gathered:
            self._accounts[gathered[-1]["sid"]].open_epochs(gathered)
        for sid, account in self._accounts.items():
            if sid not in last:
                account.open_epochs([])
        return last

    async def _take_live(self) -> dict[int, list[Mapping[str, Any]]]:
        found: dict[int, list[Mapping[str, Any]]] = {}
        async for page in self._pages("live"):
            for account, row in self._owned(page, "live"):
                check_live(account, row, self._lifecycles.last(account.managed_by))
                found.setdefault(account.sid, []).append(row)
                run_for = row["run_for"]
                if row["kind"] == "scheduled" and is_instant(run_for) and self._in_window(run_for, run_for):
                    account.add_live(row["run_for"], str(row["state"]), row["epoch"], row["started_at"])
        return found

    async def _take_pruned(self) -> None:
        async for page in self._pages("pruned"):
            for account, row in self._owned(page, "pruned"):
                part = pruned_part(row)
                if part is None:
                    account.tell("damaged", f"what is kept of a pruned day cannot be: {dict(row)}")
                elif self._in_window(part.first_at, part.to_at):
                    self._report.pruned += 1
                    account.add_pruned(part)

    async def _take_spans(self) -> None:
        async for page in self._pages("spans"):
            for account, row in self._owned(page, "spans"):
                from_at, to_at = row["from_at"], row["to_at"]
                if not is_instant(from_at) or not is_instant(to_at):
                    account.tell("damaged", f"it has a span from {from_at!r} to {to_at!r}, which are no instants")
                elif self._in_window(from_at, to_at):
                    self._report.spans += 1
                    account.add_span(from_at, to_at, row["n"], row["epoch"], row["reason"])
                    self._polls.take(account, row)

    async def _take_attempts(self, live: Mapping[int, list[Mapping[str, Any]]]) -> None:
        async for page in self._pages("attempts"):
            for account, row in self._owned(page, "attempts"):
                run_for, kind = row["run_for"], row["kind"]
                if not is_instant(run_for) or kind not in KINDS:
                    account.tell("damaged", f"it has an attempt of a {kind!r} run for {run_for!r}, which cannot be")
                elif self._in_window(run_for, run_for) and not _has(live.get(account.sid, []), run_for, kind):
                    account.add_attempt(run_for, kind)

    async def _take_runs(self, live: Mapping[int, list[Mapping[str, Any]]]) -> None:
        accounts, known = self._accounts, self._known
        above, upto = self._bounds
        start = None if self._from_at is None else (self._from_at, -1, "")
        async for page in rows(self._store, "runs", after=start, above_sid=above, upto_sid=upto):
            for sid, run_for, kind, outcome, attempts, started, ended, owner, epoch, prev_for, prev_manual, _ in page:
                if self._to_at is not None and type(run_for) is int and run_for > self._to_at:
                    return
                account = accounts.get(sid)
                if account is None:
                    if sid not in known:
                        self._tell_stray("runs", sid, run_for)
                    continue
                self._report.runs += 1
                if not is_instant(run_for) or kind not in KINDS:
                    account.tell("damaged", f"it has a {kind!r} run for {run_for!r}, which cannot be", at=run_for)
                    continue
                account.chain.add(run_for, kind, prev_for, prev_manual)
                account.meet_attempts(run_for, kind)
                if kind == "scheduled":
                    # one that started after the cursor was read belongs to the next look
                    if account.cursor_at is not None and run_for <= account.cursor_at:
                        account.run(run_for, epoch, started, ended)
                    else:
                        account.tell("stray", f"a run for {iso(run_for)} lies after its cursor", at=run_for)
                elif _has(live.get(sid, []), run_for, kind):
                    account.tell("double", f"the manual run of {iso(run_for)} has ended and is live too", at=run_for)
                sane = type(started) is int and type(ended) is int and run_for <= started <= ended
                if not sane or outcome not in _OUTCOMES or type(attempts) is not int or type(owner) is not str:
                    _check_run(account, kind, (run_for, started, ended), outcome)
                    if type(attempts) is not int or type(owner) is not str:
                        account.tell("damaged", f"the run for {iso(run_for)} tells {attempts!r} attempts by {owner!r}")

    # --- rows and findings --------------------------------------------------------------------------------------------

    def _pages(self, table: LedgerTable) -> AsyncIterator[list[tuple[Any, ...]]]:
        above, upto = self._bounds
        return rows(self._store, table, above_sid=above, upto_sid=upto)

    def _owned(self, page: list[tuple[Any, ...]], table: LedgerTable) -> Iterator[tuple[Account, Mapping[str, Any]]]:
        """The rows of a page that belong to an account; those of no schedule at all are told."""
        columns = LEDGER_TABLES[table].columns
        at = columns.index("sid")
        for values in page:
            account = self._accounts.get(values[at])
            if account is not None:
                yield account, dict(zip(columns, values, strict=True))
            elif values[at] not in self._known:
                self._tell_stray(table, values[at], values[1])

    def _in_window(self, first: int, last: int) -> bool:
        return (self._to_at is None or first <= self._to_at) and (self._from_at is None or last >= self._from_at)

    def _tell_stray(self, table: str, sid: object, at: object) -> None:
        if self._managed_by is not None:
            return  # it cannot be told whose it is
        shown = iso(at) if is_instant(at) and table != "epochs" else repr(at)
        text = f"A row of {table} ({shown}) belongs to schedule {sid!r}, which does not exist."
        self._keep(Problem("stray", text, None, sid if type(sid) is int else None, None, None))

    def _tell_owner(self, managed_by: object, text: str, at: object, *, remark: bool) -> None:
        if remark:
            self._remark(f"{managed_by}: {text}.")
            return
        owner = managed_by if isinstance(managed_by, str) else None
        self._keep(Problem("lifecycle", f"{managed_by}: {text}.", None, None, owner, at if is_instant(at) else None))

    def _tell(self, kind: str, text: str, *, account: Account, at: object, remark: bool) -> None:
        sentence = f"{account.name} ({account.managed_by}): {text}."
        if remark:
            self._remark(sentence)
            return
        instant = at if is_instant(at) else None
        owner = account.managed_by if isinstance(account.managed_by, str) else None
        self._keep(Problem(kind, sentence, account.name, account.sid, owner, instant))

    def _remark(self, sentence: str) -> None:
        if len(self._report.remarks) < MOST_PROBLEMS:
            self._report.remarks.append(sentence)

    def _keep(self, problem: Problem) -> None:
        if len(self._report.problems) < MOST_PROBLEMS:
            self._report.problems.append(problem)
        else:
            self._report.more += 1


def _stretches(sids: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring sids together: one look for each, which passes over few that are not meant."""
    found: list[tuple[int, int]] = []
    for sid in sorted(sids):
        if found and sid - found[-1][1] <= _NEAR:
            found[-1] = (found[-1][0], sid)
        else:
            found.append((sid, sid))
    return found


def _has(live: list[Mapping[str, Any]], run_for: int, kind: str) -> bool:
    return any(run["run_for"] == run_for and run["kind"] == kind for run in live)


def _check_run(account: Account, kind: str, times: tuple[int, object, object], outcome: object) -> None:
    run_for, started, ended = times
    what = f"the {kind} run for {iso(run_for)}"
    if outcome not in _OUTCOMES:
        account.tell("damaged", f"{what} ended as {outcome!r}, which is no outcome", at=run_for)
    if not is_instant(started) or not is_instant(ended):
        account.tell("damaged", f"{what} lasted from {started!r} to {ended!r}, which are no instants", at=run_for)
    elif started < run_for and kind == "scheduled":  # a manual run is due when it is asked for
        account.tell("times", f"{what} started at {iso(started)}, before it was due", at=run_for)
    elif ended < started:
        text = f"{what} ended at {iso(ended)}, before it started at {iso(started)}: the clock was set back"
        account.tell("times", text, at=run_for, remark=True)
