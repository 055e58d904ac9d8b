"""Files of schedules against stores of every kind, at a fixed time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from noonbell.planning import Plan, ScheduleFile, apply, loads, plan
from noonbell.ports import Ledger
from noonbell.timing.timing_protocol import SECOND
from tests.schedules.conftest import new_dsn, store_maker
from tests.schedules.patience import PatientClock, PatientPostgres, calm_duties

NOON = datetime(2026, 11, 15, 12, 0, 30, tzinfo=UTC)  # a Sunday
NOW = int(NOON.timestamp()) * SECOND
HEAD = 'name = "billing"\n[defaults]\naction = { kind = "callback", name = "work" }\n'


@pytest.fixture(autouse=True, scope="module")
def _calm() -> Iterator[None]:
    with calm_duties():
        yield


def toml(text: str, *, head: str = HEAD) -> ScheduleFile:
    return loads(head + text, format="toml", source="billing.toml")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledger]:
    made = store_maker(request.param, tmp_path, await new_dsn(request, request.param))()
    await made.open()
    yield made
    await made.close()


def clock_beside(store: Ledger) -> PatientClock:
    """Manual time that waits for the store."""
    clock = PatientClock(NOON)
    if isinstance(store, PatientPostgres):
        store.attend(clock)
    return clock


async def applied(store: Ledger, text: str, now: int = NOW) -> Plan:
    """Apply a file, deletions included; returns the plan that was applied."""
    made = await plan(store, toml(text), now=now)
    await apply(store, made, now=now, allow_delete=True)
    return made
