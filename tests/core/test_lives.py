"""Pruned lifecycles: what is left is a lifecycle that `verify` accepts, and each owner keeps its last event."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any

import pytest

from noonbell.core.lives import ended_lives
from noonbell.ledger.lifecycle import LifecycleCheck

Row = tuple[int, str, int, str, str, str]


def findings(rows: list[Row]) -> list[str]:
    found: list[str] = []
    checked = LifecycleCheck(lambda _owner, text, _at, *, remark: found.append(f"{text} {remark}"))
    for row in rows:
        checked.take(row)
    return found


def random_lifecycle(random: Random) -> list[Row]:
    """Lives of a scheduler, one after the other, and of the engines of a lane, side by side."""
    rows: list[Row] = []
    names, at = (f"instance-{number}" for number in count()), 0
    up: dict[str, list[str]] = {"scheduler:s": [], "lane:l": []}

    def add(owner: str, instance: str, *events: str) -> None:
        rows.extend((len(rows) + 1, owner, at, instance, event, "") for event in events)

    for _ in range(random.randrange(60)):
        at += random.randrange(3)
        owner = random.choice(list(up))
        if up[owner] and (owner == "scheduler:s" or random.random() < 0.5):
            instance = up[owner].pop(random.randrange(len(up[owner])))
            add(owner, instance, *random.choice([("stop-start", "stop-end"), ("crash",), ("stop-start", "crash")]))
        else:
            up[owner].append(next(names))
            add(owner, up[owner][-1], "init-ok")
    return rows


@pytest.mark.parametrize("seed", range(200))
def test_what_is_left_is_whole(seed: int) -> None:
    random = Random(seed)
    rows = random_lifecycle(random)
    assert findings(rows) == []
    gone = ended_lives(row[:5] for row in rows)
    before = random.randrange(1 + max((row[2] for row in rows), default=0))
    left = [row for row in rows if gone.get(row[0], before) >= before]
    assert findings(left) == []
    for owner in {row[1] for row in rows}:
        assert [row for row in rows if row[1] == owner][-1] in left
    ended = {row[3] for row in rows if row[4] in ("stop-end", "crash")}
    assert [row for row in rows if row[3] not in ended] == [row for row in left if row[3] not in ended]


def test_an_ended_life_goes_with_the_next_event_of_its_owner() -> None:
    rows: list[tuple[Any, ...]] = [
        (1, "s", 10, "one", "init-ok"),
        (2, "other", 11, "x", "init-ok"),
        (3, "s", 12, "one", "stop-start"),
        (4, "s", 13, "one", "stop-end"),
        (5, "s", "damaged", "two", "init-ok"),
        (6, "s", 20, "two", "init-ok"),
        (7, "s", 21, "two", "crash"),
    ]
    assert ended_lives(rows) == {1: 20, 3: 20, 4: 20}
