"""A few real deaths of durable schedules by SIGKILL; `python -m tests.faults.schedules_crashes` has the many.

`make test` kills the process on SQLite here, and on PostgreSQL in tests/faults/cluster/test_short_runs.py.

Here the named points are shared out between the databases, there each has all of them. Each share holds a point of
every verb, and both of those after which a message that has arrived comes again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.schedules_campaign import Campaign
from tests.crash.schedules_victim import POINTS, Point
from tests.store.postgres_server import PostgresServer

AGAIN: tuple[Point, ...] = ("in-delivery", "before-delivery-commit")


@pytest.mark.parametrize(
    ("kind", "points"),
    [
        ("sqlite", (*(point for point in POINTS[::2] if point not in AGAIN), *AGAIN)),
        pytest.param(
            "postgres",
            (*(point for point in POINTS[1::2] if point not in AGAIN), *AGAIN),
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=["sqlite", "postgres"],
)
async def test_nothing_is_lost_or_unexplained_after_deaths(
    request: pytest.FixtureRequest, kind: str, points: tuple[Point, ...], tmp_path: Path
) -> None:
    address = str(tmp_path / "schedules.db")
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        address = await server.new_database()
    campaign = Campaign(address, tmp_path, seed=21)
    await campaign.live_for(1.5)
    for point in points:
        await campaign.die_at(point)
    await campaign.die_at_random()
    outcome = await campaign.judged()

    assert outcome.wrong == []
    assert outcome.kills == len(points) + 1
    assert outcome.interrupted > 0
    assert outcome.repeated > 0
    assert outcome.brought_again > 0
    assert outcome.pruned_days > 0
    assert outcome.edits > 0
