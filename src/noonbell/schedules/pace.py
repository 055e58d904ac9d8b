"""The size of the batches in which many schedules are created or changed.

A batch is one transaction, and while it is written no other process writes: an engine on the same data waits, and on
SQLite gives up after some seconds. So a batch is as large as can be written in a fraction of a second, which depends on
the machine and is found out on the way, and after it others have their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

from noonbell.ports import Clock

LARGEST: Final = 5_000
FIRST: Final = 1_000  # up to so many are written whole or not at all
_SMALLEST: Final = 200
_LONG: Final = 0.2  # seconds
_SHARE: Final = 6  # of the time that a batch took, so much is left to others

T = TypeVar("T")


async def batches(many: Sequence[T], clock: Clock) -> AsyncIterator[tuple[Sequence[T], int]]:
    """Parts of `many`, each with how many there are up to its end; the next is taken when one has been written."""
    done, size = 0, FIRST
    while done < len(many):
        batch = many[done : done + size]
        done += len(batch)
        began = clock.elapsed()
        yield batch, done
        took = clock.elapsed() - began
        if took > _LONG:
            size = max(_SMALLEST, int(size * _LONG / took))
        elif took < _LONG / 2:
            size = min(LARGEST, 2 * size)
        if done < len(many):
            await asyncio.sleep(took / _SHARE)
