"""A check that what is recorded as missed was not polled for.

A missed occurrence has to lie in a gap between two polls of its lane, or after the last poll: an edit decides what came
before it, whether an engine runs or not. The latest gaps are kept, so what came before them is not checked, nor is a
schedule that has been deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from noonbell.core.presence import MOST_GAPS, Polls
from noonbell.ledger.account import Account
from noonbell.ledger.reading import LATEST, iso
from noonbell.ports import ScheduleStore, Store

_NOT_POLLED: Final = "not polled in time"
_AT_ONCE: Final = 1_000
# Engines that poll again together may each have read that the gap lasts; the first one's end is recorded.
_TOGETHER_US: Final = 30_000_000


class PollCheck:
    """Gathers missed spans, and reports those that a poll came in time for."""

    def __init__(self, store: Store) -> None:
        self._store = cast("ScheduleStore", store)
        self._missed: dict[str, list[tuple[Account, int, int, int]]] = {}  # by schedule id

    def take(self, account: Account, span: Mapping[str, Any]) -> None:
        if (
            span["verdict"] == "missed"
            and span["reason"] == _NOT_POLLED
            and isinstance(account.row["schedule_id"], str)
        ):
            stretch = account.stretches.holding(span["to_at"])
            jitter = 0 if stretch is None else stretch.terms.jitter_us
            found = self._missed.setdefault(account.row["schedule_id"], [])
            found.append((account, span["from_at"], span["to_at"], jitter))

    async def report(self) -> None:
        missed, self._missed = self._missed, {}
        if not missed:
            return
        polls, ids = await self._store.polls(), list(missed)
        for first in range(0, len(ids), _AT_ONCE):
            for stored in await self._store.find_schedules(ids[first : first + _AT_ONCE]):
                for account, from_at, to_at, jitter in missed[stored.schedule_id]:
                    if not _unpolled(polls.get(stored.lane, Polls()), from_at, to_at, jitter):
                        text = f"{iso(from_at)} to {iso(to_at)} is recorded as missed, but its lane was polled in time"
                        account.tell("missed", text, at=from_at)


def _unpolled(polls: Polls, from_at: int, to_at: int, jitter: int) -> bool:
    gaps = polls.at(LATEST)
    if len(polls.gaps) == MOST_GAPS and from_at <= gaps[0].since:
        return True
    return any(gap.since < from_at + jitter and to_at <= gap.missed_upto + _TOGETHER_US for gap in gaps)
