"""Decisions about occurrences that do not run by themselves, in the log: how many, and why."""

from __future__ import annotations

import logging
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from noonbell import periodic
from noonbell.core.records import StoredSchedule, Turn
from noonbell.ports import Decide, LaneClaim
from noonbell.schedules import Call, Schedules
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock
from tests.store.overriding import Overriding

START = datetime(2026, 3, 4, 12, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.getMessage().startswith("occurrences ")]


class BeginsAgain(Overriding, MemoryStore):
    """Asks for every turn twice, as a store does whose claim was rolled back and begins again."""

    async def runs_claim(
        self, lane: str, owner: str, now: int, limit: int, decide: Decide, **narrowed: Any
    ) -> LaneClaim:
        def again(stored: StoredSchedule) -> Turn:
            decide(copy(stored))
            return decide(stored)

        return await self.plain.runs.claim(lane, owner, now, limit, again, **narrowed)


class Refuses(Overriding, MemoryStore):
    """Refuses every turn that has spans."""

    async def runs_claim(
        self, lane: str, owner: str, now: int, limit: int, decide: Decide, **narrowed: Any
    ) -> LaneClaim:
        def refuse(stored: StoredSchedule) -> Turn:
            turn = decide(stored)
            if turn.spans:
                raise ValueError("refused")
            return turn

        return await self.plain.runs.claim(lane, owner, now, limit, refuse, **narrowed)


STORES = pytest.mark.parametrize("store", [MemoryStore, BeginsAgain, Refuses])


@STORES
async def test_of_a_periodic_task(caplog: pytest.LogCaptureFixture, store: type[MemoryStore]) -> None:
    caplog.set_level(logging.DEBUG, "noonbell.engine")
    clock = ManualClock(START)
    outcomes: list[BaseException | float | None] = [150.0, ValueError("no"), None]

    async def work() -> None:
        outcome = outcomes.pop(0) if outcomes else None
        if isinstance(outcome, BaseException):
            raise outcome
        if outcome is not None:
            await clock.sleep(outcome)

    capabilities = periodic.Capabilities(clock=clock, store=store())
    async with periodic.make(capabilities, poll_interval=MINUTE, time_zone="UTC") as cron:
        await cron.schedule("a", "1,2,3,4,5 12 * * *", work, timedelta(seconds=90))
        await clock.advance(5 * MINUTE)
    if store is Refuses:
        assert "could not be decided" in caplog.text
        assert logged(caplog) == []
        return
    at, folded = "2026-03-04T12:0{}:00+00:00", "folded into the retry run"
    decided = [(at.format(2), "one run for all that was due"), (at.format(4), folded), (at.format(5), folded)]
    assert logged(caplog) == [
        f"occurrences coalesced name='a' count=1 first={when} last={when} reason={reason!r}" for when, reason in decided
    ]
    facts = [getattr(one, "noonbell", {}) for one in caplog.records if one.getMessage().startswith("occurrences ")]
    assert facts[0] == {"verdict": "coalesced", "name": "a", "count": 1, "reason": "one run for all that was due"}


@STORES
async def test_of_a_durable_schedule(caplog: pytest.LogCaptureFixture, store: type[MemoryStore]) -> None:
    caplog.set_level(logging.DEBUG, "noonbell.engine")
    clock = ManualClock(START)

    async def work(_: Call) -> None:
        await clock.sleep(150)

    schedules = Schedules(store(), clock=clock, callbacks={"work": work}, longest_wait=MINUTE)
    await schedules.open()
    await schedules.create(
        name="b", type="cron", spec="1,2,3 12 * * *", action={"kind": "callback", "name": "work"}, overlap="skip"
    )
    await schedules.start()
    await clock.advance(6 * MINUTE)
    await schedules.stop()
    found = logged(caplog)
    if store is Refuses:
        assert "refused" in caplog.text
        assert found == []
        return
    assert found
    assert all(line.startswith("occurrences skipped name='b' count=") and "reason=" in line for line in found)
    assert sum(int(line.split("count=")[1].split()[0]) for line in found) == 2
