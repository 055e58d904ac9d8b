"""Many schedules that come due together: SQLite writes those that are alike in one go, and leaves the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from msgspec.structs import replace

from noonbell.core.records import DurableSchedule, OutboxMessage, Settlement, Start, StoredSchedule, Turn
from noonbell.core.turns import finish, look
from noonbell.ports import LaneClaim, Ledger, ScheduleChange, ScheduleFilter
from noonbell.schedules import changes
from noonbell.schedules.fields import read_fields
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from noonbell.store.sqlite.turns import LEAST_ALIKE
from noonbell.store.words import SCHEDULED
from noonbell.testing.storage_cases.base import MINUTE, SECOND, T0, ledger

MANY = 3 * LEAST_ALIKE
SPECS: list[dict[str, Any]] = [
    {"spec": "* * * * *"},
    {"spec": "* * * * *", "overlap": "allow"},
    {"spec": "*/5 * * * *", "catch_up_policy": "run_all_capped", "catch_up_cap": 3},
    {"type": "interval", "spec": "60"},
    {"type": "one_shot", "spec": "2024-01-01T00:05Z"},
]


def made(messages: bool) -> list[DurableSchedule]:
    found = []
    for number in range(MANY * len(SPECS)):
        fields = {"type": "cron", "action": {"kind": "callback", "name": "work"}, **SPECS[number % len(SPECS)]}
        columns = read_fields({**fields, "name": f"n{number}"}, None).columns
        if messages and number % 2:
            definition = msgspec.json.decode(columns.definition) | {"action": {"kind": "message", "to": "inbox"}}
            columns = replace(columns, definition=msgspec.json.encode(definition).decode())
        found.append(changes.created(f"s{number}", columns, T0, enabled=True, managed_by="api", lane="default"))
    return found


def message_of(stored: StoredSchedule, start: Start) -> OutboxMessage:
    run = f"{stored.schedule_id}:{start.kind}:{start.run_for}"
    return OutboxMessage(stored.sid, stored.lane, run, "inbox", f'{{"id":"{run}"}}', start.started_at)


async def claim(store: Ledger, now: int) -> LaneClaim:
    def take_turn(stored: StoredSchedule) -> Turn:
        turn = look(stored, now)
        finish(turn, stored, now, "me", message_of)
        return turn

    return await store.runs.claim("default", "me", now, 10_000, take_turn)


async def everything(store: Ledger) -> dict[str, Any]:
    found: dict[str, Any] = dict(await ledger(store))
    found["stored"] = await store.schedules.find(ScheduleFilter(), 0, 10_000)
    return found


@pytest.mark.parametrize("messages", [False, True], ids=["callbacks", "messages"])
async def test_a_burst_leaves_the_same_rows_on_both_stores(tmp_path: Path, messages: bool) -> None:
    stores: list[Ledger] = [MemoryStore(), SqliteStore(tmp_path / "burst.db", threaded=False)]
    for store in stores:
        await store.open()
        await store.schedules.apply(ScheduleChange(made(messages), T0, "somebody"))
    fired = 0
    for minute in (1, 2, 5, 30):
        now = T0 + minute * MINUTE + SECOND
        claims = [await claim(store, now) for store in stores]
        assert claims[0] == claims[1]
        starts = claims[0].claimed.starts
        fired += len(starts)
        ends = [Settlement(start, "me", "succeeded", now + SECOND) for start in starts]
        assert [(await store.runs.settle(ends)).stale for store in stores] == [[], []]
        dumps = [await everything(store) for store in stores]
        for table, rows in dumps[0].items():
            assert rows == dumps[1][table], (minute, table)
    assert fired > 4 * LEAST_ALIKE
    sent = [await store.outbox.claim("default", "me", now, 10_000) for store in stores]
    assert sent[0] == sent[1]
    assert bool(sent[0].streams) is messages
    for store in stores:
        await store.close()


async def test_a_turn_that_the_ledger_contradicts_is_put_off_alone(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "burst.db", threaded=False)
    await store.open()
    await store.schedules.apply(ScheduleChange(made(messages=True)[:20], T0, "somebody"))
    due = T0 + MINUTE - T0 % MINUTE
    other = apsw.Connection(str(store.path))
    # sid 2 sends messages; its run of that minute is on record already, which no right course of things brings about
    sql = "INSERT INTO runs VALUES (?1, 2, ?2, 0, 1, ?3, ?3, 'x', 1, NULL, 0, 0)"
    other.execute(sql, (due, SCHEDULED, T0))
    other.close()
    claimed = (await claim(store, due)).claimed
    assert [sid for sid, _ in claimed.quarantined] == [2]
    stored = {one.sid: one for one in await store.schedules.find(ScheduleFilter(), 0, 100)}
    assert (stored[2].cursor_at, stored[2].next_run_at) == (T0, due + MINUTE)
    assert stored[12].cursor_at == due
    assert {start.sid for start in claimed.starts} >= {1, 7, 11, 17}
    assert 2 not in {stream.sid for stream in (await store.outbox.claim("default", "me", due, 100)).streams}
    await store.close()
