"""Hints: notifications to waiting engines that something has come that is due sooner.

Creating, editing and triggering send `lane instant` along with the commit (`NOTIFY`), and the thread that
keeps the leases listens. A hint causes a poll, and nothing more: one that is lost costs what an engine waits at most,
and one too many costs a poll. Behind a pooler no engine listens, since it has no session of its own there.

The hot verbs, claiming and settling, send none: commits that notify wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from noonbell.core.records import DurableSchedule, Edit, StoredSchedule
from noonbell.ports import MakeEdit
from noonbell.store.postgres.connection import Connection

if TYPE_CHECKING:
    import asyncpg

# Schemas of one database are ledgers of their own. A channel has a name of 63 bytes at most; where the schema's own is
# too long for that, a number replaces it, and two schemas that share one cost each other a poll.
_CHANNEL: Final = """
    'noonbell:' || CASE WHEN octet_length(current_schema()::text) <= 54
    THEN current_schema()::text ELSE hashtext(current_schema()::text)::text END
"""


async def give(db: Connection, wakes: Mapping[str, int]) -> None:
    """Notify the engines of these lanes, with the commit, of the instant at which something is due."""
    if wakes:
        payloads = [f"{at} {lane}" for lane, at in sorted(wakes.items())]
        await db.execute(f"SELECT pg_notify({_CHANNEL}, t) FROM unnest($1::text[]) AS t", payloads)


def read(payload: str) -> tuple[str, int] | None:
    """Lane and instant of a hint; None where it is not one of ours."""
    at, _, lane = payload.partition(" ")
    return (lane, int(at)) if lane and at.isdecimal() else None


async def channel_for(db: asyncpg.Connection[asyncpg.Record]) -> str | None:
    """Return the channel on which a connection can listen; None where its session is not its own."""
    for _ in range(2):
        channel, pid = await db.fetchrow(f"SELECT {_CHANNEL}, pg_backend_pid()") or (None, 0)
        if pid != db.get_server_pid():
            return None
    return channel


class WakeCollector:
    """The earliest wake-up of each lane, among what is written."""

    def __init__(self) -> None:
        self.wakes: dict[str, int] = {}

    def note(self, lane: str | None, at: int | None) -> None:
        if lane is not None and at is not None:
            self.wakes[lane] = min(at, self.wakes.get(lane, at))

    def created(self, created: Sequence[DurableSchedule]) -> None:
        for new in created:
            self.note(new.lane, new.next_run_at)

    def edits(self, edit: MakeEdit) -> MakeEdit:
        """The same edit; what it makes is noted."""

        def noted(stored: StoredSchedule) -> Edit | None:
            made = edit(stored)
            if made is not None:
                self.note(stored.lane, made.turn.next_run_at)
                for live in (*made.turn.queued, *made.turn.put_off):
                    self.note(stored.lane, live.wake_at)
            return made

        return noted
