"""Sharding: which of several databases holds a schedule, if there are too many schedules for one.

`shard_of` is jump consistent hashing (Lamping and Veach, 2014) over a digest of the schedule's id. It is pure and the
same everywhere: the id and the number of shards are enough to compute the place, without a lookup.

- *Even*: each shard gets the same share, but for chance.
- *Few moves*: with one shard more, one in so many ids moves, and each of those to the new shard; none moves between
  old ones. So shards are added at the end, and only the last one can be taken away.

Nothing in the package routes by it: a service knows its own database alone. A program that uses several chooses the id
first, and creates the schedule where it belongs.
"""

from __future__ import annotations

import hashlib
from typing import Final

MOST_SHARDS: Final = 32_768  # 15 bits: what the top of a number has room for, below its sign

_MULTIPLIER: Final = 2_862_933_555_777_941_757  # of a linear congruential generator with the full period of 2^64
_MASK: Final = (1 << 64) - 1
_LARGEST_STEP: Final = 1 << 31


def shard_of(schedule_id: str, shards: int) -> int:
    """The shard of a schedule, from 0 to `shards` - 1."""
    if type(shards) is not int or not 1 <= shards <= MOST_SHARDS:
        raise ValueError(f"shards {shards!r} must be a whole number from 1 to {MOST_SHARDS}")
    state = _digest(schedule_id)
    place, step = -1, 0
    while step < shards:
        place = step
        state = (state * _MULTIPLIER + 1) & _MASK
        # the chance that it stays below the next shard is place / step: so it jumps over all where it would stay
        step = int((place + 1) * (_LARGEST_STEP / ((state >> 33) + 1)))
    return place


def _digest(schedule_id: str) -> int:
    return int.from_bytes(hashlib.blake2b(schedule_id.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
