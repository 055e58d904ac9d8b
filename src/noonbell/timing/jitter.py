"""A delay that looks random and is always the same: a hash of the schedule and the occurrence.

Schedules that share a minute spread over the limit, and one occurrence keeps its place whatever restarts, on every
machine. Nothing is stored. The value scales with the limit, so halving the limit halves each delay.
"""

from __future__ import annotations

import hashlib
from typing import Final

_PURPOSE: Final = b"noonbell jitter"


def jitter_us(schedule_id: str, occurrence_us: int, limit_us: int) -> int:
    """Microseconds in [0, limit) by which this occurrence is delayed; 0 where the limit is 0."""
    if limit_us < 0:
        raise ValueError(f"limit_us is {limit_us}; a delay cannot be negative")
    if limit_us == 0:
        return 0
    # the occurrence has no zero byte in it, so no two pairs give the same text
    seed = f"{schedule_id}\0{occurrence_us}".encode("utf-8", "surrogatepass")
    drawn = int.from_bytes(hashlib.blake2b(seed, digest_size=8, person=_PURPOSE).digest(), "big")
    return drawn * limit_us >> 64
