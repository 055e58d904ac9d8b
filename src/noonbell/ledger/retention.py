"""The number of rows that a pruning has deleted, or would delete: counted page by page, without a change."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from noonbell.core.lives import ended_lives
from noonbell.ledger.ledger_rows import rows, schedule_rows
from noonbell.ports import AuditFilter, Ledger, LedgerTable, Pruned

_DAY: Final = 86_400_000_000
_PAGE: Final = 1_000


class Forgotten(msgspec.Struct):
    """The number of rows of each kind."""

    days: int = 0
    runs: int = 0
    spans: int = 0
    attempts: int = 0
    audits: int = 0
    dead_letters: int = 0
    lifecycle_events: int = 0

    def add(self, pruned: Pruned) -> None:
        self.days += 1
        self.runs += pruned.runs
        self.spans += pruned.spans
        self.attempts += pruned.attempts
        self.audits += pruned.audits
        self.dead_letters += pruned.dead_letters
        self.lifecycle_events += pruned.lifecycle_events

    def as_dict(self) -> dict[str, int]:
        found: dict[str, int] = msgspec.structs.asdict(self)
        return found


async def prunable(store: Ledger, before: int) -> Forgotten:
    """Count what would be deleted if every day that ended by `before` were pruned now."""
    end = before - before % _DAY
    found, days = Forgotten(), set[int]()
    cursors = {row["sid"]: (row["cursor_at"], row["enabled"]) for row in await schedule_rows(store)}
    live = {row[:3] async for row in _each(store, "live")}
    stays: set[tuple[int, int, str]] = set()  # runs at the cursor of a schedule in use: few
    async for sid, run_for, kind, *_ in _each(store, "runs"):
        if type(run_for) is not int or run_for >= end:
            break
        cursor, enabled = cursors.get(sid, (None, 1))
        decided = type(cursor) is int and (run_for < cursor or (run_for == cursor and enabled == 0))
        if (decided or (kind == "manual" and type(cursor) is int)) and (sid, kind, run_for) not in live:
            found.runs += 1
            days.add(run_for // _DAY)
        else:
            stays.add((sid, run_for, kind))
    async for sid, _, to_at, n, *_ in _each(store, "spans"):
        cursor, _ = cursors.get(sid, (None, 1))
        if type(cursor) is int and type(to_at) is int and type(n) is int and to_at <= cursor and to_at < end:
            found.spans += 1
            days.add(to_at // _DAY)
    async for sid, run_for, kind, *_ in _each(store, "attempts"):
        old = type(run_for) is int and run_for < end and sid in cursors
        found.attempts += old and (sid, kind, run_for) not in live and (sid, run_for, kind) not in stays
    gone = ended_lives([row[:5] async for row in _each(store, "lifecycle") if type(row[2]) is int and row[2] < end])
    ended = [at // _DAY for at in gone.values() if at < end]
    found.lifecycle_events = len(ended)
    days.update(ended)
    await _count_records(store, end, found, days)
    found.days = len(days)
    return found


async def _count_records(store: Ledger, end: int, found: Forgotten, days: set[int]) -> None:
    newest, after = None, 0
    while page := await store.audit.page(AuditFilter(), after, _PAGE):
        for after, event in page:
            if event.at < end:
                found.audits += 1
                days.add(event.at // _DAY)
                newest = (after, event.at // _DAY)
    if newest is not None and newest[0] == after:  # the newest of all stays
        found.audits -= 1
    after = 0
    while letters := await store.outbox.dead_letters(None, after, _PAGE):
        after = letters[-1].number
        old = [letter.died_at // _DAY for letter in letters if letter.died_at < end]
        found.dead_letters += len(old)
        days.update(old)


async def _each(store: Ledger, table: LedgerTable) -> Any:
    async for page in rows(store, table):
        for row in page:
            yield row
