"""Access on a memory store and a clock that stands still until it is moved."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from noonbell.access import Access
from noonbell.access.passwords import Passwords
from noonbell.store.memory import MemoryStore
from noonbell.testing import ManualClock


class World(NamedTuple):
    access: Access
    store: MemoryStore
    clock: ManualClock


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """The hash is as quick as argon2 can be; how slow it is by default is tested where that matters."""
    import argon2

    quick = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(Passwords, "_hasher", lambda self: quick)
    store, clock = MemoryStore(), ManualClock(datetime(2026, 3, 1, 12, tzinfo=UTC))
    await store.open()
    access = Access(store, clock, "tests")
    await access.ensure_default_team()
    return World(access, store, clock)
