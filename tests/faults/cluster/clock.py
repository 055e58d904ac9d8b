"""A clock that several processes read alike, that runs as fast as is asked, and that can be set while they run.

It counts from an origin on the system's clock that is never set, so all processes of a machine agree. What is added to
it stands in a small file; whoever has the file can step the clocks of all who read it.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from noonbell.engine import SystemClock

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
FIRST_INSTANT: Final = 1_772_323_200 * SECOND  # 2026-03-01, midnight
_OFFSET: Final = struct.Struct("<q")


def real_us() -> int:
    """The time that nobody sets, in microseconds: what all evidence is dated by."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000


class ClockSetting(msgspec.Struct, frozen=True):
    """What a process has to know to read the clock."""

    origin_us: int
    offset_file: str
    speed: int = 1
    first: int = FIRST_INSTANT


def new_setting(offset_file: Path, *, speed: int = 1) -> ClockSetting:
    offset_file.write_bytes(_OFFSET.pack(0))
    return ClockSetting(real_us(), str(offset_file), speed)


class FileClock:
    """Time as the setting says."""

    def __init__(self, setting: ClockSetting) -> None:
        self._setting = setting
        self._system = SystemClock()
        with Path(setting.offset_file).open("r+b") as file:
            self._offset = mmap.mmap(file.fileno(), _OFFSET.size)

    def now(self) -> int:
        passed = (real_us() - self._setting.origin_us) * self._setting.speed
        return self._setting.first + passed + self.offset_us

    @property
    def offset_us(self) -> int:
        offset: tuple[Any, ...] = _OFFSET.unpack_from(self._offset)
        return int(offset[0])

    def step(self, by_us: int) -> None:
        """Set all clocks that read this file forward, or back."""
        _OFFSET.pack_into(self._offset, 0, self.offset_us + by_us)

    def elapsed(self) -> float:
        return self._system.elapsed() * self._setting.speed

    async def wait(self, until: int, wakeup: asyncio.Event) -> None:
        system = self._system
        await system.wait(system.now() + (until - self.now()) // self._setting.speed, wakeup)


class StillClock(FileClock):
    """The same clock, as it stood at one moment: for whoever writes down what was planned at that moment."""

    def __init__(self, setting: ClockSetting, at: int) -> None:
        super().__init__(setting)
        self._at = at

    def now(self) -> int:
        return self._at
