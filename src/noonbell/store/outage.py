"""A store that is away, told to people: once, then once a minute, and once when it is back.

Everything that works on one store asks it several times a second while it fails: the loop, the ends of runs, delivery,
the duties. They share one `Outage` (`outage_of`), so that a log shows one story. Whoever tells of it first is the one
whose success ends it: on a full disk reading goes on well while nothing can be written. What the others meet meanwhile
is told at debug level.
"""

from __future__ import annotations

import logging
from typing import Final
from weakref import WeakKeyDictionary

logger = logging.getLogger("noonbell.store")

_AGAIN_SECONDS: Final = 60.0
# Whoever told first may be gone. After so long without a failure the next one is another outage.
_FORGOTTEN_SECONDS: Final = 150.0


class Outage:
    """Whether something is away, since when, and what is said of it. Times are seconds on a clock that only goes on."""

    def __init__(
        self,
        what: str = "The store",
        waits: str = "what is due waits until it is back",
        log: logging.Logger = logger,
    ) -> None:
        self._what = what
        self._waits = waits
        self._log = log
        self._teller: str | None = None
        self._began = 0.0
        self._told = 0.0
        self._failed = 0.0

    @property
    def lasts(self) -> bool:
        return self._teller is not None

    def failed(self, who: str, error: object, now: float) -> None:
        """A try of `who` failed."""
        if self._teller is not None and now - self._failed > _FORGOTTEN_SECONDS:
            self._teller = None
        self._failed = now
        if self._teller is None:
            self._teller, self._began, self._told = who, now, now
            self._log.error("%s failed, %s: %s", self._what, self._waits, error)
        elif now - self._told >= _AGAIN_SECONDS:
            self._teller, self._told = who, now
            self._log.error("%s has failed for %s: %s", self._what, _lasting(now - self._began), error)
        else:
            self._log.debug("%s still fails (%s): %s", self._what, who, error)

    def worked(self, who: str, now: float) -> None:
        """A try of `who` went well."""
        if self._teller == who:
            self._teller = None
            self._log.warning("%s works again, after %s", self._what, _lasting(now - self._began))


def _lasting(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


_outages: WeakKeyDictionary[object, Outage] = WeakKeyDictionary()


def outage_log_for(store: object) -> Outage:
    """The outage of a store, the same for all who work on it."""
    return _outages.setdefault(store, Outage())
