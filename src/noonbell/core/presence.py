"""Who is at work on a lane: the engines that share it, and since when the lane is up. Pure.

An engine is one life of one process on one lane, under a name that is never used again. It is alive for as long as that
name is held in the store. A lane is up while one of its engines is, so what an engine that comes later, or that is left
alone, calls late or missed goes by the lane and not by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

# The lifecycle of a lane is kept under this and its name; an engine's own name is held under the other.
LANE: Final = "lane:"
ENGINE: Final = "engine:"

EngineState = Literal["starting", "up", "stopping"]


def lane_name(lane: str) -> str:
    """The name under which the lifecycle of a lane is kept."""
    return f"{LANE}{lane}"


def engine_name(instance: str) -> str:
    """The name that an engine holds for as long as it lives."""
    return f"{ENGINE}{instance}"


class EngineRecord(msgspec.Struct, frozen=True):
    """An engine as it is told in the store, by itself."""

    instance: str
    lane: str
    host: str
    pid: int
    version: str
    zone_data: str  # the version of the zone data it goes by
    joined_at: int
    up_since: int  # since when the lane is up, as far as this engine knows
    state: EngineState = "starting"
    load: dict[str, Any] = {}  # what it has in hand, for people to see
    seen_ago_us: int = 0  # how long ago it told of itself, when it is read


class EngineSign(msgspec.Struct, frozen=True):
    """A sign of life: what an engine tells of itself again and again."""

    instance: str
    at: int
    up_since: int
    state: EngineState
    zone_data: str = "-"
    load: dict[str, Any] = {}


def lanes_up(engines: Iterable[EngineRecord]) -> dict[str, int]:
    """Since when which lanes are up, by the engines that are alive.

    One that is about to begin does not count yet; one that stops is up until its last run has ended.
    """
    found: dict[str, int] = {}
    for one in engines:
        if one.state != "starting":
            found[one.lane] = min(found.get(one.lane, one.up_since), one.up_since)
    return found


def newest_poll(engines: Iterable[EngineRecord], lane: str, now: int) -> int | None:
    """The instant at which an engine of the lane that is alive completed a poll last; None where there is none."""
    return max((now - one.seen_ago_us for one in engines if one.lane == lane and one.state != "starting"), default=None)
