"""Rate limits on pings: of one monitor, of all, and of those with an unknown URL. Pure but for the clock.

Three buckets decide, each filling evenly and holding what may come at once:

- one for each monitor that has been pinged lately. A job that calls its URL in a loop has to wait;
- one for all monitors together, so that the store has time for what else it has to do;
- one for URLs that were not seen before: after a restart that is all of them, and many jobs run at the full hour. The
  store is asked for each. Made-up ones can use up nothing but this, so they do not block a monitor that was pinged
  before.

What is remembered is bounded: of the monitors, the last MOST_KNOWN that were pinged.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from noonbell.errors import MonitorInvalidError

MOST_KNOWN: Final = 20_000


class PingLimits(msgspec.Struct, frozen=True):
    """The pings that one process takes: per minute of a monitor, and per second of all and with unknown URLs.

    `at_once` is how many bodies are being read at the same moment.
    """

    monitor_per_minute: int = 60
    all_per_second: int = 500
    unknown_per_second: int = 500
    at_once: int = 256

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if type(value) is not int or value < 1:
                raise MonitorInvalidError(f"limits.{field}", value, "must be a whole number above 0")


class _Bucket:
    """Holds up to `most` tokens and gets `per_second` new ones."""

    __slots__ = ("_at", "_most", "_per_second", "_tokens")

    def __init__(self, most: float, per_second: float, now: float) -> None:
        self._most = most
        self._per_second = per_second
        self._tokens = most
        self._at = now

    def wait(self, now: float) -> float:
        """The seconds until there is a token: 0 where there is one."""
        self._tokens = min(self._most, self._tokens + max(now - self._at, 0.0) * self._per_second)
        self._at = now
        return 0.0 if self._tokens >= 1 else (1 - self._tokens) / self._per_second

    def take(self) -> None:
        self._tokens -= 1


class PingRates:
    """The buckets of one process. `elapsed` gives seconds on a clock that is never set."""

    def __init__(self, limits: PingLimits, elapsed: Callable[[], float]) -> None:
        self._limits = limits
        self._elapsed = elapsed
        now = elapsed()
        self._all = _Bucket(limits.all_per_second, limits.all_per_second, now)
        self._unknown = _Bucket(limits.unknown_per_second, limits.unknown_per_second, now)
        self._known: OrderedDict[str, _Bucket] = OrderedDict()
        self._reading = 0

    def wait(self, token: str) -> float:
        """Take a ping, or say in how many seconds it may come again; 0 where it was taken."""
        now = self._elapsed()
        known = self._known.get(token)
        buckets = (self._unknown,) if known is None else (known, self._all)
        longest = max(bucket.wait(now) for bucket in buckets)
        if longest == 0.0:
            for bucket in buckets:
                bucket.take()
        return longest

    def knows(self, token: str) -> bool:
        """Return whether a monitor has this token, as far as is remembered."""
        return token in self._known

    def note(self, token: str) -> None:
        """A monitor has this token."""
        if token in self._known:
            self._known.move_to_end(token)
            return
        rate = self._limits.monitor_per_minute
        bucket = _Bucket(rate, rate / 60, self._elapsed())
        bucket.take()
        self._known[token] = bucket
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)

    def forget(self, token: str) -> None:
        """No monitor has this token, or has it any more."""
        self._known.pop(token, None)

    def enter(self) -> bool:
        """Begin to read a body; False: too many are being read."""
        if self._reading >= self._limits.at_once:
            return False
        self._reading += 1
        return True

    def leave(self) -> None:
        self._reading -= 1
