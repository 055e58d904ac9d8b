"""The slot of a schedule: its run in flight, kept in the state row instead of `runs_live`.

A full slot means exactly this live run: kind scheduled, fence 1, state running, attempt 1, no wake_at, no crashes,
with started_at and attempt_at at `slot_at`. A claim fills it with the advance of the schedule, and an ordinary end
empties it, so a fire neither inserts nor deletes a live run. Every other live run is a row of `runs_live`.

Which of the two places holds a run is invisible to callers: readers use the view `live_runs`, and to spill, which is to
move a run from its slot to `runs_live`, is legal in any transaction that writes. Whatever changes a live run spills it
first and then works on `runs_live` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import apsw
import msgspec

from noonbell.store.sqlite.numbers import owner_sql, word_sql
from noonbell.store.words import CAUSES

_encode = msgspec.json.Encoder().encode

EMPTY: Final = "slot_for = NULL, slot_owner = NULL, slot_epoch = NULL, slot_at = NULL, slot_cause = NULL"

_OF_SIDS: Final = "slot_for IS NOT NULL AND sid IN (SELECT value FROM json_each(?1))"
# No index has the owner: the whole table is read.
_OF_OWNERS: Final = """
    slot_for IS NOT NULL AND slot_owner IN (
        SELECT no FROM owners WHERE instance IN (SELECT value FROM json_each(?1))
    )
"""
_SPILL: Final = f"""
    INSERT INTO runs_live (sid, kind, run_for, fence, owner, state, attempt, started_at, attempt_at, epoch, cause)
    SELECT sid, 'scheduled', slot_for, 1, {owner_sql("slot_owner")}, 'running', 1, slot_at, slot_at, slot_epoch,
        {word_sql(CAUSES, "slot_cause")}
    FROM schedule_state WHERE {{chosen}}
"""
_CLEAR: Final = f"UPDATE schedule_state SET {EMPTY} WHERE {{chosen}}"


def has_others(db: apsw.Connection) -> bool:
    """Say whether any live run is in `runs_live`: where none is, no row has to be looked up there."""
    return db.execute("SELECT min(sid) FROM runs_live").get is not None


def spill(db: apsw.Connection, sids: Sequence[int]) -> None:
    """Move the runs in the slots of these schedules to `runs_live`."""
    if sids:
        _spill(db, _OF_SIDS, _encode(sids).decode())


def spill_of(db: apsw.Connection, owners: Sequence[str]) -> None:
    """Move the runs in the slots of these instances to `runs_live`."""
    if owners:
        _spill(db, _OF_OWNERS, _encode(owners).decode())


def _spill(db: apsw.Connection, chosen: str, keys: str) -> None:
    db.execute(_SPILL.format(chosen=chosen), (keys,))
    if db.changes():
        db.execute(_CLEAR.format(chosen=chosen), (keys,))
