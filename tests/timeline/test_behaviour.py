"""How schedules behave, with a timeline in front of the store: the very same cases as without.

The repair is as good as off: whatever the set forgot would be late here, and the case would fail.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from noonbell.timeline import claiming, keeping, redis_timeline
from tests.redis_server import RedisServer
from tests.schedules.conftest import store_maker
from tests.schedules.patience import calm_duties
from tests.schedules.test_behaviour import *  # noqa: F403 - all of them, whatever is added there
from tests.timeline.test_fronted import ended
from tests.timeline.world import TimelineWorld

_HOUR = 3_600_000_000


@pytest.fixture(autouse=True, scope="module")
def _alone() -> Iterator[None]:
    with calm_duties(), pytest.MonkeyPatch.context() as patched:
        for module in (claiming, redis_timeline, sys.modules["noonbell.timeline.timeline_store"]):
            patched.setattr(module, "REPAIR_US", 1000 * _HOUR)
        patched.setattr(keeping, "_LOOK_US", 30_000_000)
        yield


@pytest.fixture
async def world(tmp_path: Path, redis_server: RedisServer) -> AsyncIterator[TimelineWorld]:
    made = TimelineWorld(store_maker("memory", tmp_path), redis_server.url, uuid.uuid4().hex, shards=2)
    await made.schedules.open()
    yield made
    await ended(made)
    assert made.store.counters.errors == 0
